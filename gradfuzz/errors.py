"""The exceptions gradfuzz raises when *it* was called wrongly; defects of a user's function are values."""

from __future__ import annotations


class GradfuzzError(Exception):
    """Base of every error of ours; the message is one line that names the value and the remedy."""


class CheckError(GradfuzzError, ValueError):
    """The checker was called with arguments it cannot judge."""


class StrategyError(GradfuzzError, ValueError):
    """A strategy was described in a way that cannot be drawn from."""


class TargetError(GradfuzzError, LookupError):
    """A target's address cannot be resolved, or the target cannot be fuzzed as described."""

    def __str__(self) -> str:
        """Show the message itself; LookupError's subclasses otherwise quote it."""
        return str(self.args[0]) if self.args else ""


class CorpusError(GradfuzzError, ValueError):
    """A corpus file cannot be read; the message starts with its path."""


class CampaignError(GradfuzzError, ValueError):
    """A campaign's settings contradict each other or cannot be met."""
