"""The judge: is the derivative, and the derivative of that, right at these inputs?

The words of a verdict are loaded at once, the judge itself on first use: it needs torch, they do not.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gradfuzz.checker.verdict import Finding, Status, Symptom, Verdict

if TYPE_CHECKING:
    from gradfuzz.checker.compat import GradcheckError as GradcheckError
    from gradfuzz.checker.compat import GradcheckWarning as GradcheckWarning
    from gradfuzz.checker.compat import gradcheck as gradcheck
    from gradfuzz.checker.compat import gradgradcheck as gradgradcheck
    from gradfuzz.checker.judge import check as check

_HOME = {
    "GradcheckError": "gradfuzz.checker.compat",
    "GradcheckWarning": "gradfuzz.checker.compat",
    "check": "gradfuzz.checker.judge",
    "gradcheck": "gradfuzz.checker.compat",
    "gradgradcheck": "gradfuzz.checker.compat",
}

__all__ = ["Finding", "Status", "Symptom", "Verdict", *_HOME]


def __getattr__(name: str) -> Any:
    """Load what needs torch on first use (PEP 562)."""
    if name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'gradfuzz.checker' has no attribute {name!r}")
