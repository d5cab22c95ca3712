"""Links that can be cut: what a process sends to a peer, or hears from it, stops on the way.

A cut is carried out where messages enter and leave the process, for connections that exist and
for new ones, so that neither end learns anything the network would not tell it:

    a call        waits for its link and is given up at its deadline; so does its answer
    a feed        goes on where it stood when the link heals, as TCP would; what waits for the
                  subscriber meanwhile is bounded as ever
    a new feed    is not opened; a feed that is given up is cancelled once the link has healed

Each direction is cut for itself. One end is enough to cut both directions: the other notices
nothing but silence.

A link can also be long (distance.py): what is sent is held back here for as long as it would take.
Each end holds back what it sends. And its connections may break, each by itself: a feed ends then.
"""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.flight.distance import Distance

_LOOK_SECONDS = 0.02
_KIB = 1024


class LinkCut(HoldfastError):
    """A call was given up because its link stayed cut."""

    def __init__(self, peer: str) -> None:
        super().__init__(f"cannot be reached: the link to {peer} is cut")


def _never() -> bool:
    return False


class Links:
    """The links of one process to its peers; whole unless they were cut."""

    def __init__(
        self,
        found: Mapping[str, Any] | None = None,
        on_change: Callable[[dict[str, Any]], None] = lambda found: None,
        distances: Mapping[str, Distance] | None = None,
    ) -> None:
        """
        found      what ``on_change`` got last in an earlier life: what is cut, what was delayed.
        distances  how far it is to each peer, unless that is changed later.
        """
        found = found or {}
        self._deaf: frozenset[str] = frozenset(found.get("incoming", ()))
        self._mute: frozenset[str] = frozenset(found.get("outgoing", ()))
        self._given = dict(distances or {})
        self._changed_distances = {
            peer: Distance.of(each) for peer, each in found.get("distances", {}).items()
        }
        # When the last byte that was sent to a peer will have left, where bandwidth is scarce.
        self._busy_until: dict[str, float] = {}
        self._random = random.Random()
        self._on_change = on_change
        self._changed = threading.Condition()

    def cut(self, peer: str, *, incoming: bool = True, outgoing: bool = True) -> None:
        """From now on nothing comes from the peer, or goes to it, or both."""
        deaf = self._deaf | {peer} if incoming else self._deaf
        mute = self._mute | {peer} if outgoing else self._mute
        self._set(deaf, mute)

    def heal(
        self, peer: str | None = None, *, incoming: bool = True, outgoing: bool = True
    ) -> None:
        """Make the link to one peer, or to all, whole again."""

        def healed(names: frozenset[str]) -> frozenset[str]:
            return frozenset() if peer is None else names - {peer}

        self._set(
            healed(self._deaf) if incoming else self._deaf,
            healed(self._mute) if outgoing else self._mute,
        )

    def _set(self, deaf: frozenset[str], mute: frozenset[str]) -> None:
        with self._changed:
            if (deaf, mute) == (self._deaf, self._mute):
                return
            self._deaf, self._mute = deaf, mute
            self._changed.notify_all()
        self._tell()

    def _tell(self) -> None:
        changed = {peer: asdict(each) for peer, each in self._changed_distances.items()}
        self._on_change(self.listed() | {"distances": changed})

    def set_distance(self, peer: str, distance: Distance) -> None:
        """From now on what is sent to the peer takes so long."""
        with self._changed:
            self._changed_distances = {**self._changed_distances, peer: distance}
            self._busy_until.pop(peer, None)
        self._tell()

    def distance(self, peer: str) -> Distance | None:
        """How far it is to a peer; None for those beside us."""
        found = self._changed_distances.get(peer, self._given.get(peer))
        return None if found is None or found.is_none else found

    @property
    def distances(self) -> dict[str, Distance]:
        """How far it is to those who are not beside us."""
        peers = sorted({*self._given, *self._changed_distances})
        found = {peer: self.distance(peer) for peer in peers}
        return {peer: each for peer, each in found.items() if each is not None}

    def arrival(self, peer: str, size: int = 0) -> float:
        """When what is sent to a peer now will be there; 0 for at once."""
        distance = self.distance(peer)
        if distance is None:
            return 0.0
        leaves = time.monotonic()
        with self._changed:
            if distance.bandwidth:
                began = max(leaves, self._busy_until.get(peer, 0.0))
                leaves = began + size / (distance.bandwidth * _KIB)
                self._busy_until[peer] = leaves
            jitter = self._random.uniform(0, distance.jitter_ms)
        return leaves + (distance.delay_ms + jitter) / 1e3

    def is_lost(self, peer: str, seconds: float) -> bool:
        """Whether a connection to a peer breaks within so many seconds; drawn anew each time."""
        distance = self.distance(peer)
        if distance is None or not distance.lost_s:
            return False
        return self._random.random() < -math.expm1(-seconds / distance.lost_s)

    def travel(self, peer: str, size: int = 0) -> None:
        """Wait for as long as something that is sent to a peer now is under way."""
        left = self.arrival(peer, size) - time.monotonic()
        if left > 0:
            time.sleep(left)

    def listed(self) -> dict[str, list[str]]:
        """What is cut."""
        return {"incoming": sorted(self._deaf), "outgoing": sorted(self._mute)}

    def hears(self, peer: str) -> bool:
        """Whether what the peer sends arrives here."""
        return peer not in self._deaf

    def reaches(self, peer: str) -> bool:
        """Whether what is sent from here arrives at the peer."""
        return peer not in self._mute

    def wait_to_hear(
        self, peer: str, timeout_s: float | None = None, given_up: Callable[[], bool] = _never
    ) -> bool:
        """Wait for the link from a peer; False if it stayed cut, or the wait was given up."""
        return self._wait(self.hears, peer, timeout_s, given_up)

    def wait_to_reach(
        self, peer: str, timeout_s: float | None = None, given_up: Callable[[], bool] = _never
    ) -> bool:
        """Wait for the link to a peer; False if it stayed cut, or the wait was given up."""
        return self._wait(self.reaches, peer, timeout_s, given_up)

    def _wait(
        self,
        is_whole: Callable[[str], bool],
        peer: str,
        timeout_s: float | None,
        given_up: Callable[[], bool],
    ) -> bool:
        if is_whole(peer):
            return True
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not is_whole(peer):
            if given_up() or (deadline is not None and time.monotonic() >= deadline):
                return False
            with self._changed:
                self._changed.wait(_LOOK_SECONDS)
        return True
