"""A transactional producer of records, which is made anew after a failure.

No call waits without end, though the library has calls that can: each runs in a thread that is left
behind if it does not come back.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from holdfast.connect.kafka_client import CALL_SECONDS, kafka
from holdfast.errors import StateError

# How records are gathered on their way to a broker.
GATHERING = {
    "linger.ms": 2,
    "compression.type": "lz4",
    "queue.buffering.max.kbytes": 262_144,
}
_ANY_PARTITION = -1
Key = str | bytes | None
Headers = dict[str, bytes]
# Value, key, time in milliseconds, headers.
Record = tuple[bytes | None, Key, int, Headers]
_HANGS = (
    "Kafka holds back how far topic {!r} was written as {!r}, for a transaction that it has "
    "neither committed nor aborted and does not know of any more, and with it the topic's readers "
    "of committed records. See kafka-transactions.sh find-hanging"
)
_HANGS_SECONDS = 3.0
# A library call gets its own time limit, and a little more before it is left behind.
_LEFT_BEHIND_SECONDS = CALL_SECONDS + 5.0


class Producer:
    """A transactional producer, and a thread of its own that calls it."""

    def __init__(self, config: dict[str, Any], name: str) -> None:
        self._name = name
        self._config = config
        # Of the group that has the ids; known once they were asked for.
        self._metadata: Any = None
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], queue.SimpleQueue[Any]] | None]
        self._calls = queue.SimpleQueue()
        self.library = kafka().Producer(
            {
                **GATHERING,
                # The same partitions as the clients of Java and Spark choose.
                "partitioner": "murmur2_random",
                **config,
                "transactional.id": name,
                "transaction.timeout.ms": 60_000,
                "acks": "all",
            }
        )
        threading.Thread(target=self._serve, name=f"kafka {name}", daemon=True).start()

    def call(self, what: Callable[[], Any]) -> Any:
        """The answer; OSError if it fails or does not come, and then this one is of no more use."""
        answer: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._calls.put((what, answer))
        try:
            found = answer.get(timeout=_LEFT_BEHIND_SECONDS)
        except queue.Empty:
            self._calls.put(None)
            raise ConnectionError("Kafka's client does not come back; a new one is made") from None
        if isinstance(found, BaseException):
            self.close()
            raise self._explained(found)
        return found

    def produce(self, topic: str, records: Iterable[Record]) -> None:
        """Hand over records; waits while the library's queue is full.

        One call each: the library has none that takes many with headers. Arguments by place, which
        it reads faster than names.
        """
        produce = self.library.produce
        for value, key, stamp, headers in records:
            try:
                produce(topic, value, key, _ANY_PARTITION, None, None, stamp, headers)
            except BufferError:
                self._wait_for_room(
                    partial(produce, topic, value, key, _ANY_PARTITION, None, None, stamp, headers)
                )

    def _wait_for_room(self, produce: Callable[[], None]) -> None:
        deadline = time.monotonic() + CALL_SECONDS
        while True:
            self.library.poll(0.01)
            try:
                return produce()
            except BufferError:
                if time.monotonic() > deadline:
                    raise ConnectionError("Kafka takes no more records") from None

    def close(self) -> None:
        """Let it go; what is open in it is taken back by the broker or by the next one."""
        self._calls.put(None)

    def found(self, topic: str, owner: str) -> int:
        """The id that was committed last by this owner."""
        consumer = self._consumer("read_committed")
        try:
            self._metadata = consumer.consumer_group_metadata()
            (place,) = consumer.committed([kafka().TopicPartition(topic, 0)], CALL_SECONDS)
        except kafka().KafkaException as error:
            if error.args[0].code() == kafka().KafkaError._TIMED_OUT and self._hangs(topic):
                raise ConnectionError(_HANGS.format(topic, self._name)) from None
            raise
        finally:
            consumer.close()
        if place.error is not None:
            raise kafka().KafkaException(place.error)
        return int(place.offset) if place.offset >= 0 and place.metadata == owner else 0

    def _hangs(self, topic: str) -> bool:
        """Whether the broker answers, and only holds back what a transaction has to decide.

        There is none open by then: it told this producer so. One that it lost sight of stays.
        """
        consumer = self._consumer("read_uncommitted")
        try:
            consumer.committed([kafka().TopicPartition(topic, 0)], _HANGS_SECONDS)
        except kafka().KafkaException:
            return False
        finally:
            consumer.close()
        return True

    def _consumer(self, isolation: str) -> Any:
        return kafka().Consumer(
            {**self._config, "group.id": self._name, "isolation.level": isolation}
        )

    def keep(self, topic: str, next_id: int, owner: str) -> None:
        """Commit the id with the transaction that is open."""
        place = kafka().TopicPartition(topic, 0, next_id, metadata=owner)
        self.library.send_offsets_to_transaction([place], self._metadata, CALL_SECONDS)

    def _serve(self) -> None:
        """Its thread: also what takes the time to let it go."""
        while (call := self._calls.get()) is not None:
            what, answer = call
            try:
                answer.put(what())
            except BaseException as error:
                answer.put(error)
        self.library.purge()
        del self.library

    def _explained(self, error: BaseException) -> BaseException:
        module = kafka()
        if not isinstance(error, module.KafkaException):
            return error
        codes, found = module.KafkaError, error.args[0]
        fenced = (codes._FENCED, codes.PRODUCER_FENCED, codes.INVALID_PRODUCER_EPOCH)
        if found.code() in fenced:
            return StateError(
                f"another writer has taken over as {self._name!r}; there must be one only. Give "
                f"them different names: transactional_id=..."
            )
        return ConnectionError(f"Kafka: {found.str()}")
