from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.frame import Kind
from holdfast.core.machine import ProtocolError
from holdfast.core.stream_copy import GapFound, StreamCopy
from tests.core.frames_for_tests import boundary, mark, stable, tentative


def test_takes_each_stable_tuple_once_from_whichever_feed() -> None:
    copy = StreamCopy("s")
    assert copy.take(stable(0, 10, 11), 1) is not None
    assert copy.take(stable(0, 10, 11), 2) is None
    held = copy.take(stable(1, 11, 12, 13), 3)
    assert held is not None
    assert held.skip == 1
    assert copy.next_id == 4
    copy.validate()


def test_a_gap_is_noticed_in_tuples_and_in_boundaries() -> None:
    copy = StreamCopy("s")
    with pytest.raises(GapFound):
        copy.take(stable(1, 10), 1)
    with pytest.raises(GapFound):
        copy.take(boundary(1, 10), 1)


def test_a_boundary_of_a_replica_that_is_behind_is_still_true() -> None:
    copy = StreamCopy("s", next_id=5)
    copy.take(boundary(3, 100), 1)
    assert copy.boundary == 100


def test_tentative_tuples_only_about_times_nothing_was_said_about() -> None:
    copy = StreamCopy("s")
    copy.take(boundary(0, 100), 1)
    first = copy.take(tentative(0, 90, 120), 2)
    assert first is not None
    assert first.stime_from == 100
    copy.take(mark(Kind.TENTATIVE_BOUNDARY, 0, 200), 2)
    assert copy.take(tentative(0, 150, 199), 3) is None, "another replica on the same stretch"
    later = copy.take(tentative(0, 150, 250), 3)
    assert later is not None
    assert later.stime_from == 200


def test_stable_tuples_replace_tentative_ones() -> None:
    copy = StreamCopy("s")
    copy.take(tentative(0, 10, 20), 1)
    copy.take(tentative(0, 30, 40), 1)
    copy.take(stable(0, 10, 20), 2)
    assert [held.header.stime_min for held in copy.tentative] == [30]
    copy.take(boundary(2, 50), 2)
    assert not copy.tentative


def test_says_from_which_id_on_a_time_is_needed() -> None:
    copy = StreamCopy("s")
    copy.take(stable(0, 10, 20), 1)
    copy.take(stable(2, 30), 1)
    copy.take(stable(3, 40), 1)
    assert copy.first_id_needed(15) == 0
    assert copy.first_id_needed(25) == 2
    assert copy.first_id_needed(99) == 4


def test_validate_finds_a_hole() -> None:
    copy = StreamCopy("s")
    copy.take(stable(0, 10), 1)
    copy.next_id = 7
    with pytest.raises(ProtocolError, match="holds ids up to 1"):
        copy.validate()


@given(
    st.lists(st.tuples(st.integers(0, 19), st.integers(1, 8)), max_size=60),
)
def test_however_the_stream_is_cut_and_repeated_every_tuple_comes_once(
    pieces: list[tuple[int, int]],
) -> None:
    """Feeds of several replicas, cut differently, interleaved, with gaps."""
    copy = StreamCopy("s")
    taken: list[int] = []
    for first_id, count in pieces:
        ids = range(first_id, min(first_id + count, 20))
        try:
            held = copy.take(stable(first_id, *(100 + one for one in ids)), 1)
        except GapFound:
            continue
        if held is not None:
            taken += list(ids)[held.skip :]
        copy.validate()
    assert taken == list(range(copy.next_id))
