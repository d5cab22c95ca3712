"""What executors of a cluster leave behind late is taken for nothing of another step."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from holdfast.spark import attempts, session
from holdfast.spark.attempts import part_of
from holdfast.spark.continuous_files import Told, collect_news, write_told
from holdfast.spark.engine import Engine
from holdfast.spark.rejected import Rejected, collect_rejected, write_rejected
from holdfast.spark.step_directories import StepDirectories
from tests.spark.networks import digests, every_kind_of_state

ROOT = Path(__file__).parents[2]


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_executors_that_run_tasks_twice_give_the_same_bytes(
    spark: SparkSession, tmp_path: Path
) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.cluster_runs", str(tmp_path)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=840,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    there, crashes = done.stdout.splitlines()
    assert json.loads(there) == digests(Engine(every_kind_of_state(spark)))
    assert int(crashes) >= 2


def test_only_a_driver_on_this_machine_hides_from_others() -> None:
    for master, hidden in [
        ("local[2]", True),
        ("local", True),
        ("spark://elsewhere:7077", False),
        ("local-cluster[2,1,1024]", False),
        ("yarn", False),
    ]:
        settings = {**session._DEFAULTS, **session._private(master, None)}
        assert ("spark.driver.host" in settings) == hidden, master
        assert ("spark.driver.bindAddress" in settings) == hidden, master


def test_what_a_lost_executor_tells_late_is_for_no_other_step(tmp_path: Path) -> None:
    directories = StepDirectories(tmp_path)
    rows = pa.table({"slot": [1], "hash": [2]})
    row = [Rejected("op", "no", {"k": 1})]
    first = directories.take(1)
    place = str(first.path)
    for step in (1, 1):  # two attempts
        write_told(place, ("op", "family", 0), step, Told(rows, 1, 0))
        write_rejected(place, ("op", 0), step, row)
    (news,) = collect_news(first)
    assert (news.opened, news.ended, news.rows.num_rows if news.rows else 0) == (1, 0, 1)
    assert collect_rejected(first) == tuple(row)
    write_told(place, ("op", "family", 0), 1, Told(rows, 1, 0))  # a third, much later
    write_rejected(place, ("op", 0), 1, row)
    (first.path / "windows" / f"op~family~1~0~0~1.9{attempts.PART}").touch()
    del first
    second = directories.take(2)
    assert str(second.path) == place, "it is used again"
    write_told(place, ("op", "family", 1), 2, Told(None, 0, 3))
    (told,) = collect_news(second)
    assert (told.opened, told.ended, told.rows) == (0, 3, None)
    assert collect_rejected(second) == ()
    assert not [path for path in second.path.rglob("*") if path.is_file()]


def test_attempts_write_into_files_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    class Attempt:
        def __init__(self, number: int) -> None:
            self.number = number

        def get(self) -> Attempt:
            return self

        def taskAttemptId(self) -> int:
            return self.number

    names = [part_of("run")]
    for number in (7, 8):
        monkeypatch.setattr(attempts, "TaskContext", Attempt(number))
        names.append(part_of("run"))
    assert len(set(names)) == 3
    assert all(name.endswith(attempts.PART) for name in names)
