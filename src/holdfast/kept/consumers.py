"""Which lives of its consumers a provider obeys, and who takes part, on disk
(``core.membership``)."""

from __future__ import annotations

from pathlib import Path

import msgspec

from holdfast.core.events import ConsumersKept, ConsumersNotKept
from holdfast.core.records import ConsumersRecord
from holdfast.durable import Damaged, check_format, read_document, write_document

FILE = "consumers.json"
_FORMAT = 1
# Made known by one thread, at import: see flight/wire.py.
_KNOWN = msgspec.json.Decoder(ConsumersRecord)


def read_consumers(directory: Path) -> ConsumersRecord | None:
    """What was kept below a node's directory; None if nothing ever was."""
    path = directory / FILE
    if not path.exists():
        return None
    found = read_document(path)
    check_format(path, found, _FORMAT, "use the version that wrote it, or a new data directory")
    try:
        return msgspec.convert(found["record"], ConsumersRecord)
    except (KeyError, ValueError, TypeError) as error:
        raise Damaged(path, f"it has no numbers of consumers ({error!r})") from None


def keep_consumers(directory: Path, record: ConsumersRecord) -> ConsumersKept | ConsumersNotKept:
    """Put ``record`` in the place of what was kept, durably; what came of it."""
    try:
        document = {"format": _FORMAT, "record": msgspec.to_builtins(record)}
        write_document(directory / FILE, document)
    except OSError as error:
        return ConsumersNotKept(record.number, f"{type(error).__name__}: {error}")
    return ConsumersKept(record.number)
