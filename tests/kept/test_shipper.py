"""Of the checkpoints that wait only the newest is sent, however long it takes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from holdfast.core.events import CheckpointNotSent, Event
from holdfast.core.records import Checkpoint, RecoveryRecord
from holdfast.flight.links import Links
from holdfast.flight.security import Security
from holdfast.kept.packed_codec import SCHEMA
from holdfast.kept.quiet import Quiet, Unhurried
from holdfast.kept.shipper import Encoded, Shipper

PATIENCE = 60.0
RECORD = RecoveryRecord(100, 90, (("in", 7),), (("out", 3),))


class Slow:
    """Makes nothing ready before it is told to; then it cannot."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.has_begun, self.go_on = threading.Event(), threading.Event()

    def is_whole(self, checkpoint: Checkpoint) -> bool:
        return False

    def encode(
        self, checkpoint: Checkpoint, whole: bool, manner: Unhurried
    ) -> tuple[Iterable[Encoded], int]:
        self.begun.append(checkpoint.number)
        self.has_begun.set()
        assert self.go_on.wait(PATIENCE)
        raise OSError("nothing is sent in this test")


def asked(number: int) -> Checkpoint:
    return Checkpoint(number, 0, None, RECORD, (), None, wanted=True, answers=(9, number))


def unasked(number: int) -> Checkpoint:
    return Checkpoint(number, 0, None, RECORD, (), None)


def test_what_was_asked_for_is_not_sent_when_it_was_asked_for_anew() -> None:
    sent, posted, over = Slow(), list[Event](), threading.Event()

    def post(event: Event) -> None:
        posted.append(event)
        if len(posted) == 6:
            over.set()

    shipper = Shipper(
        "a", "b", sent, lambda: "", Security(), Links(), post, lambda *_: None, Quiet()
    )
    shipper.start()
    shipper.ship(asked(1))
    assert sent.has_begun.wait(PATIENCE)
    for each in (asked(2), unasked(3), asked(4), unasked(5), asked(6)):
        shipper.ship(each)
    sent.go_on.set()
    assert over.wait(PATIENCE)
    shipper.close()
    assert sent.begun == [1, 5, 6], "of each kind the newest, beside the one under way"
    told = [one.number for one in posted if isinstance(one, CheckpointNotSent)]
    assert told == [1, 2, 3, 4, 5, 6], "each has an end that its sender hears of"


# What is sent to a receiver in these tests: more than a connection holds by itself.
PIECES, PIECE = 70, pa.RecordBatch.from_pydict({"data": [bytes(1 << 20)]}, SCHEMA)
STUCK_SECONDS = 1.5


class Large:
    """Has so many pieces to send, whatever of."""

    def is_whole(self, checkpoint: Checkpoint) -> bool:
        return True

    def encode(
        self, checkpoint: Checkpoint, whole: bool, manner: Unhurried
    ) -> tuple[Iterable[Encoded], int]:
        return ((PIECE, {"number": checkpoint.number}) for _ in range(PIECES)), PIECES


class Receiver(flight.FlightServerBase):  # type: ignore[misc]
    """Takes what is sent to it, and asks before each piece whether it may."""

    def __init__(self, before: Callable[[], object]) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self.before = before
        self.took: list[int] = []

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        self.took.append(0)
        for _ in reader:
            self.before()
            self.took[-1] += 1


@contextmanager
def sending(before: Callable[[], object]) -> Iterator[tuple[Receiver, Shipper, list[Event]]]:
    posted: list[Event] = []
    with Receiver(before) as receiver:
        where = f"grpc://127.0.0.1:{receiver.port}"
        rest = (posted.append, lambda *_: None, Quiet(), STUCK_SECONDS)
        shipper = Shipper("a", "b", Large(), lambda: where, Security(), Links(), *rest)
        shipper.start()
        try:
            yield receiver, shipper, posted
        finally:
            shipper.close()


def wait_for(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_slow_receiver_has_it_in_the_end() -> None:
    with sending(lambda: time.sleep(0.03)) as (receiver, shipper, posted):
        began = time.monotonic()
        shipper.ship(asked(1))
        wait_for(lambda: posted or shipper.total.checkpoints)
        took = time.monotonic() - began
        assert not posted
        assert receiver.took == [PIECES]
        assert took > STUCK_SECONDS, "it took longer in all than one piece may"


def test_it_is_called_off_where_nothing_gets_out_and_goes_on_when_the_receiver_does() -> None:
    may_go_on = threading.Event()
    with sending(lambda: may_go_on.wait(PATIENCE)) as (receiver, shipper, posted):
        shipper.ship(asked(1))
        wait_for(lambda: posted)
        shipper.ship(asked(2))
        (first, second) = (one for one in posted if isinstance(one, CheckpointNotSent))
        assert (first.number, first.reason) == (1, "nothing of it got out for 1.5 s")
        assert (second.number, second.reason) == (2, "the one before it is stuck")
        may_go_on.set()

        def sent() -> int:
            shipper.ship(asked(3))
            return shipper.total.checkpoints

        wait_for(sent)
        assert receiver.took[0] < PIECES, "what was called off is not sent to its end"
        assert PIECES in receiver.took[1:]
