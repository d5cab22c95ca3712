"""Of the checkpoints that wait to be sent only the newest is of use."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from holdfast.core.events import CheckpointNotSent, Event
from holdfast.core.records import Checkpoint, RecoveryRecord
from holdfast.flight.links import Links
from holdfast.flight.security import Security
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
