"""Tasks that stay give what jobs give, and what goes wrong in one is Spark's to tell."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from holdfast import Network
from holdfast.spark import engine as engines
from holdfast.spark import resident
from holdfast.spark.engine import Bucket, Engine, Sharding
from holdfast.spark.faults import explain_job, is_user_code
from holdfast.spark.resident import Resident, ResidentLost, Residents, places
from holdfast.spark.resident_task import ResidentTask
from holdfast.spark.state import EMPTY
from holdfast.spark.version import Version
from holdfast.spark.warming import warm_up, warm_up_apart
from holdfast.testing import tuples
from tests.spark.residents import SECOND, SECONDS, Places, bucket, ordered, own_residents, sums


@pytest.fixture
def there(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[Places]:
    with own_residents(spark, monkeypatch) as made:
        yield made


@pytest.mark.parametrize("queries", [1, 4])
def test_buckets_as_orders_and_as_jobs_give_the_same(
    spark: SparkSession, there: Places, queries: int
) -> None:
    engine = sums(spark, queries)
    ordered, mixed = Version(engine), Version(engine)
    for number in range(8):
        there.on = True
        expected = ordered.advance([bucket(engine, number)])
        there.on = number % 2 == 0
        found = mixed.advance([bucket(engine, number)])
        assert there.jobs == (number + 1) // 2
        for name, table in expected.items():
            assert found[name].equals(table)
    # One for each task, for all buckets: with four queries two tasks share them.
    assert len(there.own._free) == there.own._count == min(queries, 2)


def test_others_keep_as_many_places_as_there_are_cores(spark: SparkSession) -> None:
    context = spark.sparkContext
    assert context.defaultParallelism == 2
    assert context.master == f"local[{places(2)}]"
    assert Residents(context)._most == places(2) - 2


@pytest.mark.parametrize("master", ["local[2]", "local[*]", "spark://elsewhere:7077"])
def test_a_session_of_somebody_else_s_has_jobs_only(master: str) -> None:
    class Theirs:
        defaultParallelism = 2

        def getConf(self) -> dict[str, str]:
            return {"spark.python.unix.domain.socket.dir": "/somewhere"}

    theirs: Any = Theirs()
    theirs.master = master
    with Residents(theirs).taken(1) as found:
        assert not found


def test_what_the_query_raises_is_told_by_spark_and_the_next_bucket_goes_on(
    spark: SparkSession, there: Places
) -> None:
    def picky(key: dict[str, Any], rows: pa.Table, state: Any) -> tuple[pa.Table, Any]:
        if min(rows["v"].to_pylist()) < 0:
            # Errors of sockets and files, too, are the query's and not the way's.
            raise ConnectionResetError("below zero")
        return rows.select(["stime", "v"]), None

    network = Network("picky", bucket="1 second", partitions=1, spark=spark)
    source = network.source("s", "k string, v double")
    source.groupBy("k").process(picky, "v double", "int").output("out")
    engine = Engine(network)
    said = []
    for there.on in (True, False):
        rows = tuples(engine, "s", [(0, "a", -1.0)])
        with pytest.raises(PythonException) as raised:
            engine.advance(EMPTY, [Bucket(0, SECOND, {"s": rows})])
        assert is_user_code(raised.value)
        said.append(explain_job(raised.value))
    assert said[0] == said[1]
    assert said[0].startswith("ConnectionResetError: below zero (test_resident.py, line")
    assert there.own._count == 0
    there.on, there.jobs = True, 0
    done = engine.advance(EMPTY, [bucket(engine, 0)])
    assert done.outputs["out"].num_rows == 5
    assert there.jobs == 0


def test_a_task_whose_worker_is_killed_is_replaced(
    spark: SparkSession, there: Places, tmp_path: Path
) -> None:
    engine = sums(spark)
    version = Version(engine)
    version.advance([bucket(engine, 0)])
    (one,) = there.own._free
    pid = tmp_path / "pid"
    assert ordered(one, lambda: pid.write_text(str(os.getpid())))
    os.kill(int(pid.read_text()), signal.SIGKILL)  # while it has nothing to do
    one.wait_for_end(30.0)
    version.advance([bucket(engine, 1)])
    (another,) = there.own._free
    assert another is not one
    with pytest.raises(Exception, match="crashed") as raised, there.own.taken(1) as found:
        ordered(found[0], lambda: os.kill(os.getpid(), signal.SIGKILL))  # at work
    assert not is_user_code(raised.value)
    assert there.own._count == 0
    version.advance([bucket(engine, 2)])
    assert there.jobs == 0


def test_what_a_task_cannot_load_is_a_job(spark: SparkSession, there: Places) -> None:
    engine = sums(spark)
    version = Version(engine)
    version.advance([bucket(engine, 0)])
    (stage,) = engine._column_runner()._stages[False]
    (job,) = stage.jobs.values()
    job._name, job._pickled = "another", b"no pickle"
    version.advance([bucket(engine, 1)])
    assert there.jobs == 1
    assert len(there.own._free) == 1


def test_nobody_waits_for_a_task_that_is_busy(spark: SparkSession, there: Places) -> None:
    one, other = Version(sums(spark)), Version(sums(spark))
    for each in (one, other):
        each.advance([bucket(each.engine, 0)])
    with there.own.taken(2) as found:
        assert len(found) == 2
        one.advance([bucket(one.engine, 1)])  # as a job
    assert there.jobs == 1
    # Two at once: each has its own.
    threads = [
        threading.Thread(target=each.advance, args=([bucket(each.engine, 1 + (each is one))],))
        for each in (one, other)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
    assert (one.boundary, other.boundary) == (3 * SECOND, 2 * SECOND)
    assert there.jobs == 1


def test_who_warms_up_to_stand_by_has_tasks_of_its_own(spark: SparkSession, there: Places) -> None:
    one, other = sums(spark), sums(spark)
    warm_up_apart(one)
    assert there.own._count == 1
    warm_up_apart(other)
    assert there.own._count == 2, "the one that was free is another's"
    with there.own.taken(1):
        Version(other).advance([bucket(other, 0)])
    assert (there.own._count, there.jobs) == (2, 0), "nothing has to begin when it counts"


def test_a_large_job_of_made_up_tuples_leaves_nothing_to_begin_for_a_large_one(
    spark: SparkSession, there: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = sums(spark)
    warm_up(engine, large=True)
    assert (there.own._count, there.jobs) == (2, 0), "one for each partition"
    monkeypatch.setattr(engines, "_SHARDING", Sharding(0, 0, 0))
    monkeypatch.setattr(resident, "Resident", None)  # no other can begin
    Version(engine).advance([bucket(engine, 0)])
    assert (there.own._count, there.jobs) == (2, 0)


def test_those_that_are_missing_begin_at_once(
    there: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Resident] = []
    waits_from: list[int] = []

    class Noted(Resident):
        def __init__(self, *arguments: Any) -> None:
            begun.append(self)
            super().__init__(*arguments)

        def wait(self, *instead: Any) -> bool:
            waits_from.append(len(begun))
            return super().wait(*instead)

    monkeypatch.setattr(resident, "Resident", Noted)
    there.own._most = 3
    with there.own.taken(3) as found:
        assert [ordered(each, lambda: None) for each in found] == [True] * 3
    assert waits_from == [3, 3, 3]


def test_if_one_does_not_begin_the_others_are_let_go(
    there: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Resident] = []

    class Late(Resident):
        def wait(self, *instead: Any) -> bool:
            begun.append(self)
            if len(begun) == 2:
                raise ResidentLost("not begun")
            return super().wait(*instead)

    monkeypatch.setattr(resident, "Resident", Late)
    there.own._most = 3
    with pytest.raises(ResidentLost), there.own.taken(3):
        pass
    assert there.own._count == 0
    assert not [each for each in there.own._directory.iterdir() if each.suffix == ".res"]
    monkeypatch.setattr(resident, "Resident", Resident)
    with there.own.taken(2) as found:
        assert [ordered(each, lambda: None) for each in found] == [True] * 2


def test_one_that_becomes_free_is_taken_though_another_has_begun(
    there: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To start a worker may take seconds, and what others are at is over before."""
    may_come, waits = threading.Event(), threading.Event()

    class Slow(Resident):
        def _accept(self, listener: Any, instead: Any) -> Any:
            while not may_come.wait(0.01):
                waits.set()
                if instead():
                    return None
            return super()._accept(listener, instead)

    busy = there.own.taken(1)
    (one,) = busy.__enter__()
    monkeypatch.setattr(resident, "Resident", Slow)
    found: list[Resident] = []

    def take() -> None:
        with there.own.taken(1) as taken:
            found.extend(taken)

    waiting = threading.Thread(target=take)
    waiting.start()
    assert waits.wait(SECONDS)
    assert (there.own._count, found) == (2, [])
    busy.__exit__(None, None, None)
    waiting.join(SECONDS)
    assert found == [one]
    may_come.set()
    deadline = time.monotonic() + SECONDS
    while len(there.own._free) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert ordered(there.own._free[0], lambda: None), "it is there for the next"
    assert there.own._free[1] is one


def test_a_task_that_has_seen_many_jobs_makes_room_for_another(
    spark: SparkSession, there: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resident, "_MOST_JOBS", 2)
    for number in range(4):
        engine = sums(spark)
        Version(engine).advance([bucket(engine, number)])
        assert there.own._count == 1
    assert there.jobs == 0


def test_one_that_begins_when_nobody_waits_any_more_ends_at_once(tmp_path: Path) -> None:
    assert list(ResidentTask(str(tmp_path / "gone"))(0, iter([0]))) == []
