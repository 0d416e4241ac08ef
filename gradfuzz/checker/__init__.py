"""The judge: is the derivative, and the derivative of that, right at these inputs?"""

from __future__ import annotations

from gradfuzz.checker.compat import GradcheckError, GradcheckWarning, gradcheck, gradgradcheck
from gradfuzz.checker.judge import check
from gradfuzz.checker.verdict import Finding, Status, Symptom, Verdict

__all__ = [
    "Finding",
    "GradcheckError",
    "GradcheckWarning",
    "Status",
    "Symptom",
    "Verdict",
    "check",
    "gradcheck",
    "gradgradcheck",
]
