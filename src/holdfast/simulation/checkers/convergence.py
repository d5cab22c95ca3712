"""Convergence: every replica gives every id to the same stable tuple, in every life.

The first to publish an id decides what it is; whoever differs later is wrong. What is decided
here is compared with the oracle at the end of a run.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from holdfast.core.effects import Append
from holdfast.core.frame import Kind
from holdfast.core.messages import StreamFrame
from holdfast.simulation.checkers import Violation
from holdfast.simulation.executor import Row


class Truth:
    """The stable tuples of every stream, by id."""

    def __init__(self) -> None:
        self.rows: dict[str, list[Row]] = {}
        # Streams whose ids were not all to be seen: those of new shards begin where they took over,
        # and what nobody was left to read was neither sent nor written.
        self.late: dict[str, dict[int, Row]] = {}
        # Who begins anew with a source that lost its log has other tuples under the same ids.
        self.void = False

    def learn(self, stream: str, frames: Sequence[StreamFrame], who: str = "entry") -> None:
        """Take stable frames of a stream: new ids are noted, known ones compared."""
        for frame in frames:
            if frame.header.kind is Kind.STABLE:
                block: tuple[Row, ...] = frame.block  # type: ignore[assignment]
                self.compare(stream, frame.header.first_id, block, who)

    def learn_new(self, stream: str, frames: Sequence[StreamFrame]) -> None:
        """The same for the stable frames one process keeps: those it had were compared before."""
        known = len(self.rows.get(stream, ()))
        start = len(frames)
        while start and frames[start - 1].header.next_id > known:
            start -= 1
        self.learn(stream, frames[start:])

    def compare(self, stream: str, first_id: int, rows: tuple[Row, ...], who: str) -> None:
        """``who`` has these rows under the ids from ``first_id`` on."""
        if stream in self.late:
            self._compare_late(stream, first_id, rows, who)
            return
        known = self.rows.setdefault(stream, [])
        if first_id > len(known):
            raise Violation("convergence", f"{who} skips ids {len(known)} to {first_id}")
        overlap = known[first_id : first_id + len(rows)]
        if tuple(overlap) != rows[: len(overlap)]:
            raise Violation(
                "convergence",
                f"{who} has {rows[: len(overlap)]} as ids {first_id} on of {stream}, "
                f"others have {tuple(overlap)}",
            )
        known.extend(rows[len(overlap) :])

    def _compare_late(self, stream: str, first_id: int, rows: tuple[Row, ...], who: str) -> None:
        known = self.late[stream]
        for number, row in enumerate(rows, first_id):
            if known.setdefault(number, row) != row:
                raise Violation(
                    "convergence",
                    f"{who} has {row} as id {number} of {stream}, others have {known[number]}",
                )

    def check_append(self, address: str, append: Append, unread: Collection[str] = ()) -> None:
        """A replica publishes what it appends; ``unread``: streams whose readers have all left."""
        for stream, frames in append.frames:
            ids = [one.header.first_id for one in frames if one.header.kind is Kind.STABLE]
            known = self.rows.get(stream, [])
            if stream in unread and stream not in self.late and ids and ids[0] > len(known):
                self.late[stream] = dict(enumerate(known))
            self.check_published(address, stream, frames)

    def check_published(self, address: str, stream: str, frames: Sequence[StreamFrame]) -> None:
        """A replica has published this."""
        if not self.void:
            self.learn(stream, frames, address)

    def check_sent(
        self,
        address: str,
        stream: str,
        frames: Sequence[StreamFrame],
        kept: Sequence[StreamFrame],
    ) -> None:
        """What readers confirm in time is never appended: what they are sent counts as well.

        The first reader may take the stream up wherever it is: what is kept from before was sent
        to nobody.
        """
        known = len(self.rows.get(stream, ()))
        placed = [one.header for one in frames if one.header.kind in (Kind.STABLE, Kind.BOUNDARY)]
        if stream not in self.late and placed and placed[0].first_id > known:
            self.check_published(address, stream, kept)
        self.check_published(address, stream, frames)
