"""Deliberate bugs of streams: how they are cut, held, promised and stood in for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from holdfast.core.consistency import ConsistencyManager
from holdfast.core.entry import EntryPoint
from holdfast.core.events import SourceReached
from holdfast.core.feed import Feed
from holdfast.core.frame import Header, Kind
from holdfast.core.held import Held, HeldFrames
from holdfast.core.messages import StreamFrame, StreamState
from holdfast.core.serving import ServedStream
from holdfast.core.soutput import SOutput
from holdfast.core.stream_copy import StreamCopy
from holdfast.core.sunion import SUnion
from holdfast.core.upstream import Upstream
from holdfast.core.versions import Versions
from holdfast.simulation import network
from holdfast.simulation.planting import mutation

# -- connections ----------------------------------------------------------------------------


@mutation(network, "ends_piece", shape="flicker")
def cut_a_message_behind_its_tentative_tuples(original: Any) -> Any:
    def broken(last: Header, left: int, size: int, size_max: int) -> bool:
        return left == 0 or size >= size_max

    return broken


@mutation(Upstream, "_broken")
def give_a_broken_feed_up_for_good(original: Any) -> Any:
    # A feed that is not served is found by heartbeats too: both must go.
    def broken(self: Upstream, feed: Feed, now: int) -> list[Any]:
        self._reply_us = 1 << 62
        return []

    return broken


@mutation(Upstream, "_stand")
def race_with_one_replica(original: Any) -> Any:
    def broken(self: Upstream, now: int, effects: list[Any]) -> None:
        return None

    return broken


@mutation(Upstream, "_arrived")
def take_only_from_whom_one_follows(original: Any) -> Any:
    def broken(self: Upstream, peer: str, message: Any, now: int) -> list[Any]:
        if peer in self.standing and self.main is not None:
            feed = self.standing[peer]
            if message.feed == feed.id and message.seq == feed.received:
                feed.received += 1
                return []
        effects: list[Any] = original(self, peer, message, now)
        return effects

    return broken


@mutation(Upstream, "_open")
def continue_one_tuple_too_far(original: Any) -> Any:
    def broken(self: Upstream, peer: str, now: int, effects: list[Any]) -> Feed:
        feed: Feed = original(self, peer, now, effects)
        request = effects[-1].message
        effects[-1] = replace(effects[-1], message=replace(request, next_id=request.next_id + 1))
        return feed

    return broken


@mutation(ServedStream, "subscribe", shape="ruin")
def serve_on_when_the_log_was_lost(original: Any) -> Any:
    def broken(self: ServedStream, consumer: str, request: Any) -> list[Any]:
        durable, self._durable = self._durable, False
        effects: list[Any] = original(self, consumer, request)
        self._durable = durable
        return effects

    return broken


@mutation(ServedStream, "_keep")
def keep_tentative_tuples_that_were_corrected(original: Any) -> Any:
    def broken(self: ServedStream, frame: StreamFrame) -> None:
        kept = list(self.tentative)
        original(self, frame)
        if frame.header.kind is Kind.BOUNDARY:
            self.tentative.clear()
            self.tentative.extend(kept)

    return broken


# -- what is held ---------------------------------------------------------------------------


@mutation(HeldFrames, "between")
def pass_over_frames_that_begin_before_a_stretch(original: Any) -> Any:
    def broken(self: HeldFrames, start: int, stop: int) -> list[Held]:
        found: list[Held] = original(self, start, stop)
        return [one for one in found if one.header.stime_min >= start]

    return broken


@mutation(HeldFrames, "append")
def take_it_that_frames_never_overlap_in_time(original: Any) -> Any:
    def broken(self: HeldFrames, frame: Held, boundary: int) -> None:
        original(self, frame, frame.header.stime_max)

    return broken


@mutation(HeldFrames, "drop_below")
def drop_one_frame_too_many(original: Any) -> Any:
    def broken(self: HeldFrames, stime: int) -> None:
        before = len(self)
        original(self, stime)
        if len(self) < before and len(self):
            self._frames[self._start] = None
            self._start += 1

    return broken


@mutation(StreamCopy, "first_id_needed")
def acknowledge_what_came_instead_of_what_is_recorded(original: Any) -> Any:
    def broken(self: StreamCopy, stime: int) -> int:
        return self.next_id

    return broken


# -- buckets and results --------------------------------------------------------------------


@mutation(SUnion, "stable_target")
def take_a_bucket_before_its_end(original: Any) -> Any:
    def broken(self: SUnion) -> int:
        return int(original(self)) + self._bucket_us

    return broken


@mutation(Versions, "_done")
def let_the_marker_run_ahead(original: Any) -> Any:
    def broken(self: Versions, done: Any, now: int) -> list[Any]:
        effects: list[Any] = original(self, replace(done, marker=1 << 61), now)
        return effects

    return broken


@mutation(SOutput, "reported_state")
def call_every_output_stable(original: Any) -> Any:
    def broken(self: SOutput) -> StreamState:
        return StreamState.STABLE

    return broken


@mutation(ConsistencyManager, "_stands_in", shape="deserted")
def let_a_partner_stand_in_that_is_cut_off(original: Any) -> Any:
    def broken(self: ConsistencyManager, reach: int) -> bool:
        return True

    return broken


# -- what entry points promise --------------------------------------------------------------


@mutation(EntryPoint, "_write")
def promise_the_present_where_tuples_bring_their_time(original: Any) -> Any:
    def broken(self: EntryPoint, now: int) -> list[Any]:
        self._reached = max(self._reached, now)
        effects: list[Any] = original(self, now)
        return effects

    return broken


@mutation(EntryPoint, "handle")
def forget_what_a_quiet_source_has_promised(original: Any) -> Any:
    def broken(self: EntryPoint, event: Any, now: int) -> list[Any]:
        if isinstance(event, SourceReached):
            event = SourceReached(0)
        effects: list[Any] = original(self, event, now)
        return effects

    return broken
