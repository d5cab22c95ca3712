"""What a writer of records says when its broker holds back how far it was, without a broker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.connect import kafka_producer
from holdfast.connect.kafka_sink import write_kafka


class KafkaException(Exception):
    pass


class KafkaError:
    _TIMED_OUT, _FENCED, PRODUCER_FENCED, INVALID_PRODUCER_EPOCH = range(4)

    def code(self) -> int:
        return self._TIMED_OUT

    def str(self) -> str:
        return "timed out"


class Producer:
    def __init__(self, config: dict[str, Any]) -> None:
        pass

    def init_transactions(self, timeout: float) -> None:
        pass

    def purge(self) -> None:
        pass


class Consumer:
    """Answers only those whose isolation is among these."""

    answered: tuple[str, ...] = ()

    def __init__(self, config: dict[str, Any]) -> None:
        self._isolation = config["isolation.level"]

    def consumer_group_metadata(self) -> None:
        pass

    def committed(self, places: list[Any], timeout: float) -> list[Any]:
        if self._isolation not in self.answered:
            raise KafkaException(KafkaError())
        return places

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("answered", "says"),
    [((), "Kafka: timed out"), (("read_uncommitted",), "find-hanging")],
)
def test_a_transaction_that_hangs_is_told_from_a_broker_that_is_away(
    monkeypatch: pytest.MonkeyPatch, answered: tuple[str, ...], says: str
) -> None:
    monkeypatch.setattr(Consumer, "answered", answered)
    library = SimpleNamespace(
        Producer=Producer,
        Consumer=Consumer,
        KafkaException=KafkaException,
        KafkaError=KafkaError,
        TopicPartition=lambda topic, partition: SimpleNamespace(error=None, offset=-1),
    )
    monkeypatch.setattr(kafka_producer, "kafka", lambda: library)
    sink: Any = write_kafka("busy", servers="kafka-1:9092").known_as("me")
    writer = sink.open("busy", None, None)
    with pytest.raises(OSError, match=says):
        writer.committed()
