"""Where a feed message that is too large to be taken at once may be handed on in pieces.

A subscriber that was away is sent all it lacks as one message, and that may be anything. Its
reader hands it on piece by piece, and the connection may break between two of them: then the
subscriber goes on from what it has taken, by id and by time.

Stable tuples may be cut from what follows them: they have ids. Tentative ones may not: what was
said tentatively about a stretch of time is known by the TENTATIVE_BOUNDARY behind it, and tuples
taken without it would be asked for, and taken, again.
"""

from __future__ import annotations

from holdfast.core.frame import Header, Kind


def ends_piece(last: Header, left: int, size: int, size_max: int) -> bool:
    """Whether a piece may end after the frame ``last``.

    left  how many frames of the message follow.
    size  how much the piece has come to, in whatever the caller counts.
    """
    return left == 0 or (size >= size_max and last.kind is not Kind.TENTATIVE)
