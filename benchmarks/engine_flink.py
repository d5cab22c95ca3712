"""Flink for benchmark engine: the same query over the same Parquet files, as fast as it can.

Runs with the Python of Flink's own environment (``scripts/flink``), so it imports nothing but
PyFlink. The cluster is the one PyFlink starts in its JVM, with two slots, the state on the heap
(the quickest of its stores), objects used again, no checkpoints, and results thrown away. Reads
one order a line on standard input, answers one line of JSON on standard output.

How far a job has come is asked of it several times a second; the figure is what it does once the
first third of the tuples is behind it. Tuples that it dropped because they came late would have
cost it nothing, so there must be none: where one reader was too far ahead of the other, the job is
run once more, and its watermarks wait for a second more of the tuples' time with each attempt.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import socket
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

POLL_SECONDS = 0.2
ATTEMPTS = 5
SETTINGS = {
    "parallelism.default": "2",
    "taskmanager.numberOfTaskSlots": "2",
    "taskmanager.memory.managed.size": "1g",
    "taskmanager.memory.network.min": "128m",
    "taskmanager.memory.network.max": "128m",
    "pipeline.object-reuse": "true",
    "table.local-time-zone": "UTC",
    "metrics.fetcher.update-interval": "200",
}
FILES = """
CREATE TABLE sales (
  `at` TIMESTAMP(3), item BIGINT, price INT, WATERMARK FOR `at` AS `at` - INTERVAL '{late}' SECOND
) WITH ('connector' = 'filesystem', 'path' = 'file://{path}', 'format' = 'parquet',
      'parquet.utc-timezone' = 'true')
"""
NOTHING = """
CREATE TABLE nothing (began TIMESTAMP(3), item BIGINT, total BIGINT, sales BIGINT)
WITH ('connector' = 'blackhole')
"""
QUERY = """
SELECT window_start, item, SUM(CAST(price AS BIGINT)) AS total, COUNT(*) AS sales
FROM TABLE(TUMBLE(TABLE sales, DESCRIPTOR(`at`), INTERVAL '{seconds}' SECOND))
GROUP BY window_start, window_end, item
"""


class Flink:
    """The query as Flink's SQL has it."""

    def __init__(self) -> None:
        from pyflink.common import Configuration
        from pyflink.table import EnvironmentSettings, TableEnvironment

        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        settings = Configuration()
        for key, value in {**SETTINGS, "rest.port": str(self._port)}.items():
            settings.set_string(key, value)
        built = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(settings)
        self._tables = TableEnvironment.create(built.build())
        self._tables.execute_sql(NOTHING)

    def run(self, order: dict[str, Any]) -> dict[str, Any]:
        case = order["case"]
        query = QUERY.format(seconds=order["window_s"])
        self._tables.execute_sql("DROP TABLE IF EXISTS sales")
        if order.get("rows"):
            # So little that one reader may take both files, one after the other.
            self._tables.execute_sql(FILES.format(path=order["halves"], late=99))
            return {"rows": self._rows(query)}
        for late in range(ATTEMPTS):
            self._tables.execute_sql("DROP TABLE IF EXISTS sales")
            self._tables.execute_sql(FILES.format(path=order["halves"], late=late))
            job = self._tables.execute_sql(f"INSERT INTO nothing {query}")
            progress, dropped = self._watch(str(job.get_job_client().get_job_id()))
            job.wait()
            if not dropped:
                return warm_rate(progress, case["tuples"] * case["buckets"])
            print(f"Flink, attempt {late + 1}: {dropped:,.0f} tuples were dropped", file=sys.stderr)
        raise SystemExit(f"tuples came late in each of {ATTEMPTS} attempts")

    def _rows(self, query: str) -> list[Any]:
        with self._tables.execute_sql(query).collect() as found:
            rows = [list(row) for row in found]
        return sorted([_seconds(start), *rest] for start, *rest in rows)

    def _watch(self, job: str) -> tuple[list[tuple[float, int]], float]:
        """When it had read how many tuples, and how many it has dropped.

        Its cluster goes when the job is done.
        """
        seen: list[tuple[float, int]] = []
        dropped = 0.0
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            while True:
                begin = time.perf_counter()
                vertices = self._ask(f"/jobs/{job}")["vertices"]
                seen.append((begin, vertices[0]["metrics"]["read-records"]))
                for vertex in vertices:
                    path = f"/jobs/{job}/vertices/{vertex['id']}/subtasks/metrics"
                    dropped = max(dropped, self._late(path))
                time.sleep(POLL_SECONDS)
        return seen, dropped

    def _late(self, path: str) -> float:
        names = [each["id"] for each in self._ask(path)]
        late = [name for name in names if name.endswith("numLateRecordsDropped")]
        told = [self._ask(f"{path}?agg=sum&get={urllib.parse.quote(name)}") for name in late]
        return max((one[0]["sum"] for one in told if one), default=0.0)

    def _ask(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=10) as reply:
            return json.load(reply)


def _seconds(start: datetime.datetime) -> float:
    return start.replace(tzinfo=datetime.UTC).timestamp()


def warm_rate(progress: list[tuple[float, int]], tuples: int) -> dict[str, Any]:
    """Tuples a second from the first third on, from when it had read how many."""
    moved = [progress[0]]
    for at, read in progress:
        if read > moved[-1][1]:
            moved.append((at, read))
    warm = [each for each in moved if each[1] >= tuples / 3]
    if len(warm) < 3 or warm[-1][1] < 0.9 * tuples:
        raise SystemExit(f"the job was seen to read {moved[-1][1]:,} of {tuples:,} tuples")
    (begin, first), (end, last) = warm[0], warm[-1]
    return {"tuples_s": (last - first) / (end - begin)}


def main() -> None:
    flink = Flink()
    for line in sys.stdin:
        print(json.dumps(flink.run(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
