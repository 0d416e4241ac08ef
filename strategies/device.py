"""Devices of tensors, by their torch names."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from hypothesis import strategies as st
from hypothesis_torch.device import device_strategy, physical_devices

from gradfuzz.errors import StrategyError


def present(device: str | Iterable[str]) -> tuple[str, ...]:
    """Give the names of one or several devices, each of which is there; ``cuda`` is every cuda device."""
    wanted = (device,) if isinstance(device, str) else tuple(device)
    if not wanted:
        raise StrategyError("devices=() leaves no device; name one, such as 'cpu'")
    if set(wanted) == {"cpu"}:  # the ordinary case, without waking a driver
        return ("cpu",)
    there = [str(d) for d in physical_devices()]
    found: dict[str, None] = {}
    for name in wanted:
        matching = [d for d in there if d == name or d.partition(":")[0] == name]
        if not matching:
            raise StrategyError(f"device {name!r} is not available here; available are {', '.join(there)}")
        found.update(dict.fromkeys(matching))
    return tuple(found)


def devices(device: str | Iterable[str] = "cpu") -> st.SearchStrategy[str]:
    """Names of devices that are there. Shrinks to the first that is named."""
    return device_strategy(devices=[torch.device(name) for name in present(device)]).map(str)
