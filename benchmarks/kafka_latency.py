"""How long a record takes from one topic to another, through a deployment, exactly once.

3,000 records a second, each with the time it was made; its latency is taken where a bare consumer
of committed records sees the result. The stateless output passes every record on, the stateful one
removes doubles within ten seconds, and passes every record on at once, too.

Where the time goes is taken from what the records carry: when the entry point had them (the tuple
time), and when the broker had the result (its own clock).

    in       until the entry point has the record: gathering at the producer, fetching
    through  until the result is in the topic: the log, the bucket, its job, the log of the output,
             what a client gathers, and sending
    commit   until a consumer of committed records sees it: the end of the transaction, fetching
"""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import confluent_kafka as kafka
import numpy as np

from benchmarks.kafka_broker import Broker
from benchmarks.kafka_pipeline import Sender, Servers, pipeline, reading

PER_SECOND = 3_000
WARM_SECONDS = 15.0
PARTS = ("in", "through", "commit")
OUTPUTS = {"passed": "stateless", "unique": "stateful"}


class Watch:
    """Reads a topic and notes how old records are when they come."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self.ages: list[int] = []
        # Of each: how long each part took, in microseconds.
        self.parts: list[tuple[int, int, int]] = []
        self.seen = 0
        self._stopping = threading.Event()
        self._consumer = kafka.Consumer(
            {
                "bootstrap.servers": broker.servers,
                "group.id": "watch",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 5,
                "log_level": 0,
            }
        )
        places = [kafka.TopicPartition(topic, each, 0) for each in broker.partitions(topic)]
        self._consumer.assign(places)
        self.counts = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> dict[str, Any]:
        """What it noted, in milliseconds."""
        self._stopping.set()
        self._thread.join(30.0)
        self._consumer.close()
        parts = np.median(np.array(self.parts), axis=0) / 1000
        return {
            "p50_ms": round(float(np.percentile(self.ages, 50)) / 1000, 1),
            "p99_ms": round(float(np.percentile(self.ages, 99)) / 1000, 1),
            "parts_p50_ms": {
                name: round(float(each), 1) for name, each in zip(PARTS, parts, strict=True)
            },
            "records": len(self.ages),
        }

    def _run(self) -> None:
        while not self._stopping.is_set():
            for message in self._consumer.consume(500, 0.01):
                if message.error() is not None:
                    continue
                self.seen += 1
                if self.counts:
                    self._note(message, time.time_ns() // 1000)

    def _note(self, message: Any, seen: int) -> None:
        made = json.loads(message.value())["made"]
        stime = int(dict(message.headers())["holdfast-stime"])
        appended = message.timestamp()[1] * 1000
        self.ages.append(seen - made)
        self.parts.append((stime - made, appended - stime, seen - appended))


def measure_latency(servers: Servers, seconds: float) -> dict[str, Any]:
    """p50 and p99 in milliseconds, by kind of query."""
    with pipeline(servers, bucket="20 ms"):
        watches = {topic: Watch(servers.broker, topic) for topic in OUTPUTS}
        sender = Sender(servers.broker, PER_SECOND, reading)
        deadline = time.monotonic() + 120.0
        while not all(each.seen for each in watches.values()):
            if time.monotonic() > deadline:
                raise TimeoutError("no results came")
            time.sleep(0.1)
        time.sleep(WARM_SECONDS)
        for each in watches.values():
            each.counts = True
        time.sleep(seconds)
        found = {OUTPUTS[topic]: each.stop() for topic, each in watches.items()}
        sender.stop()
    return found
