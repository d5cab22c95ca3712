"""A replica that ends in order, and what is known of its readers then."""

from __future__ import annotations

from holdfast.core.effects import Append, KeepEnd
from holdfast.core.ending import EarlierLives, beyond, last_orders, was_whole
from holdfast.core.frame import Header, Kind
from holdfast.core.messages import CopyReport, CopyState, StreamFrame, Subscribe
from holdfast.core.records import Found, LoggedStream, RecoveryRecord, StreamEnd
from holdfast.core.serving import ServedStream
from holdfast.core.settings import SECOND_US, Delivery, Input, Output, ReplicaSettings, Timing

TIMING = Timing(bucket_us=250_000, delay_us=2 * SECOND_US)
RECORD = RecoveryRecord(5 * SECOND_US, 0, (), (("out", 3),))


def settings(delivery: Delivery = Delivery.EXACTLY_ONCE) -> ReplicaSettings:
    output = Output("out", frozenset({"x"}), ("reader",))
    one = ("one", (Input("x", ("e",)),), (output,))
    return ReplicaSettings(*one, timing=TIMING, delivery=delivery)


def stream() -> ServedStream:
    """Five tuples and a boundary went out."""
    served = ServedStream("out", ("reader",))
    served.publish((StreamFrame(Header(Kind.STABLE, 0, 5, 1, 9, 9), None),))
    served.publish((StreamFrame(Header(Kind.BOUNDARY, 5, 0, 10, 10, 10)),))
    return served


def lives(ended: bool, record: RecoveryRecord | None = RECORD) -> EarlierLives:
    return EarlierLives(Found(record, ended=ended), TIMING.delay_us)


def report(boundary_s: float, live_s: float | None = None, ready: bool = True) -> CopyReport:
    live_s = boundary_s if live_s is None else live_s
    boundary, live = int(boundary_s * SECOND_US), int(live_s * SECOND_US)
    return CopyReport(1, CopyState.PRIMARY, boundary, live, ready)


def test_all_that_went_out_is_written_and_then_noted() -> None:
    append, end = last_orders(settings(), {"out": stream()}, lives(ended=True))
    assert isinstance(append, Append)
    ((name, frames),) = append.frames
    assert name == "out"
    assert [frame.header.kind for frame in frames] == [Kind.STABLE, Kind.BOUNDARY]
    assert append.begins == (("out", 0),)
    assert append.record is None
    assert end == KeepEnd((StreamEnd("out", 5, 10),))


def test_the_record_that_waited_for_readers_is_written_with_it() -> None:
    append, _ = last_orders(settings(), {"out": stream()}, lives(ended=True), (RECORD, "state"))
    assert isinstance(append, Append)
    assert (append.record, append.state, append.begins) == (RECORD, "state", (("out", 0),))


def test_a_reader_that_has_more_is_in_the_note() -> None:
    served = stream()
    served.subscribe("reader", Subscribe("out", 1, 8, 0))
    assert last_orders(settings(), {"out": served}, lives(ended=True))[-1] == KeepEnd(
        (StreamEnd("out", 8, 10),)
    )


def test_without_a_log_of_results_there_is_nothing_to_write() -> None:
    least = settings(Delivery.AT_LEAST_ONCE)
    assert last_orders(least, {"out": stream()}, lives(ended=False)) == [KeepEnd(())]


def test_nothing_is_noted_before_earlier_lives_are_passed() -> None:
    orders = last_orders(settings(), {"out": stream()}, lives(ended=False))
    assert [type(order) for order in orders] == [Append]


def test_earlier_lives_that_ended_in_order_or_left_nothing_are_passed() -> None:
    assert lives(ended=True).passed
    assert lives(ended=False, record=None).passed
    assert not lives(ended=False).passed
    log = LoggedStream("out", 0, (StreamFrame(Header(Kind.BOUNDARY, 0, 0, 1, 1, 1)),))
    assert not EarlierLives(Found(None, None, (log,)), TIMING.delay_us).passed


def test_a_copy_that_sleeps_passes_them_with_what_it_is_sent_by_one_that_has_caught_up() -> None:
    earlier = lives(ended=False)
    earlier.heard(report(20, ready=False), held=30 * SECOND_US)
    earlier.heard(report(20, live_s=24), held=30 * SECOND_US)
    assert not earlier.passed, "whoever recovers, or lacks input, may be far behind"
    earlier.heard(report(20), held=19 * SECOND_US)
    earlier.heard(report(30), held=21 * SECOND_US)
    assert not earlier.passed
    earlier.heard(report(31), held=22 * SECOND_US)
    assert earlier.passed
    earlier.begin_again()
    assert not earlier.passed


def test_a_note_is_beyond_a_log_by_id_or_by_time() -> None:
    log = [StreamEnd("out", 5, 10), StreamEnd("more", 2, 10)]
    assert beyond([StreamEnd("out", 5, 10), StreamEnd("more", 0, 3)], log) is None
    for ahead in (StreamEnd("out", 6, 10), StreamEnd("more", 2, 11), StreamEnd("new", 0, 0)):
        assert beyond([ahead], log) == ahead


def test_an_end_that_the_log_has_not_got_is_not_whole() -> None:
    log = [StreamEnd("out", 5, 10)]
    assert was_whole([StreamEnd("out", 5, 10)], log)
    assert was_whole([], log)
    assert not was_whole(None, log)
    assert not was_whole([StreamEnd("out", 6, 10)], log)
