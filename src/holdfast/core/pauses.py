"""How long to wait before something that failed is tried again: one rule for all who do."""

from __future__ import annotations

from typing import TypeVar

Duration = TypeVar("Duration", int, float)
# Twice as long so often: far beyond any longest pause, and no number grows without bound.
_DOUBLINGS = 30


def pause_after(failures: int, first: Duration, longest: Duration) -> Duration:
    """After so many failures in a row: the first pause, then twice as long with each more.

    The unit is that of ``first`` and ``longest``.
    """
    doubled = first * (1 << min(max(failures - 1, 0), _DOUBLINGS))
    return min(longest, doubled)
