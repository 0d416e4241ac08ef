"""The campaign: a budgeted search over targets, told as events.

Loaded on first use, so that a process which only supervises others imports no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gradfuzz.campaign.finding import Finding as Finding
    from gradfuzz.campaign.result import Result as Result
    from gradfuzz.campaign.result import Tally as Tally
    from gradfuzz.campaign.run import fuzz as fuzz
    from gradfuzz.campaign.suite import assert_gradients as assert_gradients
    from gradfuzz.campaign.suite import given as given

# Where each public name lives; the one list of them.
_HOME = {
    "Finding": "gradfuzz.campaign.finding",
    "Result": "gradfuzz.campaign.result",
    "Tally": "gradfuzz.campaign.result",
    "assert_gradients": "gradfuzz.campaign.suite",
    "fuzz": "gradfuzz.campaign.run",
    "given": "gradfuzz.campaign.suite",
}

__all__ = [*_HOME]


def __getattr__(name: str) -> Any:
    """Load a public name on first use (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module 'gradfuzz.campaign' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return sorted({*globals(), *__all__})
