"""Deliberate bugs: proof that the checkers can find what they are for.

Those of standby are in ``standby_mutations``, those of what is kept in ``keeping_mutations``,
those of what is read in ``stream_mutations``, those of early results in ``early_mutations`` and,
of windows and joins, ``ahead_mutations`` and ``pair_mutations``, those of joining in
``joining_mutations``, those of who takes part in ``membership_mutations``, those of shards in
``shard_mutations`` and ``ring_mutations``, those of bounds in ``bound_mutations``, those of
clients in ``client_mutations``, those of who ends in order in ``ending_mutations``; ``MUTATIONS``
has them all.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from holdfast.core import copy, entry
from holdfast.core.acknowledgements import Acknowledged, Acknowledgements, TrimBelow
from holdfast.core.appender import Appender
from holdfast.core.client import Client
from holdfast.core.consistency import ConsistencyManager, Trigger
from holdfast.core.consumer import Consumer
from holdfast.core.detector import PeerState
from holdfast.core.entry import EntryPoint
from holdfast.core.events import Left
from holdfast.core.frame import Header, Kind
from holdfast.core.held import Held
from holdfast.core.messages import StreamFrame, StreamState
from holdfast.core.serving import ServedStream
from holdfast.core.soutput import SOutput
from holdfast.core.stream_copy import FAR_FUTURE, StreamCopy
from holdfast.core.sunion import LiveGone, ResultDue, StableTaken, SUnion
from holdfast.core.upstream import Upstream
from holdfast.core.versions import Begin, Line, Versions
from holdfast.simulation import ahead_mutations as ahead_mutations
from holdfast.simulation import bound_mutations as bound_mutations
from holdfast.simulation import client_mutations as client_mutations
from holdfast.simulation import delivery_mutations as delivery_mutations
from holdfast.simulation import early_mutations as early_mutations
from holdfast.simulation import ending_mutations as ending_mutations
from holdfast.simulation import joining_mutations as joining_mutations
from holdfast.simulation import keeping_mutations as keeping_mutations
from holdfast.simulation import membership_mutations as membership_mutations
from holdfast.simulation import pair_mutations as pair_mutations
from holdfast.simulation import ring_mutations as ring_mutations
from holdfast.simulation import shard_mutations as shard_mutations
from holdfast.simulation import standby_mutations as standby_mutations
from holdfast.simulation import stream_mutations as stream_mutations
from holdfast.simulation import time_mutations as time_mutations
from holdfast.simulation.planting import MUTATIONS as MUTATIONS
from holdfast.simulation.planting import Mutation as Mutation
from holdfast.simulation.planting import mutation

# -- what a consumer takes ------------------------------------------------------------------


@mutation(StreamCopy, "_take_tentative")
def skip_the_tmax_rule(original: Any) -> Any:
    def broken(self: StreamCopy, header: Header, block: object, now: int) -> Held | None:
        before, self.tentative_boundary = self.tentative_boundary, 0
        held: Held | None = original(self, header, block, now)
        self.tentative_boundary = before
        return held

    return broken


@mutation(StreamCopy, "_take_stable")
def take_all_rows_of_a_frame_that_overlaps(original: Any) -> Any:
    def broken(self: StreamCopy, header: Header, block: object, now: int) -> Held | None:
        held: Held | None = original(self, header, block, now)
        if held is not None:
            held.skip = 0
        return held

    return broken


@mutation(StreamCopy, "_raise_cut")
def keep_tentative_tuples_beside_their_corrections(original: Any) -> Any:
    def broken(self: StreamCopy, stime: int) -> None:
        return None

    return broken


@mutation(Client, "_take")
def forget_to_undo_at_the_client(original: Any) -> Any:
    def broken(self: Client, frame: StreamFrame, now: int, effects: list[Any]) -> None:
        mine: list[Any] = []
        original(self, frame, now, mine)
        effects += [effect for effect in mine if type(effect).__name__ != "DeliverUndo"]

    return broken


# -- which source is followed ---------------------------------------------------------------


@mutation(Upstream, "_reopen")
def do_not_open_a_broken_feed_again(original: Any) -> Any:
    def broken(self: Upstream, feed: Any, now: int) -> list[Any]:
        return []

    return broken


@mutation(Upstream, "_choose")
def stay_with_the_first_source_for_ever(original: Any) -> Any:
    def broken(self: Upstream, now: int) -> list[Any]:
        effects: list[Any] = [] if self.main is not None else original(self, now)
        return effects

    return broken


@mutation(Upstream, "_compare_feeds", shape="half_open")
def never_notice_a_lost_subscription(original: Any) -> Any:
    def broken(self: Upstream, peer: str, sent: Any, now: int) -> list[Any]:
        return []

    return broken


@mutation(Upstream, "_current", shape="lull")
def trust_a_stable_replica_that_is_far_behind(original: Any) -> Any:
    def broken(self: Upstream) -> list[str]:
        return [peer for peer, one in self.reports.items() if one.state is StreamState.STABLE]

    return broken


@mutation(Consumer, "_heard")
def never_listen_to_a_lost_peer_again(original: Any) -> Any:
    def broken(self: Consumer, peer: str, reply: Any, now: int) -> list[Any]:
        if self.detectors[peer].state is PeerState.DOWN:
            return []
        effects: list[Any] = original(self, peer, reply, now)
        return effects

    return broken


# -- buckets --------------------------------------------------------------------------------


@mutation(SUnion, "stable_target")
def call_a_bucket_stable_when_one_input_is(original: Any) -> Any:
    def broken(self: SUnion) -> int:
        return self._floor(max(copy.boundary for copy in self.copies.values()))

    return broken


@mutation(SUnion, "_overdue_target", shape="gentle")
def wait_only_half_of_alpha_x(original: Any) -> Any:
    def broken(self: SUnion, now: int) -> int:
        return int(original(self, now + self._timing.alpha_x_us // 2))

    return broken


@mutation(SUnion, "_overdue_target")
def measure_alpha_x_from_the_newest_tuple(original: Any) -> Any:
    def broken(self: SUnion, now: int) -> int:
        newest = max((copy.ages[-1][0] for copy in self.copies.values() if copy.ages), default=0)
        return int(original(self, now if now - newest >= self._timing.alpha_x_us else newest))

    return broken


@mutation(SUnion, "handle", shape="sparse")
def let_windows_wait_for_the_next_tuple(original: Any) -> Any:
    def broken(self: SUnion, event: Any, now: int) -> list[Any]:
        if isinstance(event, ResultDue | LiveGone):
            event = replace(event, due=FAR_FUTURE)
        effects: list[Any] = original(self, event, now)
        return effects

    return broken


@mutation(SUnion, "handle")
def forget_to_truncate_at_a_checkpoint(original: Any) -> Any:
    def broken(self: SUnion, event: Any, now: int) -> list[Any]:
        if isinstance(event, StableTaken):
            event = replace(event, keep_from=0)
        effects: list[Any] = original(self, event, now)
        return effects

    return broken


@mutation(SUnion, "handle")
def truncate_what_undo_redo_needs(original: Any) -> Any:
    def broken(self: SUnion, event: Any, now: int) -> list[Any]:
        if isinstance(event, StableTaken):
            event = replace(event, keep_from=event.position)
        effects: list[Any] = original(self, event, now)
        return effects

    return broken


@mutation(SUnion, "unstable_inputs")
def let_missing_input_taint_nothing(original: Any) -> Any:
    def broken(self: SUnion, stop: int) -> frozenset[str]:
        found: frozenset[str] = original(self, stop)
        return found - self.missing

    return broken


@mutation(SUnion, "unstable_inputs")
def let_tentative_input_taint_nothing(original: Any) -> Any:
    def broken(self: SUnion, stop: int) -> frozenset[str]:
        return frozenset(n for n, copy in self.copies.items() if copy.live_boundary < stop)

    return broken


# -- versions and outputs -------------------------------------------------------------------


@mutation(Versions, "_done")
def forget_taint_from_job_to_job(original: Any) -> Any:
    def broken(self: Versions, done: Any, now: int) -> list[Any]:
        self.tainted = frozenset()
        effects: list[Any] = original(self, done, now)
        return effects

    return broken


@mutation(Versions, "_done")
def reconcile_from_the_live_state(original: Any) -> Any:
    def broken(self: Versions, done: Any, now: int) -> list[Any]:
        effects: list[Any] = original(self, done, now)
        if self.live_position is not None and self.rebuilt:
            self._stable_state = self._live_state
        return effects

    return broken


@mutation(Versions, "_begin")
def rebuild_from_the_boundary_instead_of_the_marker(original: Any) -> Any:
    def broken(self: Versions, begin: Begin, now: int) -> Any:
        job = original(self, begin, now)
        return replace(job, slices=()) if begin.line is Line.REBUILD else job

    return broken


@mutation(Versions, "_give_up")
def rebuild_what_was_given_up_from_after_its_marker(original: Any) -> Any:
    def broken(self: Versions, left: Left, now: int) -> None:
        original(self, replace(left, marker=(left.marker + self.stable_position) // 2), now)

    return broken


@mutation(SOutput, "emit_from")
def send_again_what_redo_computes_again(original: Any) -> Any:
    def broken(self: SOutput, tainted: bool) -> int:
        return 0

    return broken


@mutation(SOutput, "_mark")
def undo_one_tuple_too_many(original: Any) -> Any:
    def broken(self: SOutput, kind: Kind, stime: int) -> StreamFrame:
        frame: StreamFrame = original(self, kind, stime)
        if kind is Kind.UNDO and frame.header.first_id > 0:
            header = replace(frame.header, first_id=frame.header.first_id - 1)
            return StreamFrame(header)
        return frame

    return broken


@mutation(SOutput, "_rec_done")
def forget_the_end_of_a_reconciliation(original: Any) -> Any:
    def broken(self: SOutput, trigger: Any, now: int) -> list[Any]:
        return []

    return broken


# -- decisions ------------------------------------------------------------------------------


@mutation(ConsistencyManager, "_resume")
def never_resume_after_a_postponement(original: Any) -> Any:
    def broken(self: ConsistencyManager, trigger: Trigger, now: int) -> list[Any]:
        return []

    return broken


@mutation(ConsistencyManager, "_inputs_corrected")
def let_the_second_replica_never_reconcile(original: Any) -> Any:
    def broken(self: ConsistencyManager, touched: bool, now: int) -> list[Any]:
        stuck = self._settings.address.endswith("b")
        effects: list[Any] = [] if stuck else original(self, touched, now)
        return effects

    return broken


@mutation(ConsistencyManager, "_failed")
def block_when_an_input_fails(original: Any) -> Any:
    def broken(self: ConsistencyManager, now: int) -> list[Any]:
        effects: list[Any] = original(self, now)
        return [effect for effect in effects if type(effect).__name__ != "ForkLive"]

    return broken


@mutation(ConsistencyManager, "_caught_up")
def call_a_reconciliation_whole_when_it_is_not(original: Any) -> Any:
    def broken(self: ConsistencyManager, healed: bool, now: int) -> list[Any]:
        effects: list[Any] = original(self, True, now)
        return effects

    return broken


# -- acknowledgement, durability, restart ---------------------------------------------------


@mutation(Acknowledgements, "handle")
def trim_what_one_consumer_acknowledged(original: Any) -> Any:
    def broken(self: Acknowledgements, event: Acknowledged, now: int) -> list[TrimBelow]:
        for consumer in list(self._first_needed):
            if self._first_needed[consumer] < event.first_needed:
                self._first_needed[consumer] = event.first_needed - 1
        found: list[TrimBelow] = original(self, event, now)
        return found

    return broken


@mutation(Acknowledgements, "handle")
def never_trim(original: Any) -> Any:
    def broken(self: Acknowledgements, event: Acknowledged, now: int) -> list[TrimBelow]:
        return []

    return broken


@mutation(Appender, "flush")
def acknowledge_before_the_record_is_on_disk(original: Any) -> Any:
    def broken(self: Appender, now: int) -> list[Any]:
        effects: list[Any] = original(self, now)
        return [
            replace(one, record=None) if getattr(one, "record", None) else one for one in effects
        ]

    return broken


@mutation(Appender, "handle", shape="storm")
def forget_frames_whose_append_failed(original: Any) -> Any:
    def broken(self: Appender, event: Any, now: int) -> Any:
        if type(event).__name__ == "AppendFailed":
            self._in_flight = None
            return ()
        return original(self, event, now)

    return broken


@mutation(copy, "whole_frames", shape="storm")
def keep_the_torn_end_of_a_log(original: Any) -> Any:
    return lambda logged: logged


@mutation(EntryPoint, "_write")
def publish_tuples_before_they_are_on_disk(original: Any) -> Any:
    def broken(self: EntryPoint, now: int) -> list[Any]:
        effects: list[Any] = original(self, now)
        for append in list(effects):
            effects += self.served.publish(append.frames[0][1])
        return effects

    return broken


@mutation(EntryPoint, "_failed")
def skip_the_ids_of_a_failed_append(original: Any) -> Any:
    def broken(self: EntryPoint, append: int, reason: str, now: int) -> list[Any]:
        waiting_id = self._waiting_id
        effects: list[Any] = original(self, append, reason, now)
        self._waiting_id = waiting_id
        return effects

    return broken


@mutation(EntryPoint, "_offered")
def take_a_batch_twice(original: Any) -> Any:
    def broken(self: EntryPoint, batch: Any) -> list[Any]:
        again = replace(batch, first_id=max(batch.first_id, self._waiting_id))
        effects: list[Any] = original(self, again)
        return effects

    return broken


@mutation(entry.EntryPoint, "__init__")
def reuse_ids_after_a_restart(original: Any) -> Any:
    def broken(self: EntryPoint, settings: Any, logged: Any = None, *rest: Any) -> None:
        frames = () if logged is None else logged.frames
        last = max((i for i, one in enumerate(frames) if one.header.kind is Kind.STABLE), default=0)
        original(self, settings, replace(logged, frames=frames[:last]) if last else logged, *rest)

    return broken


@mutation(ServedStream, "_lacking")
def begin_a_feed_one_frame_late(original: Any) -> Any:
    def broken(self: ServedStream, request: Any) -> Any:
        frames = original(self, request)
        first = next((i for i, f in enumerate(frames) if f.header.kind is Kind.STABLE), None)
        return frames if first is None else frames[:first] + frames[first + 1 :]

    return broken
