"""Tuples are chosen by columns as the protocol would choose them one by one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from holdfast.chosen import chosen, claims_of, mask_of
from holdfast.core.provenance import Choice, Claim, Trail
from holdfast.frames import TIME

TRAILS = (Trail(1, 0), Trail(2, 1), Trail(2, 3))
TIMED = Trail(2, 3, timed=True)
SEQS = st.lists(st.integers(0, 200), max_size=40)
CLAIMS = st.lists(
    st.builds(
        lambda trail, first, count: Claim(trail, first, first + count, 0),
        st.sampled_from((*TRAILS, TIMED)),
        st.integers(0, 60),
        st.integers(1, 9),
    ),
    max_size=1,
) | st.just([Claim(TRAILS[0], 8, 12, 0), Claim(TRAILS[2], 3, 9, 0), Claim(TRAILS[0], 0, 4, 0)])


@given(SEQS, CLAIMS, st.booleans())
def test_columns_choose_as_the_protocol_does(
    seqs: list[int], claims: list[Claim], inside: bool
) -> None:
    choice = Choice(tuple(claims), inside)
    stimes = [seq // 2 for seq in seqs]
    mask = mask_of(np.array(seqs, dtype=np.int64), np.array(stimes, dtype=np.int64), choice)
    assert mask.tolist() == [
        choice.takes(seq, stime) for seq, stime in zip(seqs, stimes, strict=True)
    ]


@given(SEQS)
def test_single_tuples_are_claimed_and_nothing_between_them(seqs: list[int]) -> None:
    claims = claims_of(np.array(seqs, dtype=np.int64), TRAILS, 7)
    named = [one.trail.seq(each) for one in claims for each in range(one.first_id, one.next_id)]
    assert sorted(named) == sorted(set(seqs))
    assert all(one.stime_max == 7 for one in claims)


def test_a_batch_all_of_which_is_chosen_is_not_copied() -> None:
    times = pa.array([5, 6, 7], pa.int64()).cast(TIME)
    batch = pa.record_batch({"stime": times, "seq": pa.array([0, 2, 4], pa.int64())})
    assert chosen(batch, None) is batch
    assert chosen(batch, Choice((Claim(TRAILS[0], 0, 3, 0),), inside=True)) is batch
    rest = chosen(batch, Choice((Claim(TRAILS[0], 1, 2, 0),), inside=False))
    assert rest.column("seq").to_pylist() == [0, 4]
