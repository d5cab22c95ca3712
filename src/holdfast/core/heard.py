"""How far in time anybody has said that the input goes, and since when that is known.

Theory of operation. Boundaries pass a window's end although no tuple comes. If some input is
missing then, no bucket is stable any more, and no tuple waits whose time could run out; but the
window's result is one of tuples that came, and has to be out in time like them. So a result is
*due* when the first input has been heard of beyond the end of its window, and waits from then on as
a tuple does.

Only what is younger than a tuple may wait needs a moment of its own: what is older is overdue.
"""

from __future__ import annotations

from collections import deque

from holdfast.core.stream_copy import FAR_FUTURE


class Heard:
    """The newest boundary of all inputs, as it grew."""

    def __init__(self, patience_us: int) -> None:
        """``patience_us``: how long anything waits at the most."""
        self._patience_us = patience_us
        # (when it was heard, up to where), both growing.
        self._grew: deque[tuple[int, int]] = deque()

    def hear(self, boundary: int, now: int) -> None:
        """Some input goes up to ``boundary``, stable or not."""
        if self._grew and boundary <= self._grew[-1][1]:
            return
        self._grew.append((now, boundary))
        while len(self._grew) > 1 and self._grew[1][0] <= now - self._patience_us:
            self._grew.popleft()

    def since(self, boundary: int) -> int:
        """Since when ``boundary`` is known to be passed; FAR_FUTURE if it is not."""
        if not self._grew or boundary > self._grew[-1][1]:
            return FAR_FUTURE
        return next(when for when, reached in self._grew if reached >= boundary)
