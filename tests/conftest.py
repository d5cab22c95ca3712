"""One SparkSession for all tests of a process, tests that start first, and tests that run alone.

Tests run in two processes. Those that are marked `alone` compare what happens with a bound on time,
so while one of them runs, the other process waits: they take a lock for themselves that all other
tests share. A file that is marked shares what it starts, and runs alone as a whole; ``after`` names
a fixture that it starts beside others, before it waits for its turn.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

from holdfast.spark.session import get_session
from holdfast.spark.warming import VARIABLE


def pytest_configure(config: pytest.Config) -> None:
    # A busy machine makes any example slow; how long tests take is watched elsewhere.
    settings.register_profile("holdfast", deadline=None)
    settings.load_profile("holdfast")
    # Processes of a test live for seconds: one job before they are ready is enough.
    os.environ.setdefault(VARIABLE, "0")
    config.addinivalue_line("markers", "long: takes long, so its file starts first")
    config.addinivalue_line("markers", "slow: takes seconds, so make test-fast leaves it out")
    config.addinivalue_line("markers", "jobs: runs Spark jobs, so make test-fast leaves it out")
    config.addinivalue_line(
        "markers", "thorough: many kills, many processes or other Sparks; make test-all runs it"
    )
    config.addinivalue_line("markers", "alone(after): no other test runs beside it")
    config.pluginmanager.register(_NamesAtOnce(config))


class _NamesAtOnce:
    """Names a test when it fails: who stops a long run before its end knows what it has found."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(trylast=True)  # after the letter of the same report
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # The processes that run tests have none; the one that hears of all of them has.
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and reporter is not None:
            crash = getattr(report.longrepr, "reprcrash", None)
            why = report.longreprtext if crash is None else crash.message
            why = why.partition("\n")[0]
            reporter.write(f"\nFAILED {report.nodeid} ({report.when}): {why}\n", red=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that run alone come first, one after the other, so that nobody waits for them later.

    Then those that take long, so that no process is left alone with one at the end.
    """

    def marked(name: str) -> set[Path]:
        return {item.path for item in items if item.get_closest_marker(name) is not None}

    alone, long = marked("alone"), marked("long")
    items.sort(key=lambda item: (item.path not in alone, item.path not in long))


@contextmanager
def _machine(factory: pytest.TempPathFactory, how: int) -> Iterator[None]:
    """Hold the lock; the parent of the temporary directories is common to all processes."""
    parent = factory.getbasetemp().parent
    with (parent / "machine.lock").open("w") as lock:
        # Whoever waits holds up those that come later, or the others would share it for ever.
        with (parent / "machine.turn").open("w") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            fcntl.flock(lock, how)
        yield


def _alone(node: pytest.Module) -> pytest.Mark | None:
    return next((mark for mark in node.own_markers if mark.name == "alone"), None)


@pytest.fixture(scope="module", autouse=True)
def _module_alone(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    mark = _alone(request.node)
    if mark is None:
        yield
        return
    if "after" in mark.kwargs:
        request.getfixturevalue(mark.kwargs["after"])
    with _machine(tmp_path_factory, fcntl.LOCK_EX):
        yield


@pytest.fixture(autouse=True)
def _test_alone_or_not(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    if _alone(request.node.getparent(pytest.Module)) is not None:
        yield
        return
    alone = request.node.get_closest_marker("alone") is not None
    with _machine(tmp_path_factory, fcntl.LOCK_EX if alone else fcntl.LOCK_SH):
        yield


@pytest.fixture(scope="session")
def spark() -> SparkSession:
    return get_session("local[2]")
