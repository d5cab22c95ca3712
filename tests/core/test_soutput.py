from __future__ import annotations

import pytest

from holdfast.core.events import OutputBlock
from holdfast.core.machine import ProtocolError
from holdfast.core.messages import StreamFrame, StreamState
from holdfast.core.records import UNKNOWN_ID
from holdfast.core.soutput import (
    EmitFrames,
    LiveComputed,
    ReconciliationEnded,
    SOutput,
    SOutputState,
    StableComputed,
)
from tests.core.frames_for_tests import kinds


def block(*stimes: int, skipped: int = 0) -> OutputBlock:
    low, high = (min(stimes), max(stimes)) if stimes else (0, 0)
    return OutputBlock("o", len(stimes), skipped, low, high, high, stimes)


def make() -> SOutput:
    return SOutput("a", "o", next_id=0, stable_until=0, base_id=0)


def frames(emitted: list[EmitFrames]) -> tuple[StreamFrame, ...]:
    return emitted[0].frames if emitted else ()


def test_numbers_stable_results_and_promises_boundaries() -> None:
    output = make()
    first = frames(output.handle(StableComputed(100, block(10, 20)), 1))
    second = frames(output.handle(StableComputed(200, None), 2))
    assert kinds(first) == ["STABLE", "BOUNDARY"]
    assert kinds(second) == ["BOUNDARY"]
    assert output.next_id == 2
    assert second[0].header.first_id == 2


def test_a_failure_its_corrections_and_their_end() -> None:
    output = make()
    output.handle(StableComputed(100, block(10)), 1)
    live = frames(output.handle(LiveComputed(200, block(110), tainted=True), 2))
    assert kinds(live) == ["TENTATIVE", "TENTATIVE_BOUNDARY"]
    assert live[0].header.first_id == 1
    assert output.reported_state() is StreamState.UP_FAILURE
    redone = frames(output.handle(StableComputed(200, block(110, 120)), 3))
    assert kinds(redone) == ["UNDO", "STABLE", "BOUNDARY"]
    assert redone[0].header.first_id == 1, "the first id taken back is the next stable one"
    assert output.reported_state() is StreamState.STABILIZATION
    assert kinds(frames(output.handle(ReconciliationEnded(healed=True), 4))) == ["REC_DONE"]
    assert output.reported_state() is StreamState.STABLE
    output.validate()


def test_a_new_failure_forces_rec_done() -> None:
    output = make()
    output.handle(LiveComputed(200, block(110), tainted=True), 2)
    output.handle(StableComputed(100, block(10)), 3)
    assert kinds(frames(output.handle(ReconciliationEnded(healed=False), 4))) == ["REC_DONE"]
    assert output.state is SOutputState.TENTATIVE
    more = frames(output.handle(LiveComputed(300, block(210), tainted=True), 5))
    assert kinds(more) == ["TENTATIVE", "TENTATIVE_BOUNDARY"]


def test_an_output_that_is_not_tainted_stays_stable_and_redo_sends_nothing_twice() -> None:
    output = make()
    assert output.emit_from(tainted=False) == 0
    output.handle(LiveComputed(200, block(110), tainted=False), 2)
    assert output.emit_from(tainted=False) == 200
    assert output.handle(StableComputed(200, block(skipped=1)), 3) == []
    more = frames(output.handle(StableComputed(300, block(210)), 4))
    assert kinds(more) == ["STABLE", "BOUNDARY"]
    assert output.next_id == 2


def test_tentative_results_do_not_correct_tentative_results() -> None:
    output = make()
    output.handle(LiveComputed(200, block(110), tainted=True), 2)
    assert output.emit_from(tainted=True) == 200
    assert output.handle(LiveComputed(150, None, tainted=True), 3) == []


def test_redo_that_finds_other_results_is_an_error() -> None:
    output = make()
    output.handle(LiveComputed(200, block(110), tainted=False), 2)
    with pytest.raises(ProtocolError, match="not deterministic"):
        output.handle(StableComputed(200, block(skipped=2)), 3)


def test_results_outside_their_stretch_are_an_error() -> None:
    output = make()
    output.handle(StableComputed(100, None), 1)
    with pytest.raises(ProtocolError, match="do not belong"):
        output.handle(StableComputed(200, block(50)), 2)


def test_results_of_another_network_keep_their_ids_whatever_is_computed_again() -> None:
    """The log has 7 tuples up to 300; what is computed from 100 on gives others."""
    output = SOutput("a", "o", next_id=7, stable_until=300, base_id=UNKNOWN_ID)
    assert output.handle(StableComputed(200, block(skipped=11)), 1) == []
    assert output.base_id == UNKNOWN_ID
    found = frames(output.handle(StableComputed(400, block(310, 320, skipped=4)), 2))
    assert kinds(found) == ["STABLE", "BOUNDARY"]
    assert (found[0].header.first_id, output.base_id, output.next_id) == (7, 9, 9)
    output.validate()
    # From there on it must be the same again.
    with pytest.raises(ProtocolError, match="not deterministic"):
        output.handle(StableComputed(500, block(410, skipped=1)), 3)


def test_the_ids_of_another_network_end_where_its_results_do() -> None:
    output = SOutput("a", "o", next_id=7, stable_until=300, base_id=UNKNOWN_ID)
    assert output.handle(StableComputed(300, block(skipped=3)), 1) == []
    assert output.base_id == 7
