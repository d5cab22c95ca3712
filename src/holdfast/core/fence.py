"""A fence: of two that go by one name, the later one counts.

Every life of a name gets a number, its epoch, greater than any before it. Who keeps the fence
writes the number down before it answers under it, obeys the highest it knows and refuses lower
ones. So one who was thought gone and comes back, or two who were given one name by mistake,
cannot both go on: the older is told, and what it sends changes nothing.
"""

from __future__ import annotations

from holdfast.core.machine import PeerError


class Fenced(PeerError):
    """Somebody newer goes by this name."""


def check(who: str, epoch: int, newest: int) -> None:
    """Raise unless ``epoch`` is the newest of ``who``."""
    if epoch < newest:
        raise Fenced(
            f"{who} of epoch {epoch} is refused: another one opened the same name since and has "
            f"epoch {newest}. If both should run, give each a name of its own"
        )
    if epoch > newest:
        raise Fenced(
            f"{who} of epoch {epoch} is refused: only epochs up to {newest} are known here, so "
            f"what was written down is lost or of another time. Open the name again"
        )
