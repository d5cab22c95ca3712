"""Who takes part in a deployment beyond what its file says, on disk: ``data/membership.json``.

    {"format": 1,
     "membership": {"epoch": 3, "gone": [["screen", 1], ["main-2", 2]],
                    "added": [["main-3", "main-1"]],
                    "collected": [["screen", "out", "main-3", 3]],
                    "taking": [["counts.g2.1-1", "counts.1-1"]], "leaving": []},
     "places": {"main-3": "east"},
     "shards": {"counts": {"given": 2, "generations": [[1, 2], [2, 4]]}}}

``membership`` is what goes over the wire, too (``core.records``), the rest is for those who plan.
``places`` says where a replica that was added runs, as ``replicas`` of the deployment file does;
``collected`` which readers keep no feed of a stream at which producer, and since when; ``taking``
which replicas of new shards take over from whom; ``leaving`` which copies are about to go, and
since when; ``shards`` of fragments that were rescaled how
many the file named then, and the number and the shards of each generation that takes part; ``used``
there is the last number that was given, where a generation was called off.

The machine that started the deployment decides, one change at a time, and numbers the changes.
Processes look at the file, servers are sent it, and all tell each other (``core.membership``).
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdfast.core.records import Membership
from holdfast.deployment import (
    MEMBERSHIP_FORMAT,
    Deployment,
    membership_document,
    membership_path,
)
from holdfast.durable import Damaged, make_private, write_document
from holdfast.flight.wire import NOT_DECODED, decode_membership, plain_membership


def read_membership(data: Path) -> Membership:
    """The newest membership that is known below a data directory."""
    kept = membership_document(data)
    if kept is None:
        return Membership()
    try:
        return decode_membership(kept["membership"])
    except NOT_DECODED as error:
        path = membership_path(data)
        raise Damaged(path, f"it says nothing of who takes part ({error!r})") from None


def change_membership(
    deployment: Deployment,
    change: Callable[[Membership], Membership],
    places: Mapping[str, str] | None = None,
    shards: Mapping[str, Any] | None = None,
) -> Membership:
    """Decide who takes part from now on, durably; nobody else decides meanwhile.

    places  where those are who are added.
    shards  the generations of fragments that are rescaled.
    """
    make_private(deployment.data)
    with _deciding(deployment.data):
        before = membership_document(deployment.data) or {"places": {}, "shards": {}}
        membership = change(read_membership(deployment.data))
        document = {
            "format": MEMBERSHIP_FORMAT,
            "membership": plain_membership(membership),
            "places": {**before["places"], **(places or {})},
            "shards": {**before["shards"], **(shards or {})},
        }
        write_document(membership_path(deployment.data), document)
    return membership


@contextmanager
def _deciding(data: Path) -> Iterator[None]:
    with (data / "membership.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class MembershipFile:
    """The membership as it is now: read again when the file changes."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._changed_at = 0
        self._found = Membership()

    def __call__(self) -> Membership:
        try:
            changed_at = membership_path(self._data).stat().st_mtime_ns
        except FileNotFoundError:
            return self._found
        if changed_at != self._changed_at:
            self._found = read_membership(self._data)
            self._changed_at = changed_at
        return self._found
