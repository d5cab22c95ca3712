"""Prometheus metrics of the nodes of a process, labelled by node."""

from __future__ import annotations

import math

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from holdfast.core.frame import Kind, Why

registry = CollectorRegistry()

_LABELS = ("node", "kind")


def _gauge(name: str, about: str, *labels: str) -> Gauge:
    return Gauge(name, about, (*_LABELS, *labels), registry=registry)


def _counter(name: str, about: str, *labels: str) -> Counter:
    return Counter(name, about, (*_LABELS, *labels), registry=registry)


_EVENTS_WAITING = _gauge("holdfast_events_waiting", "Events that wait for the driver")
_FRAMES_SENT = _counter("holdfast_frames_sent_total", "Frames put on feeds")
_TUPLES_SENT = _counter(
    "holdfast_tuples_sent_total",
    "Tuples sent to another process, by label; those of a checkpoint: its state and its queues",
    "to",
    "label",
)
_BYTES_SENT = _counter(
    "holdfast_bytes_sent_total",
    "Bytes of tuples sent to another process, by label",
    "to",
    "label",
)
_TUPLES_IN = _counter("holdfast_tuples_in_total", "Tuples taken from sources or inputs")
_TUPLES_OUT = _counter("holdfast_tuples_out_total", "Tuples computed or logged")
_JOB_SECONDS = Histogram(
    "holdfast_job_seconds",
    "Time of a Spark job",
    _LABELS,
    buckets=(0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10),
    registry=registry,
)
_BOUNDARY = _gauge("holdfast_boundary_seconds", "Stable up to this tuple time")
_DEAD_LETTERS = _gauge("holdfast_dead_letters", "Rows that could not become tuples")
_STATE = _gauge("holdfast_state", "1 for the state the node is in", "state")
_BEHIND = _gauge(
    "holdfast_behind_seconds", "How much stream time of the input is not processed yet"
)
_INPUT_RATIO = _gauge(
    "holdfast_input_ratio",
    "How many times as fast the input comes as it is processed; above 1 for long is overload",
)
_ALPHA = _gauge("holdfast_alpha", "The share of X that tuples wait for missing ones")
_SHARE = _gauge(
    "holdfast_tentative_share",
    "The share of the usual data that tentative results rest on; 1 while none stands",
    "output",
)
_MISSING = _gauge(
    "holdfast_missing_seconds",
    "The tuple time since which tentative results lack a stream; 0 if they do not",
    "output",
    "missing",
)
_POISON = _gauge(
    "holdfast_poison_bucket_seconds",
    "The tuple time at which the bucket begins that the query's own code fails on, while it does",
    "fragment",
    "exception",
)
_PROBLEM = _gauge(
    "holdfast_problem",
    "1 while the node has this problem; holdfast status says it in words",
    "problem",
)


# An exception may say anything; a label is short.
_LONGEST_LABEL = 200


class NodeMetrics:
    """The metrics of one node."""

    def __init__(self, name: str, kind: str) -> None:
        labels = (name, kind)
        self._labels = labels
        self.events_waiting = _EVENTS_WAITING.labels(*labels)
        self.tuples_in = _TUPLES_IN.labels(*labels)
        self.tuples_out = _TUPLES_OUT.labels(*labels)
        self.job_seconds = _JOB_SECONDS.labels(*labels)
        self.boundary = _BOUNDARY.labels(*labels)
        self.frames_sent = _FRAMES_SENT.labels(*labels)
        self.alpha = _ALPHA.labels(*labels)
        self.behind = _BEHIND.labels(*labels)
        self.input_ratio = _INPUT_RATIO.labels(*labels)
        self._state = ""
        # Tuples and bytes that went out of each stream.
        self._sent: dict[str, tuple[int, int]] = {}
        self._missing: dict[str, set[str]] = {}
        self._poison: tuple[str, str] | None = None

    def rests_on(self, output: str, why: Why | None) -> None:
        """What the tentative results that stand on an output lack; None if none stands."""
        share = 1.0 if why is None else why.share
        _SHARE.labels(*self._labels, output).set(math.nan if share is None else share)
        missing = {} if why is None else {one.stream: one.since for one in why.missing}
        for stream in self._missing.get(output, set()) | set(missing):
            _MISSING.labels(*self._labels, output, stream).set(missing.get(stream, 0) / 1e6)
        self._missing[output] = set(missing)

    def dead_letters(self, count: int) -> None:
        """So many rows of the source could not become tuples."""
        _DEAD_LETTERS.labels(*self._labels).set(count)

    def sent_tuples(self, stream: str, to: str, kind: Kind, tuples: int, size: int) -> None:
        """So many tuples went to another process: of a shard's feed, those that are its own."""
        before = self._sent.get(stream, (0, 0))
        self._sent[stream] = (before[0] + tuples, before[1] + size)
        label = kind.name.lower()
        _TUPLES_SENT.labels(*self._labels, to, label).inc(tuples)
        _BYTES_SENT.labels(*self._labels, to, label).inc(size)

    def tuple_bytes(self) -> dict[str, float]:
        """How large a tuple of each stream is, on the mean of all that were sent."""
        sent = dict(self._sent)
        return {stream: round(size / count, 1) for stream, (count, size) in sent.items() if count}

    def poisoned(self, found: tuple[str, int, str] | None) -> None:
        """The fragment, the bucket's beginning and the exception; None if there is no such bucket.

        Only its type is shown: what an exception says may be of tuples, and metrics are for
        everybody on the machine.
        """
        labels = None if found is None else (found[0], found[2].partition(":")[0][:_LONGEST_LABEL])
        if self._poison is not None and self._poison != labels:
            _POISON.remove(*self._labels, *self._poison)
        self._poison = labels
        if found is not None and labels is not None:
            _POISON.labels(*self._labels, *labels).set(found[1] / 1e6)

    def in_trouble(self, problem: str, is_so: bool) -> None:
        """A problem begins, or is over."""
        _PROBLEM.labels(*self._labels, problem).set(1 if is_so else 0)

    def in_state(self, state: str) -> None:
        """The node's state."""
        if state != self._state:
            if self._state:
                _STATE.labels(*self._labels, self._state).set(0)
            _STATE.labels(*self._labels, state).set(1)
            self._state = state
