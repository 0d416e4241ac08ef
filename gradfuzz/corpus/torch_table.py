"""The functions of torch that a corpus file may name: differentiable ones, from a table of namespaces."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch.overrides import get_overridable_functions

from gradfuzz.errors import TargetError

NAMESPACES = {
    "torch": torch,
    "torch.fft": torch.fft,
    "torch.linalg": torch.linalg,
    "torch.nn.functional": torch.nn.functional,
    "torch.special": torch.special,
}
# Differentiable, but written so that torch does not list them as overridable.
UNLISTED = {
    "torch": ("as_strided", "fill", "segment_reduce", "vander"),
    "torch.nn.functional": ("hardsigmoid", "hardswish", "sigmoid", "tanh"),
}
# The name that torch's operator catalogue has for a function: its address below torch.
CATALOGUE = "op:"


@cache
def functions_of(namespace: str) -> dict[str, Callable[..., Any]]:
    """Give the functions of a namespace by name.

    torch lists the functions that take tensors, for ``__torch_function__``; what loads, saves, compiles or
    sets a global is not among them.
    """
    module = NAMESPACES[namespace]
    listed = {id(function) for function in get_overridable_functions()[module]}
    members = {name: getattr(module, name) for name in dir(module) if not name.startswith("_")}
    return {
        name: member
        for name, member in members.items()
        if not isinstance(member, type) and (id(member) in listed or name in UNLISTED.get(namespace, ()))
    }


def is_torch(address: str) -> bool:
    """Whether an address is one of torch's own: then this table alone decides."""
    if "::" in address:
        return False
    return address.startswith(CATALOGUE) or address.partition(":")[0].split(".")[0] == "torch"


def torch_function(address: str) -> Callable[..., Any]:
    """Give the function of torch at an address; a TargetError says what is reachable."""
    if address.startswith(CATALOGUE):
        namespace, _, name = f"torch.{address.removeprefix(CATALOGUE)}".rpartition(".")
    else:
        namespace, _, name = address.partition(":")
    if namespace not in NAMESPACES:
        known = ", ".join(NAMESPACES)
        raise TargetError(f"target {address!r}: {namespace} is not among the reachable namespaces of torch, {known}")
    function = functions_of(namespace).get(name)
    if function is None:
        raise TargetError(f"target {address!r}: {name!r} is no differentiable public function of {namespace}")
    return function
