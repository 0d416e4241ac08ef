"""Hypothesis strategies for the calls of differentiable functions; all of them draw plain data, never live tensors."""

from __future__ import annotations

from gradfuzz.strategies.case import cases
from gradfuzz.strategies.device import devices
from gradfuzz.strategies.dtype import dtypes
from gradfuzz.strategies.grad_output import grad_outputs
from gradfuzz.strategies.layout import Layout, layouts
from gradfuzz.strategies.shape import shapes
from gradfuzz.strategies.tensor import Recipe, indices, tensors
from gradfuzz.strategies.value import values

__all__ = [
    "Layout",
    "Recipe",
    "cases",
    "devices",
    "dtypes",
    "grad_outputs",
    "indices",
    "layouts",
    "shapes",
    "tensors",
    "values",
]
