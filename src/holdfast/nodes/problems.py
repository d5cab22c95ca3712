"""What is wrong with a node now, each said once, with what to do about it.

A problem has a key and a text. It is told when it begins and when it is over, in the log; as long
as it lasts, ``holdfast status`` and ``top`` show it and a metric names its key.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from holdfast.core.copy_view import OutputView
from holdfast.core.events import AheadFailed, Beside, EarlyFailed, PairsFailed
from holdfast.core.progress import Trouble, Work
from holdfast.nodes.journal import Journal
from holdfast.nodes.metrics import NodeMetrics
from holdfast.times import show_moment

# With these a node gets something done all the same.
GETS_ON = frozenset(
    {
        "overload",
        "behind",
        "trim",
        "job",
        "bounds",
        "full",
        "membership",
        "early",
        "crowded",
        "query",
    }
)


class Problems:
    """The present problems of one node; any thread may tell one."""

    def __init__(self, journal: Journal, metrics: NodeMetrics) -> None:
        self._journal = journal
        self._metrics = metrics
        self._lock = threading.Lock()
        self._texts: dict[str, str] = {}

    @property
    def texts(self) -> list[str]:
        with self._lock:
            return list(self._texts.values())

    @property
    def blocking(self) -> list[str]:
        """Those with which nothing gets done."""
        with self._lock:
            return [text for key, text in self._texts.items() if key not in GETS_ON]

    def tell(self, key: str, text: str) -> None:
        """It is so, or still so."""
        with self._lock:
            is_new = key not in self._texts
            self._texts[key] = text
        if is_new:
            self._metrics.in_trouble(key, True)
            self._journal.write("problem", level="error", key=key, problem=text)

    def over(self, key: str) -> None:
        """It is so no more."""
        with self._lock:
            text = self._texts.pop(key, None)
        if text is not None:
            self._metrics.in_trouble(key, False)
            self._journal.write("problem over", key=key, problem=text)

    def set(self, key: str, text: str | None) -> None:
        """Tell it, or that it is over."""
        if text is None:
            self.over(key)
        else:
            self.tell(key, text)


def tell_work(problems: Problems, metrics: NodeMetrics, work: Work, fragment: str) -> None:
    """What a replica of a fragment does not get done."""
    poison = next((one for one in work.troubles if one.user_code), None)
    problems.set("poison", None if poison is None else _poisoned(poison, fragment))
    metrics.poisoned(None if poison is None else (fragment, poison.start, poison.reason))
    failing = [one for one in work.troubles if not one.user_code]
    problems.set("job", _failing(failing[0]) if failing else None)
    late = None if work.late is None else f"{work.late}; whoever stands by steps in"
    problems.set("stalled", late)


def tell_early(problems: Problems, event: Beside) -> None:
    """Whether results can be computed before their order is known."""
    text = None
    if isinstance(event, EarlyFailed | AheadFailed | PairsFailed):
        text = (
            f"results cannot be computed before their order is known: {event.reason}. They come in "
            f"order, to whoever needs none, too; it is tried again"
        )
    problems.set("early", text)


def tell_crowded(problems: Problems, outputs: Iterable[OutputView], frames: int) -> None:
    """Which tentative results went because so many frames of them stand, and no more are kept."""
    gone = ", ".join(f"{one.crowded:,} of {one.stream}" for one in outputs if one.crowded)
    text = (
        f"the oldest tentative tuples were dropped, {gone}: of a stream {frames:,} frames of such "
        f"tuples are kept until they are corrected, two for each bucket. Who comes later lacks "
        f"them until then; stable tuples all stay. To keep more, set timing.tentative_frames"
    )
    problems.set("crowded", text if gone else None)


def of_another_query(sender: str) -> str:
    """That a state was refused because its sender computes something else."""
    return (
        f"{sender} computes another query, and the state that it sent was not taken: its server "
        f"may still run an older plan. holdfast up sends every server the one that counts"
    )


def _poisoned(trouble: Trouble, fragment: str) -> str:
    return (
        f"fragment {fragment}: the query's own code fails on the bucket from "
        f"{show_moment(trouble.start)} to {show_moment(trouble.stop)}, {trouble.attempts} times so "
        f"far: {trouble.reason}. Later results wait for it. Correct the code and start the process "
        f'anew; or, if a function of process raises, set on_error = "dead-letter" for the '
        f"fragment, which leaves such rows out"
    )


def _failing(trouble: Trouble) -> str:
    return (
        f"the {trouble.line.value} job from {show_moment(trouble.start)} to "
        f"{show_moment(trouble.stop)} failed {trouble.attempts} times: {trouble.reason}"
    )
