"""What torch keeps for the whole process: modes, dtypes, devices, threads, random numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


@dataclass(frozen=True, slots=True)
class GlobalState:
    """What torch keeps for the whole process and a function must leave as it found it."""

    grad_mode: bool
    default_dtype: torch.dtype
    threads: int
    seed: int
    deterministic: bool
    anomaly: bool
    autocast: bool
    inference_mode: bool
    matmul_precision: str
    default_device: torch.device

    @classmethod
    def now(cls) -> GlobalState:
        """Read it."""
        return cls(
            torch.is_grad_enabled(),
            torch.get_default_dtype(),
            torch.get_num_threads(),
            torch.initial_seed(),
            torch.are_deterministic_algorithms_enabled(),
            torch.is_anomaly_enabled(),
            torch.is_autocast_enabled("cpu"),
            torch.is_inference_mode_enabled(),
            torch.get_float32_matmul_precision(),
            torch.empty(0).device,  # torch.get_default_device() takes ten times longer
        )

    def restore(self) -> None:
        """Put it back, all but the seed, which the caller restores with the generator's state.

        Inference mode cannot be left from outside the block that entered it.
        """
        torch.set_grad_enabled(self.grad_mode)
        torch.set_default_dtype(self.default_dtype)
        if torch.get_num_threads() != self.threads:
            torch.set_num_threads(self.threads)
        if torch.are_deterministic_algorithms_enabled() != self.deterministic:
            torch.use_deterministic_algorithms(self.deterministic)
        if torch.is_anomaly_enabled() != self.anomaly:
            torch.autograd.set_detect_anomaly(self.anomaly)
        if torch.is_autocast_enabled("cpu") != self.autocast:
            torch.set_autocast_enabled("cpu", self.autocast)
        if torch.get_float32_matmul_precision() != self.matmul_precision:
            torch.set_float32_matmul_precision(self.matmul_precision)
        if torch.empty(0).device != self.default_device:
            torch.set_default_device(self.default_device)


class Draws(TorchDispatchMode):
    """Notices random numbers drawn under it, even where a function puts the generator back before it returns.

    Attributes:
        seen: Whether any were.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's has no annotations
        self.seen = False

    def __torch_dispatch__(
        self,
        func: Any,
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call `func`; look at its generator before and after where it may draw."""
        named = dict(kwargs or {})
        if self.seen or torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **named)
        generator = named.get("generator") or torch.default_generator
        before = generator.get_state()
        result = func(*args, **named)
        self.seen = not torch.equal(before, generator.get_state())
        return result
