"""What a topic is at the moment: its id, its partitions, and where they end.

It is asked again and again, without waiting: ``look`` gives what has been answered since. A topic
that is not there yet, or a cluster that does not answer, is a problem that passes.
"""

from __future__ import annotations

import time
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from holdfast.connect.extras import library
from holdfast.connect.kafka_client import CALL_SECONDS, Config, client_config, kafka

REFRESH_SECONDS = 1.0


@dataclass(frozen=True)
class TopicState:
    """The id is another one if the topic was deleted and made again.

    ends  by partition, where they ended when they were asked; only if that was wanted.
    """

    topic_id: str
    partitions: tuple[int, ...]
    ends: dict[int, int]


class TopicWatch:
    """Asks for a topic's state."""

    def __init__(self, topic: str, servers: str, config: Config | str | None, ends: bool) -> None:
        """``ends``: as ``want_ends``."""
        self._admin_module = library("confluent_kafka.admin", "kafka")
        self._admin = self._admin_module.AdminClient(client_config(servers, config))
        self._topic = topic
        self._servers = servers
        self._asked_at = -REFRESH_SECONDS
        self._described: Future[Any] | None = None
        self._description: Any = None
        self._wants_ends = ends
        self._ends: dict[Any, Future[Any]] = {}
        self.problem: str | None = f"no answer yet from {servers}"

    def soon(self) -> None:
        """Something points to a change: do not wait for the next time."""
        self._asked_at = min(self._asked_at, time.monotonic() - REFRESH_SECONDS + 0.1)

    def want_ends(self) -> None:
        """Ask at the next time also where the partitions end; until then nothing is answered."""
        self._wants_ends = True

    def look(self) -> TopicState | None:
        """What was answered since the last look, if anything was."""
        if self._ends:
            return self._take_ends()
        if self._described is None:
            if time.monotonic() - self._asked_at >= REFRESH_SECONDS:
                self._ask()
            return None
        if not self._described.done():
            return None
        described, self._described = self._described, None
        try:
            description = described.result()
        except kafka().KafkaException as error:
            self.problem = self._explained(error.args[0])
            return None
        self._description = description
        if self._wants_ends:
            self._ask_ends([each.id for each in description.partitions])
            return None
        self.problem = None
        return self._state({})

    def _ask(self) -> None:
        self._asked_at = time.monotonic()
        topics = kafka().TopicCollection([self._topic])
        asked = self._admin.describe_topics(topics, request_timeout=CALL_SECONDS)
        self._described = asked[self._topic]

    def _ask_ends(self, partitions: list[int]) -> None:
        module = self._admin_module
        spec = {
            kafka().TopicPartition(self._topic, number): module.OffsetSpec.latest()
            for number in partitions
        }
        self._ends = self._admin.list_offsets(
            spec,
            isolation_level=kafka().IsolationLevel.READ_COMMITTED,
            request_timeout=CALL_SECONDS,
        )

    def _take_ends(self) -> TopicState | None:
        if not all(each.done() for each in self._ends.values()):
            return None
        asked, self._ends = self._ends, {}
        try:
            ends = {each.partition: int(found.result().offset) for each, found in asked.items()}
        except kafka().KafkaException as error:
            self.problem = self._explained(error.args[0])
            return None
        self._wants_ends, self.problem = False, None
        return self._state(ends)

    def _state(self, ends: dict[int, int]) -> TopicState:
        partitions = tuple(sorted(each.id for each in self._description.partitions))
        return TopicState(str(self._description.topic_id), partitions, ends)

    def _explained(self, error: Any) -> str:
        if error.code() == kafka().KafkaError.UNKNOWN_TOPIC_OR_PART:
            return (
                f"there is no topic {self._topic!r} at {self._servers}; it is read as soon as "
                f"somebody makes it"
            )
        return f"{self._servers}: {error.str()}; it is asked again"
