"""Which lives of its consumers a provider obeys, and who takes part, on disk
(``core.membership``)."""

from __future__ import annotations

from pathlib import Path

from holdfast.core.events import ConsumersKept, ConsumersNotKept
from holdfast.core.records import ConsumersRecord, Membership
from holdfast.durable import Damaged, read_document, write_document
from holdfast.flight.wire import decode_membership, plain_membership

FILE = "consumers.json"


def read_consumers(directory: Path) -> ConsumersRecord | None:
    """What was kept below a node's directory; None if nothing ever was."""
    path = directory / FILE
    if not path.exists():
        return None
    found = read_document(path)
    try:
        lives = tuple((str(name), int(number)) for name, number in found["lives"].items())
        membership = found.get("membership")  # an earlier version knew of none
        taking_part = Membership() if membership is None else decode_membership(membership)
        return ConsumersRecord(int(found["number"]), lives, taking_part)
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise Damaged(path, f"it has no numbers of consumers ({error!r})") from None


def keep_consumers(directory: Path, record: ConsumersRecord) -> ConsumersKept | ConsumersNotKept:
    """Put ``record`` in the place of what was kept, durably; what came of it."""
    try:
        document = {
            "number": record.number,
            "lives": dict(record.lives),
            "membership": plain_membership(record.membership),
        }
        write_document(directory / FILE, document)
    except OSError as error:
        return ConsumersNotKept(record.number, f"{type(error).__name__}: {error}")
    return ConsumersKept(record.number)
