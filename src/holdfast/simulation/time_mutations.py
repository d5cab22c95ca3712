"""Deliberate bugs in what is known of time: sources with their own, and why something lacks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from holdfast.core.frame import Why
from holdfast.core.patience import Learned
from holdfast.core.source_time import FAR, Lane, Rules, SourceTime, TimeVerdict
from holdfast.core.stream_copy import StreamCopy
from holdfast.core.why import Basis, Missing, _Stretch
from holdfast.simulation.planting import mutation


@mutation(SourceTime, "rules")
def believe_a_row_of_the_next_century(original: Any) -> Any:
    def broken(self: SourceTime, name: str, now: int) -> Rules:
        rules: Rules = original(self, name, now)
        return replace(rules, latest=FAR)

    return broken


@mutation(SourceTime, "tick")
def wait_for_a_quiet_producer_for_ever(original: Any) -> Any:
    def broken(self: SourceTime, now: int) -> None:
        return None

    return broken


@mutation(Lane, "low")
def forget_how_late_rows_may_be(original: Any) -> Any:
    def broken(self: Lane, lateness_us: int) -> int:
        return max(self.newest, self.promised)

    return broken


@mutation(SourceTime, "judge")
def let_late_rows_in_as_they_are(original: Any) -> Any:
    def broken(self: SourceTime, name: str, stime: int, now: int) -> TimeVerdict:
        verdict: TimeVerdict = original(self, name, stime, now)
        return TimeVerdict.IN_TIME if verdict is TimeVerdict.LATE else verdict

    return broken


@mutation(Basis, "why")
def name_nobody_who_is_missing(original: Any) -> Any:
    def broken(self: Basis, inputs: Any) -> Why:
        why: Why = original(self, inputs)
        return replace(why, missing=())

    return broken


@mutation(Basis, "_look")
def blame_the_neighbour(original: Any) -> Any:
    def broken(
        self: Basis, name: str, copy: StreamCopy, came: float, start: int, stop: int
    ) -> _Stretch:
        stretch: _Stretch = original(self, name, copy, came, start, stop)
        if not stretch.missing:
            return stretch
        return replace(stretch, missing=(Missing(name, stretch.missing[0].since),))

    return broken


@mutation(Learned, "learn")
def learn_nothing_from_slow_jobs(original: Any) -> Any:
    def broken(self: Learned, took_us: int) -> None:
        return None

    return broken
