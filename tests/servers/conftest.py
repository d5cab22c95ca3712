"""The servers that tests of sources and sinks run against: each is started once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.kafka_broker import Broker


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A Kafka broker; who kills it starts it again."""
    with Broker(tmp_path_factory.mktemp("broker")) as started:
        yield started
