"""Windows and joins go out when the boundaries of their own inputs pass."""

from __future__ import annotations

from holdfast.core.ahead import AheadLanes, LookAhead
from holdfast.core.early_lane import PublishEarly
from holdfast.core.effects import RunAhead
from holdfast.core.events import AheadDone, AheadFailed, OutputBlock
from holdfast.core.frame import StreamFrame
from holdfast.core.provenance import TIMED, Claim, Trail
from holdfast.core.records import InLog, RecoveryRecord
from holdfast.core.settings import Input, Output, ReplicaSettings, Timing
from holdfast.core.stream_copy import FAR_FUTURE, StreamCopy
from tests.core.frames_for_tests import boundary, stable

TIMING = Timing(bucket_us=100, delay_us=1000, retry_us=50)
BRANCH = Trail(1, 0, timed=True)


class Bench:
    """Windows of ``x``, twice, pairs of ``x`` and ``y``, and something that rests on all inputs."""

    def __init__(self) -> None:
        every = frozenset("xyz")
        settings = ReplicaSettings(
            "r",
            tuple(Input(name, (f"e{name}",)) for name in "xyz"),
            (
                Output("windows", frozenset("x"), ("c",), memory=((TIMED, frozenset("x")),)),
                Output(
                    "both",
                    every,
                    ("c",),
                    (("z", Trail(1, 1)),),
                    ((BRANCH, frozenset("x")),),
                ),
                Output("pairs", frozenset("xy"), ("c",), memory=((TIMED, frozenset("xy")),)),
                Output("all", every, ("c",), memory=((TIMED, every),)),
            ),
            timing=TIMING,
        )
        self.copies = {name: StreamCopy(name) for name in "xyz"}
        self.lanes = AheadLanes(settings, self.copies)

    def take(self, stream: str, *frames: StreamFrame) -> None:
        for frame in frames:
            self.copies[stream].take(frame, 0)

    def look(self, now: int, complete: int = 0, position: int = 0, **more: bool) -> RunAhead | None:
        told = {"lacks": False, "wanted": True, **more}
        state = f"state at {position}"
        effects = self.lanes.handle(LookAhead(complete, position, state, **told), now)
        self.lanes.validate()
        (order,) = effects or (None,)
        assert order is None or isinstance(order, RunAhead)
        return order

    def done(self, order: RunAhead, now: int, *streams: str) -> list[PublishEarly]:
        blocks = tuple(OutputBlock(name, 1, 0, 99, 99, 99, "rows") for name in streams)
        state = f"ahead at {order.stop}"
        effects = self.lanes.handle(AheadDone(order.job, state, blocks), now)
        self.lanes.validate()
        return [one for one in effects if isinstance(one, PublishEarly)]


def test_only_what_rests_on_some_of_the_inputs_can_be_ahead() -> None:
    assert set(Bench().lanes.outputs) == {"windows", "both", "pairs"}


def test_results_wait_for_their_own_inputs_only() -> None:
    bench = Bench()
    bench.take("x", stable(0, 10, 150), boundary(2, 250))
    order = bench.look(5)
    assert order is not None
    assert (order.state, order.start, order.stop) == ("state at 0", 0, 200)
    assert [(one.stream, one.stime_from, one.stime_to) for one in order.slices] == [("x", 0, 200)]
    assert dict(order.claims) == {
        "windows": (Claim(TIMED, 0, 200, 199),),
        "both": (Claim(BRANCH, 0, 200, 199),),
    }
    (frame,) = bench.done(order, 8, "windows")
    assert (frame.stream, frame.frame.claims) == ("windows", (Claim(TIMED, 0, 200, 199),))
    # It goes on with its own state, and what had no results is claimed with the next.
    bench.take("x", stable(2, 310), boundary(3, 400))
    assert bench.look(9) is None
    order = bench.look(18)
    assert order is not None
    assert (order.state, order.start, order.stop) == ("ahead at 200", 200, 400)
    sent = {one.stream: one.frame.claims for one in bench.done(order, 20, "windows", "both")}
    assert sent == {
        "windows": (Claim(TIMED, 200, 400, 399),),
        "both": (Claim(BRANCH, 0, 400, 399),),
    }


def test_a_join_waits_for_both_of_its_inputs() -> None:
    bench = Bench()
    bench.take("y", stable(0, 120), boundary(1, 300))
    assert bench.look(5) is None
    bench.take("x", stable(0, 110), boundary(1, 200))
    orders = []
    for now in (6, 30):
        order = bench.look(now)
        assert order is not None
        bench.done(order, now + 1)
        orders.append({name for name, _ in order.claims})
    assert {"pairs"} in orders
    assert {"windows", "both"} in orders


def test_what_the_order_is_about_to_take_is_left_to_it() -> None:
    bench = Bench()
    bench.take("x", stable(0, 10, 150), boundary(2, 250))
    assert bench.look(5, complete=200) is None
    # Once the order has caught up, a line begins anew from there.
    order = bench.look(5)
    assert order is not None
    bench.done(order, 8)
    bench.take("x", stable(2, 510), boundary(3, 700))
    order = bench.look(50, complete=600, position=600)
    assert order is not None
    assert (order.state, order.start, order.stop) == ("state at 600", 600, 700)


def test_without_a_reader_or_a_state_nothing_begins() -> None:
    bench = Bench()
    bench.take("x", stable(0, 10), boundary(1, 250))
    assert bench.look(5, wanted=False) is None
    assert bench.look(5, lacks=True) is None
    in_log = LookAhead(0, 0, InLog(RecoveryRecord(0, 0, (), ())), lacks=False, wanted=True)
    assert bench.lanes.due(in_log) == FAR_FUTURE
    assert bench.look(5) is not None
    # One whose readers are gone meanwhile ends.
    assert bench.look(6, wanted=False) is None
    assert [line.state for line in bench.lanes.lines] == [None, None]


def test_a_job_that_fails_is_tried_again_later() -> None:
    bench = Bench()
    bench.take("x", stable(0, 10), boundary(1, 250))
    order = bench.look(5)
    assert order is not None
    bench.lanes.handle(AheadFailed(order.job + 1, "of an earlier life"), 6)
    assert bench.look(200) is None
    bench.lanes.handle(AheadFailed(order.job, "executor lost"), 10)
    assert bench.look(11) is None
    again = bench.look(100)
    assert again is not None
    assert (again.start, again.stop) == (order.start, order.stop)
