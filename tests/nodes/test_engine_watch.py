"""A JVM that dies alone or stands still for good ends its process; no thread dies in silence."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from queue import Empty, Queue

import pytest

from holdfast.core.effects import EndProcess, Line, RunJob
from holdfast.core.events import Event, JobFailed
from holdfast.core.settings import Keeping
from holdfast.network import Network
from holdfast.nodes.engine_watch import EngineWatch
from holdfast.nodes.jobs import Jobs
from holdfast.nodes.node import GaveUp
from holdfast.nodes.thread_watch import watch_threads
from holdfast.spark.chains import Workshop
from tests.nodes.strangers import BareNode
from tests.nodes.test_strangers import BOOK, SETTINGS

SECONDS = 30.0


def sleeping() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])


def test_a_jvm_that_is_killed_is_told_of_with_how() -> None:
    lost: Queue[BaseException] = Queue()
    process = sleeping()
    EngineWatch(process, lambda: None, lost.put).start()
    process.kill()
    said = str(lost.get(timeout=SECONDS))
    assert f"pid {process.pid}, was killed by SIGKILL" in said
    assert "spark.driver.memory" in said


def test_a_jvm_that_does_not_answer_is_given_up() -> None:
    lost: Queue[BaseException] = Queue()
    never = threading.Event()
    watch = EngineWatch(None, never.wait, lost.put, silent_seconds=0.1)
    watch.start()
    assert "has not answered for" in str(lost.get(timeout=SECONDS))
    never.set()


def test_a_jvm_that_is_ended_on_purpose_is_no_news() -> None:
    lost: Queue[BaseException] = Queue()
    process = sleeping()
    watch = EngineWatch(process, lambda: None, lost.put)
    watch.start()
    watch.stop()
    process.kill()
    process.wait(SECONDS)
    with pytest.raises(Empty):
        lost.get(timeout=0.2)


@pytest.fixture
def fatal(monkeypatch: pytest.MonkeyPatch) -> Queue[BaseException]:
    found: Queue[BaseException] = Queue()
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    watch_threads(found.put, lambda name, error: None)
    return found


def load_nothing() -> Network:
    raise RuntimeError("there is no JVM any more")


def broken_jobs(post: Callable[[Event], None]) -> Jobs:
    """Those of a replica whose Spark cannot be started."""
    return Jobs(Workshop(load_nothing, Path("none")), Keeping.STATE, post)


def test_a_jobs_thread_that_breaks_says_so(fatal: Queue[BaseException]) -> None:
    jobs = broken_jobs(lambda event: None)
    jobs.call(jobs.warm)
    jobs.start()
    assert isinstance(fatal.get(timeout=SECONDS), RuntimeError)


def test_threads_of_libraries_are_theirs_to_look_after(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    ours: Queue[BaseException] = Queue()
    theirs: Queue[str] = Queue()
    watch_threads(ours.put, lambda name, error: theirs.put(name))
    threading.Thread(target=lambda: int("none"), name="library").start()
    assert theirs.get(timeout=SECONDS) == "library"
    assert ours.empty()


def test_a_failed_job_says_what_was_raised() -> None:
    events: Queue[Event] = Queue()

    jobs = broken_jobs(events.put)
    jobs.start()
    jobs.submit(RunJob(3, Line.STABLE, None, 0, 10, (), ()))
    assert events.get(timeout=SECONDS) == JobFailed(3, "RuntimeError: there is no JVM any more")
    jobs.close()


def test_a_driver_that_gives_up_ends_its_process(tmp_path: object) -> None:
    node = BareNode(SETTINGS, tmp_path, BOOK)  # type: ignore[arg-type]
    node.carry_out(EndProcess("r1: the stable job from 0 to 100 has not ended for 31 s"))
    (error,) = node.broken
    assert isinstance(error, GaveUp)
    assert "has not ended for 31 s" in str(error)
