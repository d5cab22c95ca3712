"""How many records of 100 bytes the source and the sink take a second, beside the bare library.

In: a topic with JSON values until they are tuples with ids and times, against a consumer that only
takes the values. Out: tuples with ids until they are committed records with headers, against a
transactional producer that is handed the same values as they are, without headers and without the
id that is committed with them. Both sides have the same settings of the library where these matter
(how much is fetched ahead and how soon again; how long records are gathered, compression, records
in a transaction), and both are opened before the clock starts: in, it starts with the first
records. Both sides in turn, the best of each.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import confluent_kafka as kafka
import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType

from benchmarks.kafka_broker import CALL_SECONDS, Broker
from holdfast.connect.dead_letters import DeadLetters
from holdfast.connect.ingest import Inlet
from holdfast.connect.kafka_reader import FETCHING
from holdfast.connect.kafka_sink import write_kafka
from holdfast.connect.kafka_source import read_kafka
from holdfast.connect.kafka_writer import GATHERING
from holdfast.frames import SEQ, STIME, TIME, TMAX
from holdfast.operators import SourceOperator

VALUE_BYTES = 100
COLUMNS = pa.schema(
    [pa.field("number", pa.int64()), pa.field("server", pa.string()), pa.field("text", pa.string())]
)
FLUSH_ROWS = 20_000


def measure_throughput(broker: Broker, records: int, turns: int) -> dict[str, float]:
    """Records a second in and out, and how they compare with the bare library."""
    values = [_value(number) for number in range(records)]
    table = _table(records)
    broker.create("load", 2)
    _bare_out(broker, "load", values)
    best: dict[str, float] = {}
    for turn in range(turns):
        runs: dict[str, Callable[[], float]] = {
            "bare_in": lambda: _bare_in(broker, records),
            "in": lambda: _in(broker, records),
            "bare_out": lambda turn=turn: _timed_out(broker, f"bare-{turn}", values),  # type: ignore[misc]
            "out": lambda turn=turn: _out(broker, f"out-{turn}", table),  # type: ignore[misc]
        }
        for name, run in runs.items():
            best[name] = max(best.get(name, 0.0), run())
    return {name: round(each) for name, each in best.items()}


def _value(number: int) -> bytes:
    text = json.dumps({"number": number, "server": f"s{number % 4}", "text": ""}).encode()
    return text[:-2] + b"x" * (VALUE_BYTES - len(text)) + text[-2:]


def _table(records: int) -> pa.Table:
    rows = [json.loads(_value(number)) for number in range(records)]
    times = pa.array(np.full(records, time.time_ns() // 1000)).cast(TIME)
    own = pa.Table.from_pylist(rows, COLUMNS)
    schema = pa.schema([SEQ, STIME, *COLUMNS])
    return pa.table([pa.array(np.arange(records)), times, *own.columns], schema=schema)


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
    operator = SourceOperator("load", "source 'load'", (), StructType(), "main", None, ())
    schema = pa.schema([STIME, TMAX, SEQ, *COLUMNS])
    source = read_kafka("load", servers=broker.servers)
    with tempfile.TemporaryDirectory() as directory:
        letters = DeadLetters(Path(directory) / "dead-letters.jsonl")
        inlet = Inlet(operator, schema, source, 100_000, letters)
        before, started = 0, 0.0
        while inlet.tuples < records:
            inlet.take()
            inlet.release(2**62)
            if not before:
                before, started = inlet.tuples, time.monotonic()
        taken = time.monotonic() - started
        inlet.close()
    return (records - before) / taken


def _bare_out(broker: Broker, topic: str, values: list[bytes]) -> float:
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
    started = time.monotonic()
    for first in range(0, len(values), FLUSH_ROWS):
        producer.begin_transaction()
        for value in values[first : first + FLUSH_ROWS]:
            producer.produce(topic, value)
        producer.commit_transaction(CALL_SECONDS)
    return len(values) / (time.monotonic() - started)


def _timed_out(broker: Broker, topic: str, values: list[bytes]) -> float:
    broker.create(topic, 2)
    return _bare_out(broker, topic, values)


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
