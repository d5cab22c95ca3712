"""The disk of a node fails at any of its writes and works again: it goes on, nothing is lost."""

from __future__ import annotations

import errno
import queue
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import disk
from holdfast.core.effects import Append, TrimLog
from holdfast.core.events import Appended, AppendFailed, Event, RecoveryRecord
from holdfast.core.settings import Keeping
from holdfast.disk import Fault
from holdfast.kept.state import RecordOnly
from holdfast.kept.stream_store import StreamStore
from holdfast.log import Durability, LogOptions
from holdfast.nodes.entry_node import EntryNode
from holdfast.producer import Producer
from tests.flight.nodes import entry_point, location, numbers
from tests.processes.test_store import SCHEMA, mark, stable

ERRORS = ("ENOSPC", "EIO", "EROFS")
INTERVAL = LogOptions(durability=Durability.INTERVAL, sync_interval_ms=1.0, segment_bytes=4096)
SECONDS = 60.0


def wait(until: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not until():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


class Kept:
    """A store with a record, driven as a replica drives it: what failed is given again."""

    def __init__(self, directory: Path, options: LogOptions) -> None:
        self.events: queue.Queue[Event] = queue.Queue()
        self.problems: dict[str, str | None] = {}
        self.store = StreamStore(
            directory / "streams",
            {"s": SCHEMA},
            options,
            self.events.put,
            RecordOnly(directory / "state", ["query"], Keeping.NOTHING),
            on_problem=self.problems.__setitem__,
        )
        self.store.start()
        self.next_id = self.number = 0

    def append(self) -> Event:
        """The next five tuples, their boundary and a record; given again until they are taken."""
        self.number += 1
        end = self.next_id + 5
        frames = (stable(self.next_id, 5), mark(end, end))
        record = RecoveryRecord(end, end, (), ())
        self.store.put(Append(self.number, (("s", frames),), record))
        event = self.events.get(timeout=SECONDS)
        if isinstance(event, Appended):
            self.next_id = end
        return event


@pytest.mark.parametrize("durability", [Durability.ALWAYS, Durability.INTERVAL])
@pytest.mark.parametrize("where", ["*/streams/*", "*manifest.json*", "*"])
@pytest.mark.parametrize("error", ERRORS)
def test_a_store_goes_on_when_the_disk_does(
    tmp_path: Path, error: str, where: str, durability: Durability
) -> None:
    options = LogOptions(durability=durability, sync_interval_ms=1.0, segment_bytes=4096)
    kept = Kept(tmp_path, options)
    for _ in range(3):
        assert isinstance(kept.append(), Appended)
    with disk.failing(Fault.named(error, where)):
        for _ in range(3):
            assert isinstance(kept.append(), AppendFailed)
            kept.store.put(TrimLog("s", 5))
    for _ in range(30):
        assert isinstance(kept.append(), Appended)
    kept.store.put(TrimLog("s", kept.next_id))
    kept.store.close()
    again = StreamStore(tmp_path / "streams", {"s": SCHEMA}, options, kept.events.put)
    logged = again.logged("s", complete=False)
    ids = [
        number
        for frame in logged.frames
        if frame.header.kind.is_data
        for number in range(frame.header.first_id, frame.header.next_id)
    ]
    assert ids == list(range(logged.first_id, kept.next_id))
    again.close()


def test_a_log_with_room_takes_what_it_is_given_once(tmp_path: Path) -> None:
    events: queue.Queue[Event] = queue.Queue()
    schemas = {"a": SCHEMA, "full": SCHEMA}
    store = StreamStore(tmp_path, schemas, INTERVAL, events.put)
    store.start()
    frames = (stable(0, 5), mark(5, 5))
    with disk.failing(Fault(errno.ENOSPC, f"{store.logs['full'].directory}*")):
        store.put(Append(1, (("a", frames), ("full", frames))))
        failed = events.get(timeout=SECONDS)
        assert isinstance(failed, AppendFailed)
        assert failed.taken == ("a",)
    store.put(Append(2, (("full", frames),)))
    assert events.get(timeout=SECONDS) == Appended(2)
    for name in schemas:
        assert [one.header for one in store.logged(name, complete=False).frames] == [
            one.header for one in frames
        ]
    store.close()


def test_a_trim_that_fails_is_told_of_and_ends_no_thread(tmp_path: Path) -> None:
    kept = Kept(tmp_path, INTERVAL)
    for _ in range(40):
        kept.append()
    with disk.failing(Fault(errno.EROFS, "*/streams/*")):
        kept.store.put(TrimLog("s", kept.next_id))
        wait(lambda: kept.problems.get("trim"), "the trim did not fail")
    assert isinstance(kept.append(), Appended)
    kept.store.put(TrimLog("s", kept.next_id))
    wait(lambda: kept.problems["trim"] is None, "the trim is not tried again")
    kept.store.close()


def all_ids(node: EntryNode) -> list[int]:
    return [
        number
        for frame in node.entry.served.stable
        for number in range(frame.header.first_id, frame.header.next_id)
    ]


@pytest.mark.parametrize("error", ERRORS)
def test_producers_are_acknowledged_once_there_is_room_again(tmp_path: Path, error: str) -> None:
    with entry_point(tmp_path) as node:
        producer = Producer("load", location(node), name="p")
        producer.send(numbers(0, 10))
        producer.flush(SECONDS)
        with disk.failing(Fault.named(error)):
            for first in range(10, 60, 10):
                producer.send(numbers(first, 10))
            wait(lambda: node.problems.texts, "nothing is said")
            boundary = node.entry.served.boundary
            assert "It is tried again" in " ".join(node.status()["problems"])
        producer.flush(SECONDS)
        wait(lambda: node.entry.served.boundary > boundary, "boundaries stand still")
        wait(lambda: not node.problems.texts, "it is still said")
        producer.send(numbers(60, 10))
        producer.close(SECONDS)
        assert all_ids(node) == list(range(70))
    with entry_point(tmp_path) as again:
        assert all_ids(again) == list(range(70))
