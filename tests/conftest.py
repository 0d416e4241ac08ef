"""What all tests share."""

import os

# Set before Hypothesis is imported: hypothesis-torch's plugin reseeds torch's generator around each example, which
# costs more than drawing it. gradfuzz draws its seeds, and its workers run without the plugin too.
os.environ.setdefault("HYPOTHESIS_NO_PLUGINS", "1")

import pytest


@pytest.fixture(autouse=True, scope="session")
def draws_do_not_depend_on_what_is_loaded():
    """Keep constants of the modules at hand out of the draws.

    Hypothesis mixes in numbers that it reads in the source of whatever is loaded, so that equal seeds would draw
    other cases in every worker of pytest-xdist, depending on which tests it ran before.
    """
    from hypothesis.internal.conjecture import providers

    kept = getattr(providers, "_get_local_constants", None)  # a Hypothesis before 6.131 reads no source
    if kept is None:
        yield
        return
    nothing = providers.Constants()
    providers._get_local_constants = lambda: nothing
    yield
    providers._get_local_constants = kept
