"""When a replica moves: only for what lasts, and seldom.

Theory of operation. Delays and rates change all the time, and every move costs: a new replica
starts, takes the state of another one and catches up before the old one ends. So a better server is
no reason to move by itself. It must be better by a *gain*, a share of what the replica's streams
cost now and an amount below which nothing is worth a move; and it must have been so at every look
for as long as ``hold_us``. One look at which it is not, and it begins anew: a link whose delay
jumps every second moves nothing. After a move nothing else of the submission moves for ``rest_us``.

So in a world that does not change there are finitely many moves, each of which makes the placement
cheaper by the gain; and in any world there are at most an hour over ``rest_us`` in an hour.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.core.placement import Choice


@dataclass(frozen=True, slots=True)
class AdaptationSettings:
    """What lasts, and what is worth a move.

    gain       the share of its cost that a replica must save elsewhere.
    least      the cost below which a saving is not worth a move, in the units of the placement.
    """

    gain: float = 0.25
    least: float = 1.0
    hold_us: int = 300_000_000
    rest_us: int = 600_000_000

    def __post_init__(self) -> None:
        if not 0 < self.gain < 1 or self.hold_us <= 0 or self.rest_us <= 0:
            raise ValueError(f"a gain between 0 and 1 and times above 0 are needed, got {self}")


@dataclass(frozen=True, slots=True)
class Move:
    """A replica of a fragment goes from one server to another."""

    fragment: str
    here: str
    there: str


class Adaptation:
    """Decides about the replicas of one submission."""

    def __init__(self, settings: AdaptationSettings | None = None) -> None:
        self._settings = settings or AdaptationSettings()
        # Since when each replica would be better off on another server.
        self._since: dict[tuple[str, str], tuple[str, int]] = {}
        self._rests_until = 0

    def look(self, choices: Iterable[Choice], now: int) -> Move | None:
        """The move that is due, if one is: of those that have lasted, the one that saves most."""
        due: list[tuple[float, str, str, str]] = []
        since: dict[tuple[str, str], tuple[str, int]] = {}
        for choice in choices:
            if choice.runner_up is None or not self._is_better(choice):
                continue
            there, cost = choice.runner_up
            replica = (choice.fragment, choice.server)
            before = self._since.get(replica)
            since[replica] = before if before is not None and before[0] == there else (there, now)
            if now - since[replica][1] >= self._settings.hold_us:
                due.append((choice.cost - cost, *replica, there))
        self._since = since
        if not due or now < self._rests_until:
            return None
        _, fragment, here, there = max(due)
        self.moved(now)
        return Move(fragment, here, there)

    def forget(self) -> None:
        """Something has changed: what was seen before says nothing any more."""
        self._since.clear()

    def moved(self, now: int) -> None:
        """Something moves: for a while nothing else does."""
        self.forget()
        self._rests_until = now + self._settings.rest_us

    def _is_better(self, choice: Choice) -> bool:
        assert choice.runner_up is not None
        saved = choice.cost - choice.runner_up[1]
        return saved >= max(self._settings.least, self._settings.gain * choice.cost)
