"""What a task that stays must not keep, leave behind or mistake."""

from __future__ import annotations

import errno
import json
import os
import pickle
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from holdfast import Network
from holdfast.spark import open_runs
from holdfast.spark.column_task import ColumnTask
from holdfast.spark.engine import Bucket, Engine
from holdfast.spark.faults import explain_job, is_no_room, is_user_code
from holdfast.spark.open_runs import open_run
from holdfast.spark.resident import Resident, ResidentLost
from holdfast.spark.resident_task import DONE, Does, Order, ResidentTask
from holdfast.spark.runs import write_run
from holdfast.spark.state import EMPTY
from holdfast.spark.version import Version
from holdfast.testing import tuples
from tests.spark.residents import SECOND, Places, bucket, own_residents, sums

OURS = 'File "/somewhere/holdfast/spark/runs.py", line 3, in write_run\n'
THEIRS = 'File "/home/them/query.py", line 3, in keep\n'


@pytest.fixture
def there(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[Places]:
    with own_residents(spark, monkeypatch) as made:
        yield made


def processing(spark: SparkSession, *functions: Any, state: str = "int") -> Engine:
    network = Network("own", bucket="1 second", partitions=1, spark=spark)
    source = network.source("s", "k string, v double")
    for number, function in enumerate(functions):
        source.groupBy("k").process(function, "n long", state).output(f"out_{number}")
    return Engine(network)


def test_what_a_function_keeps_to_itself_lasts_for_a_bucket(
    spark: SparkSession, there: Places
) -> None:
    calls: list[Any] = []

    def count(key: dict[str, Any], rows: pa.Table, state: Any) -> tuple[pa.Table, Any]:
        calls.append(key)
        return pa.table({"stime": rows["stime"][:1], "n": pa.array([len(calls)])}), None

    engine = processing(spark, count)
    version, found = Version(engine), []
    for number, there.on in enumerate((True, True, False, True)):
        found.append(version.advance([bucket(engine, number)])["out_0"]["n"].to_pylist())
    assert there.jobs == 1
    # As it is in a job: what comes out does not depend on who has done which buckets before.
    assert found == [[1, 2, 3]] * 4


def test_what_a_function_counts_is_heard_of_with_each_bucket(
    spark: SparkSession, there: Places
) -> None:
    counted = spark.sparkContext.accumulator(0)

    def count(key: dict[str, Any], rows: pa.Table, state: Any) -> tuple[None, None]:
        counted.add(rows.num_rows)
        return None, None

    engine = processing(spark, count)
    version = Version(engine)
    for number in range(3):
        version.advance([bucket(engine, number)])
        assert counted.value == 5 * (number + 1)
    assert there.jobs == 3


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_process_forked_from_the_driver_ends_no_task(spark: SparkSession, there: Places) -> None:
    engine = sums(spark)
    version = Version(engine)
    version.advance([bucket(engine, 0)])
    (one,) = there.own._free
    pid = os.fork()
    if pid == 0:
        there.own.close()  # as when it exits
        os._exit(0)
    os.waitpid(pid, 0)
    one.wait_for_end(1.0)
    version.advance([bucket(engine, 1)])
    assert there.own._free == [one]


def test_files_stay_while_another_task_of_the_job_is_at_work(
    spark: SparkSession, there: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    did = str(tmp_path / "did")

    def slow(key: dict[str, Any], rows: pa.Table, state: Any) -> tuple[None, None]:
        if min(rows["v"].to_pylist()) >= 1.0:  # from the second bucket on
            time.sleep(0.5)
            with Path(did).open("a") as file:
                file.write("*")
        return None, None

    def quick(key: dict[str, Any], rows: pa.Table, state: Any) -> tuple[None, None]:
        return None, None

    engine = processing(spark, slow, quick, quick, quick)
    version = Version(engine)
    version.advance([bucket(engine, 0)])
    assert len(there.own._free) == 2, "its tasks share the functions"
    # The second has gone, and nobody has heard of it yet.
    monkeypatch.setattr(Resident, "is_usable", True)
    there.own._free[1].close()
    with pytest.raises(ResidentLost, match="let go of while it was at work"):
        version.advance([bucket(engine, 1)])
    assert Path(did).read_text() == "***", "the first was waited for"
    left = {path.name for path in engine.directory.rglob("*") if path.name.startswith("job-")}
    assert not left


@pytest.mark.parametrize(
    ("error", "found"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), True),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), True),
        (OSError(errno.EIO, "Input/output error"), False),
        (ValueError("[Errno 28] says nothing"), False),
        (PythonException(message=f"{OURS}OSError: [Errno 28] Error writing bytes"), True),
        (PythonException(message=f"{OURS}OSError: [Errno 5] Input/output error"), False),
        (PythonException(message=f"{THEIRS}OSError: [Errno 28] No space left on device"), False),
    ],
)
def test_a_full_disk_is_known_by_its_number(error: Exception, found: bool) -> None:
    assert is_no_room(error) == found


