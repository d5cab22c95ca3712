"""Bounded: where what is kept of a stream has a bound, it stays within it, and nobody is wronged.

- A stream beyond its bound in bytes of which nobody has acknowledged anything for a while, whoever
  is the reason, does not grow any more.
- Nothing is let go of that is kept for one who is there, nor for the last replica of a fragment
  that is there and has a state.

That sources go on when they may, and that everything is taken, computed and delivered in the end,
is for the other checkers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from holdfast.core.consistency import NodeState
from holdfast.core.messages import HeartbeatRequest
from holdfast.core.serving import ServedStream
from holdfast.core.settings import SECOND_US, Bound
from holdfast.simulation.checkers import Violation
from holdfast.simulation.entry_process import EntryProcess

if TYPE_CHECKING:
    from holdfast.simulation.process import Process
    from holdfast.simulation.replica_process import ReplicaProcess
    from holdfast.simulation.world import World

    Bounded: TypeAlias = EntryProcess | ReplicaProcess

# Processes look once a second, and heartbeats take their time.
_LOOKS_US = 4 * SECOND_US
# What was taken before the sources wait may still be computed.
_UNDER_WAY_US = 15 * SECOND_US
# What comes meanwhile, in blocks.
_GROWS_BY = 12


@dataclass
class _Standing:
    """A stream beyond its bound: what is needed of it, since when, and how long it is then."""

    first_needed: int
    since: int
    size: int | None = None


class BoundChecks:
    """The bounds of all processes of a world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._stands: dict[tuple[str, int, str], _Standing] = {}
        self._lapsed: dict[tuple[str, int, str], set[str]] = {}
        # When a provider was reached by a reader last, and the time before; who has a state.
        self._heard: dict[tuple[str, str], tuple[int, int]] = {}
        self._settled: dict[tuple[str, str], bool] = {}
        # How often somebody was let go of, and a source had to wait.
        self.let_go = self.waited = 0

    def heard(self, provider: str, reader: str, request: HeartbeatRequest) -> None:
        """A heartbeat has come."""
        pair, now = (provider, reader), self._world.clock.now
        self._heard[pair] = (self._heard.get(pair, (0, 0))[1], now)
        self._settled[pair] = bool(request.acks)

    def sample(self) -> None:
        world = self._world
        processes: list[Bounded] = [*world.entries.values(), *world.replicas.values()]
        for process in processes:
            for bound, served in _bounded(process):
                self._look_at_lapses(process, bound, served)
                self._look_at_size(process, bound, served)
            if isinstance(process, EntryProcess) and process.up:
                self.waited += bool(process.driver.view().full)

    def _look_at_size(self, process: Bounded, bound: Bound, served: ServedStream) -> None:
        key = (process.address, process.life, served.stream)
        size = dict(process.kept_sizes()).get(served.stream, 0)
        needed = min(served.acknowledgements.needs().values(), default=served.next_id)
        beyond = bound.size_bytes is not None and size > bound.size_bytes
        if not beyond or needed >= served.next_id or not _is_undisturbed(process):
            self._stands.pop(key, None)
            return
        now, stands = self._world.clock.now, self._stands.get(key)
        if stands is None or stands.first_needed != needed:
            self._stands[key] = _Standing(needed, now)
            return
        patience_us = bound.away_us + _LOOKS_US
        patience_us += 0 if isinstance(process, EntryProcess) else _UNDER_WAY_US
        if now - stands.since <= patience_us:
            return
        if stands.size is None:
            stands.size = size
        if size > stands.size + 1_000 * _GROWS_BY:
            raise Violation(
                "bounded",
                f"{process.address} keeps {size} bytes of {served.stream}, beyond its bound, and "
                f"had {stands.size} when nobody had acknowledged anything for "
                f"{patience_us / 1e6:.0f} s",
            )

    def _look_at_lapses(self, process: Process, bound: Bound, served: ServedStream) -> None:
        key = (process.address, process.life, served.stream)
        lapsed = served.acknowledgements.lapsed
        for name in lapsed - self._lapsed.get(key, set()):
            self.let_go += 1
            self._check_lapse(process.address, bound, name)
        self._lapsed[key] = set(lapsed)

    def _check_lapse(self, provider: str, bound: Bound, name: str) -> None:
        if self._is_there(provider, name, bound):
            raise Violation("bounded", f"{provider} keeps nothing for {name}, which is there")
        group = next((one for one in bound.fragments if name in one), None)
        others = [one for one in group or () if one != name and self._settled.get((provider, one))]
        if group is not None and not any(self._was_there(provider, one, bound) for one in others):
            raise Violation(
                "bounded",
                f"{provider} keeps nothing for {name}, and no other replica of its fragment with "
                f"a state is there",
            )

    def _is_there(self, provider: str, name: str, bound: Bound) -> bool:
        """Whether it was all the time: it may have come back since it was let go of."""
        before, last = self._heard.get((provider, name), (0, 0))
        silent_us = max(self._world.clock.now - last, last - before)
        return silent_us < bound.away_us * 0.9

    def _was_there(self, provider: str, name: str, bound: Bound) -> bool:
        _, last = self._heard.get((provider, name), (0, 0))
        return last > 0 and self._world.clock.now - last < bound.away_us + _LOOKS_US


def _bounded(process: Bounded) -> Iterator[tuple[Bound, ServedStream]]:
    """The streams of a process that have a bound."""
    if not process.running:
        return
    if isinstance(process, EntryProcess):
        if process.settings.bound is not None:
            yield process.settings.bound, process.driver.served
        return
    for stream, bound in process.settings.bounds:
        yield bound, process.driver.served[stream]


def _is_undisturbed(process: Bounded) -> bool:
    """Whether it does what it would do, and has nothing to catch up with."""
    if process.slow or process.busy or process.disk.full:
        return False
    if isinstance(process, EntryProcess):
        return True
    # One that sleeps is sent what the other one computes.
    return process.replica is None or process.replica.state is not NodeState.RECOVERING
