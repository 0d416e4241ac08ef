"""What the tensors of one case have in common: sizes by name, the dtype, the device, the mode of values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TypeVar

from hypothesis import strategies as st

from gradfuzz.errors import StrategyError
from gradfuzz.strategies.device import devices
from gradfuzz.strategies.dtype import FLOATING, dtypes
from gradfuzz.strategies.value import MODES

T = TypeVar("T")

# Sizes that were drawn may turn out too small for what comes later (an index into an empty dimension): the case is
# then drawn again with the least size that fits. Each time raises one of a few names, so a dozen is plenty.
_ATTEMPTS = 12

_mode = st.sampled_from(MODES)
# How often a tensor follows the mode of its case instead of staying generic.
_follows = st.sampled_from((False, True, True, True))


class Conflict(Exception):
    """A size drawn earlier does not fit: `name` must be at least `least`, or no side may be large."""

    def __init__(self, name: str, least: int = 0) -> None:
        super().__init__(f"{name} must be at least {least}" if name else "the tensor is too large")
        self.name = name
        self.least = least


@dataclass(slots=True)
class Common:
    """What has been drawn so far for a case, by the names that its tensors share.

    Attributes:
        dtypes: The dtypes for tensors that declare none.
        devices: The devices the case may be on.
        least: The smallest size of some names.
        large: Whether a side may pass a block boundary.
        has_large: Whether one does; more than one would cost time and find nothing.
        sizes: The size of each name.
        groups: The sizes of each variadic name.
        tensors: How many tensors have been drawn; keeps their elements apart.
    """

    dtypes: tuple[str, ...] = FLOATING
    devices: tuple[str, ...] = ("cpu",)
    least: Mapping[str, int] = field(default_factory=dict)
    large: bool = True
    has_large: bool = False
    sizes: dict[str, int] = field(default_factory=dict)
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)
    tensors: int = 0
    _dtypes: dict[tuple[str, ...], str] = field(default_factory=dict)
    _device: str | None = None
    _mode: str | None = None

    def again(self, conflict: Conflict) -> Common:
        """Give a fresh start that heeds the conflict."""
        least = {**self.least, conflict.name: conflict.least} if conflict.name else self.least
        return Common(self.dtypes, self.devices, least, large=bool(conflict.name) and self.large)

    def dtype(self, draw: st.DrawFn, allowed: tuple[str, ...] | None) -> str:
        """Draw the dtype of the next tensor: one for all tensors that allow it.

        Most functions take one dtype, and few say so: a backward that multiplies two of its tensors fails where a
        forward promoted them. Other dtypes are mixed where arguments declare different ones.
        """
        allowed = self.dtypes if allowed is None else allowed
        if len(allowed) == 1:
            return allowed[0]
        shared = next((name for name in self._dtypes.values() if name in allowed), None)
        if shared is None:
            shared = self._dtypes[allowed] = draw(dtypes(allowed))
        return shared

    def device(self, draw: st.DrawFn) -> str:
        """Draw the device, one for all tensors of the case."""
        if self._device is None:
            self._device = self.devices[0] if len(self.devices) == 1 else draw(devices(self.devices))
        return self._device

    def mode(self, draw: st.DrawFn) -> str:
        """Draw the mode of the next tensor's values: mostly that of the case."""
        if self._mode is None:
            self._mode = draw(_mode)
        if self._mode == MODES[0]:
            return self._mode
        return self._mode if draw(_follows) else MODES[0]


_current: ContextVar[Common | None] = ContextVar("gradfuzz_common", default=None)


def together(draw_all: Callable[[Common], T], common: Common) -> T:
    """Draw everything with one `Common`; a conflict draws all of it again, with sizes that fit."""
    for _ in range(_ATTEMPTS):
        token = _current.set(common)
        try:
            return draw_all(common)
        except Conflict as conflict:
            common = common.again(conflict)
            reason = str(conflict)
        finally:
            _current.reset(token)
    raise StrategyError(f"the declared dims contradict each other ({reason}); no sizes satisfy all of them")


def shared(draw_one: Callable[[Common], T]) -> T:
    """Draw with the `Common` of the case being drawn, or with a fresh one where there is no case."""
    common = _current.get()
    return together(draw_one, Common()) if common is None else draw_one(common)
