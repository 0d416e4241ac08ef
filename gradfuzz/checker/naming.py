"""How findings name elements, exceptions and numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch


def one_line(error: BaseException, limit: int = 160) -> str:
    """Give type and message of an exception on one line."""
    message = " ".join(str(error).split())
    return f"{type(error).__name__}({message[:limit] + ('...' if len(message) > limit else '')})"


def element_of(tensors: Sequence[torch.Tensor], names: Sequence[str], k: int) -> tuple[str, str]:
    """Name the tensor and the index of element `k` of a flat vector."""
    for tensor, name in zip(tensors, names, strict=True):
        parts = 2 if tensor.dtype.is_complex else 1
        count = tensor.numel() * parts
        if k < count:
            index = tuple(int(i) for i in np.unravel_index(k // parts, tuple(tensor.shape))) if tensor.dim() else ()
            text = "(" + ", ".join(map(str, index)) + ("," if len(index) == 1 else "") + ")"
            return name, text + ("" if parts == 1 else (" real part", " imaginary part")[k % 2])
        k -= count
    raise IndexError(k)


# Digits shown of a number: six, and up to all of a double's where fewer would make two different numbers look alike.
LEAST_DIGITS, MOST_DIGITS = 6, 17


def apart(got: float, want: float) -> tuple[str, str]:
    """Write two numbers with as few digits as show that they differ, six at least."""
    for digits in range(LEAST_DIGITS, MOST_DIGITS):
        texts = (f"{got:.{digits}g}", f"{want:.{digits}g}")
        if texts[0] != texts[1] or got == want:
            return texts
    return f"{got:.{MOST_DIGITS}g}", f"{want:.{MOST_DIGITS}g}"


def against(got: float, want: float, error: float) -> tuple[str, str]:
    """Write got and want, the latter with its error bar: ``2.001`` and ``2 +- 2e-10``."""
    shown, wanted = apart(got, want)
    return shown, f"{wanted} +- {error:.1g}"
