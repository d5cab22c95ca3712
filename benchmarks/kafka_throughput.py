"""How many records of 100 bytes the source and the sink take a second, beside the bare library.

In: a topic with JSON values until they are tuples with ids and times, against a consumer that only
takes the values. Out: tuples with ids until they are committed records with headers, against a
transactional producer that is handed the same values as they are, without headers and without the
id that is committed with them; and, to know what headers cost by themselves, against one that is
handed values, times and headers that were made before. All have the same settings of the library
where these matter (how much is fetched ahead and how soon again; how long records are gathered,
compression, records in a transaction), and are opened before the clock starts: in, it starts with
the first records.

What a machine gives varies from second to second, and less between neighbours. So they take turns,
every other turn in the opposite order, and the ratio is the median of the turns' own ratios.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import confluent_kafka as kafka
import numpy as np
import pyarrow as pa

from benchmarks.kafka_broker import CALL_SECONDS, Broker
from holdfast.connect.dead_letters import DeadLetters
from holdfast.connect.ingest import Inlet
from holdfast.connect.kafka_producer import GATHERING
from holdfast.connect.kafka_reader import FETCHING
from holdfast.connect.kafka_sink import write_kafka
from holdfast.connect.kafka_source import read_kafka
from holdfast.connect.kafka_writer import (
    ID_HEADER,
    STABILITY_HEADER,
    STABLE,
    STIME_HEADER,
)
from holdfast.frames import SEQ, STIME, TIME, TMAX
from holdfast.operators import Declaration

VALUE_BYTES = 100
COLUMNS = pa.schema(
    [pa.field("number", pa.int64()), pa.field("server", pa.string()), pa.field("text", pa.string())]
)
FLUSH_ROWS = 20_000
Headers = dict[str, str | bytes | None]
# The time of all records, in milliseconds.
STAMP = time.time_ns() // 1_000_000


@dataclass(frozen=True)
class Throughput:
    """Records a second of each turn, by what was measured."""

    turns: dict[str, list[float]]

    def median(self, name: str) -> int:
        return round(statistics.median(self.turns[name]))

    def best(self, name: str) -> int:
        return round(max(self.turns[name]))

    def ratio(self, name: str, bare: str) -> float:
        """The median of the turns' own ratios."""
        pairs = zip(self.turns[name], self.turns[bare], strict=True)
        return round(statistics.median(own / other for own, other in pairs), 2)

    def ratio_of_bests(self, name: str, bare: str) -> float:
        return round(self.best(name) / self.best(bare), 2)


def measure_throughput(broker: Broker, records: int, turns: int) -> Throughput:
    """In and out, and of the bare library."""
    values = [_value(number) for number in range(records)]
    table = _table(records)
    headers = _headers(table)
    broker.create("load", 2)
    _bare_out(broker, "load", values)
    found: dict[str, list[float]] = {}
    for turn in range(turns):
        runs: dict[str, Callable[[], float]] = {
            "bare_in": partial(_bare_in, broker, records),
            "in": partial(_in, broker, records),
            "bare_out": partial(_timed_out, broker, f"bare-{turn}", values),
            "out": partial(_out, broker, f"out-{turn}", table),
            "bare_out_headers": partial(_timed_out, broker, f"headers-{turn}", values, headers),
        }
        order = [*runs.items()]
        for name, run in reversed(order) if turn % 2 else order:
            found.setdefault(name, []).append(run())
    return Throughput(found)


def _value(number: int) -> bytes:
    text = json.dumps({"number": number, "server": f"s{number % 4}", "text": ""}).encode()
    return text[:-2] + b"x" * (VALUE_BYTES - len(text)) + text[-2:]


def _table(records: int) -> pa.Table:
    rows = [json.loads(_value(number)) for number in range(records)]
    times = pa.array(np.full(records, STAMP * 1000)).cast(TIME)
    own = pa.Table.from_pylist(rows, COLUMNS)
    schema = pa.schema([SEQ, STIME, *COLUMNS])
    return pa.table([pa.array(np.arange(records)), times, *own.columns], schema=schema)


def _headers(table: pa.Table) -> list[Headers]:
    """What the sink gives each record besides its value."""
    stimes = table["stime"].cast(pa.int64()).to_pylist()
    return [
        {STIME_HEADER: b"%d" % stime, STABILITY_HEADER: STABLE, ID_HEADER: b"%d" % number}
        for number, stime in enumerate(stimes)
    ]


def _bare_in(broker: Broker, records: int) -> float:
    """Records a second."""
    consumer = kafka.Consumer(
        {
            "bootstrap.servers": broker.servers,
            **FETCHING,
            "group.id": "bare",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    consumer.assign([kafka.TopicPartition("load", each, 0) for each in (0, 1)])
    seen = before = 0
    started = 0.0
    while seen < records:
        seen += len([each.value() for each in consumer.consume(20_000, 1.0)])
        if not before:
            before, started = seen, time.monotonic()
    taken = time.monotonic() - started
    consumer.close()
    return (records - before) / taken


def _in(broker: Broker, records: int) -> float:
    """Records a second."""
    declared = Declaration("load", None, ())
    schema = pa.schema([STIME, TMAX, SEQ, *COLUMNS])
    source = read_kafka("load", servers=broker.servers)
    with tempfile.TemporaryDirectory() as directory:
        letters = DeadLetters(Path(directory) / "dead-letters.jsonl")
        inlet = Inlet(declared, schema, source, 100_000, letters)
        before, started = 0, 0.0
        while inlet.tuples < records:
            inlet.take()
            inlet.release(2**62)
            if not before:
                before, started = inlet.tuples, time.monotonic()
        taken = time.monotonic() - started
        inlet.close()
    return (records - before) / taken


def _bare_out(
    broker: Broker, topic: str, values: list[bytes], headers: list[Headers] | None = None
) -> float:
    """Records a second."""
    producer = kafka.Producer(
        {
            "bootstrap.servers": broker.servers,
            "transactional.id": f"bare-{topic}",
            **GATHERING,
            "log_level": 0,
        }
    )
    producer.init_transactions(CALL_SECONDS)
    produce = producer.produce
    started = time.monotonic()
    for first in range(0, len(values), FLUSH_ROWS):
        producer.begin_transaction()
        some = slice(first, first + FLUSH_ROWS)
        if headers is None:
            for value in values[some]:
                produce(topic, value)
        else:
            for value, each in zip(values[some], headers[some], strict=True):
                produce(topic, value, None, -1, None, None, STAMP, each)
        producer.commit_transaction(CALL_SECONDS)
    return len(values) / (time.monotonic() - started)


def _timed_out(
    broker: Broker, topic: str, values: list[bytes], headers: list[Headers] | None = None
) -> float:
    broker.create(topic, 2)
    return _bare_out(broker, topic, values, headers)


def _out(broker: Broker, topic: str, table: pa.Table) -> float:
    """Records a second."""
    broker.create(topic, 2)
    sink = write_kafka(topic, servers=broker.servers).known_as("bench")
    writer = sink.open("out", COLUMNS, None)
    # What opening takes is not what is measured.
    writer.write(table.slice(0, 0))
    writer.committed()  # type: ignore[attr-defined]
    started = time.monotonic()
    for first in range(0, table.num_rows, FLUSH_ROWS):
        writer.write(table.slice(first, FLUSH_ROWS))
        writer.flush()
    taken = time.monotonic() - started
    writer.close()
    return float(table.num_rows / taken)
