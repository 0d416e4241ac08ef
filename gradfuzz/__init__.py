"""Property-based fuzzing of PyTorch autograd functions: wrong first and second derivatives, found and kept.

Everything public is loaded on first use, so that `import gradfuzz` costs neither torch nor Hypothesis.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gradfuzz import strategies as strategies
    from gradfuzz.campaign import Finding as Finding
    from gradfuzz.campaign import Result as Result
    from gradfuzz.campaign import assert_gradients as assert_gradients
    from gradfuzz.campaign import fuzz as fuzz
    from gradfuzz.campaign import given as given
    from gradfuzz.case import Case as Case
    from gradfuzz.checker import GradcheckError as GradcheckError
    from gradfuzz.checker import GradcheckWarning as GradcheckWarning
    from gradfuzz.checker import Status as Status
    from gradfuzz.checker import Symptom as Symptom
    from gradfuzz.checker import Verdict as Verdict
    from gradfuzz.checker import check as check
    from gradfuzz.checker import gradcheck as gradcheck
    from gradfuzz.checker import gradgradcheck as gradgradcheck
    from gradfuzz.corpus import replay as replay
    from gradfuzz.errors import GradfuzzError as GradfuzzError
    from gradfuzz.targets import Target as Target
    from gradfuzz.targets import target as target

__version__ = "0.1.0"

# Where each public name lives; the one list of them.
_HOME = {
    "Case": "gradfuzz.case",
    "Finding": "gradfuzz.campaign",
    "GradcheckError": "gradfuzz.checker",
    "GradcheckWarning": "gradfuzz.checker",
    "GradfuzzError": "gradfuzz.errors",
    "Result": "gradfuzz.campaign",
    "Status": "gradfuzz.checker",
    "Symptom": "gradfuzz.checker",
    "Target": "gradfuzz.targets",
    "Verdict": "gradfuzz.checker",
    "assert_gradients": "gradfuzz.campaign",
    "check": "gradfuzz.checker",
    "fuzz": "gradfuzz.campaign",
    "given": "gradfuzz.campaign",
    "gradcheck": "gradfuzz.checker",
    "gradgradcheck": "gradfuzz.checker",
    "replay": "gradfuzz.corpus",
    "target": "gradfuzz.targets",
}

__all__ = ["__version__", "strategies", *_HOME]  # the names are the keys of _HOME


def __getattr__(name: str) -> Any:
    """Load a public name on first use (PEP 562)."""
    if name == "strategies":
        return import_module("gradfuzz.strategies")
    if name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'gradfuzz' has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return sorted({*globals(), *__all__})