def test_a_disk_without_room_is_not_the_query_s_fault(spark: SparkSession, there: Places) -> None:
    def much(key: dict[str, Any], rows: pa.Table, state: Any) -> tuple[None, str]:
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
        return None, "x" * 200_000

    engine = processing(spark, much, state="string")
    for there.on in (True, False):
        rows = tuples(engine, "s", [(0, "a", 1.0)])
        with pytest.raises(PythonException) as raised:
            engine.advance(EMPTY, [Bucket(0, SECOND, {"s": rows})])
        assert not is_user_code(raised.value)
        assert not is_no_room(raised.value), "a limit of the process is no full disk"
        said = explain_job(raised.value)
        assert said.startswith("OSError: [Errno 27]"), said
        assert said.endswith("File too large"), "where in Arrow helps nobody"


def test_a_file_that_the_query_cannot_open_is_its_own_fault(
    spark: SparkSession, there: Places, tmp_path: Path
) -> None:
    missing = tmp_path / "model"

    def reads(key: dict[str, Any], rows: pa.Table, state: Any) -> tuple[None, str]:
        return None, missing.read_text()  # through Python's own files

    engine = processing(spark, reads, state="string")
    with pytest.raises(PythonException) as raised:
        engine.advance(EMPTY, [bucket(engine, 0)])
    assert is_user_code(raised.value)
    said = explain_job(raised.value)
    assert said.startswith("FileNotFoundError: "), said
    assert said.endswith(", in reads)"), "where in the user's own files"


@contextmanager
def task_in_a_thread(directory: Path) -> Iterator[socket.socket]:
    """The driver's end of the connection to a task that stays."""
    address = str(directory / "address")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(1)
        task = threading.Thread(target=ResidentTask(address, 0.02), args=(0, iter([0])))
        task.start()
        connection = listener.accept()[0]
    with connection:
        yield connection
    task.join(30.0)
    assert not task.is_alive()


def send(connection: socket.socket, does: Does, order: Order) -> None:
    pickled: bytes = cloudpickle.dumps(does)  # type: ignore[no-untyped-call]
    data = pickle.dumps(("job", pickled, order))
    connection.sendall(struct.pack("!Q", len(data)) + data)


class Maps(ColumnTask):
    """Looks at a run of the state."""

    def carry_out(self, order: Order) -> None:
        open_run(order.files)


def test_one_with_nothing_to_do_lets_go_of_state_that_is_gone(tmp_path: Path) -> None:
    """Or its room on the disk would never be free again."""
    path = tmp_path / "run"
    write_run(str(path), pa.table({"a": np.zeros(1 << 18)}))
    with task_in_a_thread(tmp_path) as connection:
        send(connection, Maps((), (), 1), Order(0, "", str(path)))
        assert connection.recv(1) == DONE
        assert str(path) in open_runs._large
        path.unlink()
        deadline = time.monotonic() + 30.0
        while str(path) in open_runs._large and time.monotonic() < deadline:
            time.sleep(0.01)
        assert str(path) not in open_runs._large


class Slow(ColumnTask):
    """Leaves its results where nobody waits for them any more."""

    def carry_out(self, order: Order) -> None:
        began, goes_on, output = json.loads(order.told)
        Path(began).touch()
        while not Path(goes_on).exists():
            time.sleep(0.01)
        Path(f"{output}-{order.task}").touch()


def test_what_is_done_when_nobody_waits_any_more_leaves_no_files(tmp_path: Path) -> None:
    began, goes_on, output = (tmp_path / name for name in ("began", "goes-on", "output"))
    order = Order(
        3, json.dumps([str(began), str(goes_on), str(output)]), json.dumps({"output": str(output)})
    )
    with task_in_a_thread(tmp_path) as connection:
        send(connection, Slow((), (), 1), order)
        while not began.exists():
            time.sleep(0.01)
        connection.close()
        goes_on.touch()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["address", "began", "goes-on"]
