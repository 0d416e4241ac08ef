"""Settings of a campaign: what is searched for, how long, and where findings go."""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from gradfuzz.errors import CampaignError

if TYPE_CHECKING:
    import torch

    from gradfuzz.case import Case

# What the command line and pyproject.toml default to; the one list of them.
SECONDS = 60.0
CORPUS = "corpus"

# The campaign's seed is printed and typed again by people: ten digits are enough.
SEED_BITS = 32

# The highest derivative that the checker judges.
HIGHEST_ORDER = 3


def fresh_seed() -> int:
    """Draw a seed that no earlier campaign is likely to have used."""
    return secrets.randbits(SEED_BITS)


@dataclass(frozen=True, slots=True)
class Settings:
    """What a campaign was asked for, checked at the door.

    Attributes:
        seconds: Budget of the whole campaign.
        seed: Decides every case, together with the targets.
        max_examples: Cases a target, or None for as many as the time allows.
        corpus: The folder that reproducers are saved in, or None to save none.
        order: The highest derivative looked at, or None for what each target declares.
        checks: Names of the symptoms looked for, or None for all.
        dtypes: Names of the dtypes drawn, or None for what each target declares.
        devices: Devices drawn, or None for what each target declares.
        max_failures: Findings after which the campaign ends, or None for no such end.
        baseline: Signatures that are known and not reported.
        workers: Targets searched at the same time, each in its own process where there are several.
    """

    seed: int
    seconds: float = SECONDS
    max_examples: int | None = None
    corpus: Path | None = Path(CORPUS)
    order: int | None = None
    checks: tuple[str, ...] | None = None
    dtypes: tuple[str, ...] | None = None
    devices: tuple[str, ...] | None = None
    max_failures: int | None = None
    baseline: frozenset[str] = frozenset()
    workers: int = 1

    def __post_init__(self) -> None:
        """Refuse what cannot be met."""
        if not (math.isfinite(self.seconds) and self.seconds > 0):
            raise CampaignError(f"seconds={self.seconds:g} leaves no time; use a number above 0")
        for name in ("max_examples", "max_failures", "workers"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise CampaignError(f"{name}={value} leaves nothing to do; use 1 or more")
        if self.seed < 0:
            raise CampaignError(f"seed={self.seed} is negative; use 0 or more")
        if self.order is not None and not 1 <= self.order <= HIGHEST_ORDER:
            raise CampaignError(f"order={self.order} is not judged; use 1 to {HIGHEST_ORDER}")

    def narrow(self, case: Case, declared: tuple[str, ...] | None) -> Case:
        """Give the case with its plan narrowed to what was asked for.

        Args:
            case: The case.
            declared: The checks that the target declares, or None for all; they are not widened.
        """
        plan = case.plan
        # order=1 declares that there is no second derivative; asking for a third is meant for the other targets.
        order = plan.order if self.order is None or plan.order == 1 else self.order
        oracles = declared if plan.oracles is None else plan.oracles
        if self.checks is not None:
            oracles = self.checks if oracles is None else tuple(name for name in oracles if name in self.checks)
        if (order, oracles) == (plan.order, plan.oracles):
            return case
        return replace(case, plan=replace(plan, order=order, oracles=oracles))


def make_settings(
    *,
    seconds: float = SECONDS,
    seed: int | None = None,
    max_examples: int | None = None,
    corpus: str | Path | None = CORPUS,
    order: int | None = None,
    checks: Iterable[str] | None = None,
    exclude_checks: Iterable[str] = (),
    dtypes: Iterable[str | torch.dtype] | None = None,
    devices: Iterable[str | torch.device] | None = None,
    max_failures: int | None = None,
    baseline: str | Path | Iterable[str] | None = None,
    workers: int = 1,
) -> Settings:
    """Make settings of what a person wrote; a CampaignError names what cannot be met."""
    return Settings(
        seed=fresh_seed() if seed is None else seed,
        seconds=seconds,
        max_examples=max_examples,
        corpus=None if corpus is None else Path(corpus),
        order=order,
        checks=_checks(checks, exclude_checks or ()),
        dtypes=None if dtypes is None else _dtypes(dtypes),
        devices=None if devices is None else tuple(str(device) for device in devices),
        max_failures=max_failures,
        baseline=_baseline(baseline),
        workers=workers,
    )


def _checks(checks: Iterable[str] | None, excluded: Iterable[str]) -> tuple[str, ...] | None:
    from gradfuzz.checker.verdict import Symptom

    known = [symptom.value for symptom in Symptom]
    wanted, unwanted = list(checks) if checks is not None else None, list(excluded)
    for name in (*(wanted or ()), *unwanted):
        if name not in known:
            raise CampaignError(f"check {name!r} is unknown; known are {', '.join(known)}")
    if wanted is None and not unwanted:
        return None
    left = tuple(name for name in known if (wanted is None or name in wanted) and name not in unwanted)
    if not left:
        raise CampaignError(f"checks={wanted} without {unwanted} leaves nothing to look for; name a check")
    return left


def _dtypes(dtypes: Iterable[str | torch.dtype]) -> tuple[str, ...]:
    from gradfuzz.element import dtype_of

    names = tuple(str(dtype).removeprefix("torch.") for dtype in dtypes)
    for name in names:
        try:
            dtype_of(name)
        except KeyError as error:
            raise CampaignError(str(error.args[0])) from None
    return names


def _baseline(baseline: str | Path | Iterable[str] | None) -> frozenset[str]:
    if baseline is None:
        return frozenset()
    if not isinstance(baseline, str | Path):
        return frozenset(baseline)
    try:
        lines = Path(baseline).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise CampaignError(f"baseline {str(baseline)!r} cannot be read: {reason}") from None
    return frozenset(line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#"))
