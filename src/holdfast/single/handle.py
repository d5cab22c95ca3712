"""A run in the background, to stop and to look at; named as PySpark's StreamingQuery is."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from holdfast.connect.sink import Sink
from holdfast.connect.source import Source
from holdfast.network import Network
from holdfast.single.reports import AdvanceReport, Observer, RunSummary
from holdfast.single.run import run
from holdfast.spark.session import activate


class RunHandle:
    """What ``start`` returns. As a context manager, it stops the run at the end."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._watch = _Watch()
        self._summary: RunSummary | None = None
        self._failure: BaseException | None = None
        self._thread: threading.Thread

    @property
    def isActive(self) -> bool:
        """Whether it still runs."""
        return self._thread.is_alive()

    @property
    def lastProgress(self) -> AdvanceReport | None:
        """What the last advance did: tuples in and out, times, open windows."""
        return self._watch.last

    def exception(self) -> BaseException | None:
        """What ended it, if it failed."""
        return self._failure

    def stop(self, timeout: float | None = 60.0) -> RunSummary:
        """Finish the bucket, take a checkpoint, and end; what came of it."""
        self._watch.wants_stop = True
        return self._ended(timeout)

    def awaitTermination(self, timeout: float | None = None) -> bool:
        """Wait until its sources have ended; whether they have within ``timeout`` seconds.

        Raises what it failed with.
        """
        self._thread.join(timeout)
        if self._failure is not None:
            raise self._failure
        return not self._thread.is_alive()

    def _ended(self, timeout: float | None) -> RunSummary:
        if not self.awaitTermination(timeout):
            raise TimeoutError(f"{self.name} did not stop within {timeout:g} s")
        assert self._summary is not None
        return self._summary

    def _run(self, arguments: dict[str, Any]) -> None:
        try:
            activate(arguments["network"].spark)  # a session is active in the thread that made it
            self._summary = run(**arguments, observer=self._watch)
        except BaseException as error:
            self._failure = error

    def _start(self, arguments: dict[str, Any]) -> None:
        self._thread = threading.Thread(
            target=self._run, args=(arguments,), name=f"holdfast-run {self.name}", daemon=True
        )
        self._thread.start()

    def __enter__(self) -> RunHandle:
        return self

    def __exit__(self, *_: object) -> None:
        self._watch.wants_stop = True
        self._thread.join()


class _Watch(Observer):
    last: AdvanceReport | None = None

    def advanced(self, report: AdvanceReport) -> None:
        self.last = report


def start(
    network: Network,
    sources: Mapping[str, Source],
    outputs: Mapping[str, Sink] | None = None,
    **options: Any,
) -> RunHandle:
    """Run ``network`` in a thread of its own, with the options of ``run`` but ``observer``.

    ``handle.stop()`` ends it, ``handle.lastProgress`` shows what it does,
    ``handle.awaitTermination()`` waits for the end of its sources.
    """
    handle = RunHandle(network.name)
    handle._start({"network": network, "sources": sources, "outputs": outputs, **options})
    return handle
