"""A replica's node without Spark, for tests of what it is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from holdfast.core.effects import Append, Effect, OfAll, OfServing, TrimLog
from holdfast.core.replica import Replica
from holdfast.core.settings import ReplicaSettings
from holdfast.flight.security import Security
from holdfast.frames import stream_schema
from holdfast.nodes.hosted import Place
from holdfast.nodes.node import Node

SCHEMA = stream_schema(pa.schema([("number", pa.int64())]))


class NoStore:
    """A disk that takes everything and keeps nothing."""

    def start(self) -> None:
        pass

    def close(self) -> None:
        pass

    def put(self, order: Append | TrimLog) -> None:
        pass

    def call(self, work: Callable[[], None]) -> None:
        work()

    @property
    def turn(self) -> int | None:
        return None

    @property
    def sizes(self) -> Mapping[str, int]:
        return {}


class BareNode(Node):
    """The driver of a replica in its loop, behind its server; jobs are never run."""

    kind = "replica"

    def __init__(self, settings: ReplicaSettings, directory: Path, book: dict[str, str]) -> None:
        self.broken: list[BaseException] = []
        schemas = {one.stream: SCHEMA for one in settings.outputs}
        place = Place("127.0.0.1", 0, book, Security())
        super().__init__(settings.address, place, schemas, directory, self.broken.append)
        self.listen_to(settings.partners)
        self.store = NoStore()  # type: ignore[assignment]
        self.replica = Replica(settings)
        self.loop = self.make_loop(self.replica)

    def carry_out(self, effect: Effect) -> None:
        if isinstance(effect, OfAll | OfServing):
            self.carry_out_common(effect)


@contextmanager
def running(node: Node) -> Iterator[Node]:
    node.start()
    try:
        yield node
    finally:
        node.stop()


def location(node: Node) -> str:
    return node.place.security.location("127.0.0.1", node.port)
