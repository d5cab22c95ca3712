"""Of two producers under one name the later one counts, and no batch is passed over."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core import producers as machine
from holdfast.core.fence import Fenced
from holdfast.core.producers import (
    BatchVerdict,
    ProducerPlace,
    Producers,
    SequenceGap,
    TooManyNames,
)


def test_a_producer_goes_on_where_its_name_stands() -> None:
    producers = Producers({"p": ProducerPlace(3, 7, 70)})
    assert producers.open("p") == ProducerPlace(4, 7, 70)
    assert producers.open("q") == ProducerPlace(1, 0, 0)
    assert producers.judge("p", 4, 8) is BatchVerdict.NEXT
    producers.took("p", 8, 80)
    assert producers.judge("p", 4, 8) is BatchVerdict.REPEAT
    assert producers.judge("p", 4, 2) is BatchVerdict.REPEAT


def test_the_older_of_two_is_refused_for_good() -> None:
    producers = Producers({})
    old, new = producers.open("p").epoch, producers.open("p").epoch
    with pytest.raises(Fenced, match="producer 'p' of epoch 1 is refused: another one opened"):
        producers.judge("p", old, 1)
    assert producers.judge("p", new, 1) is BatchVerdict.NEXT


def test_an_epoch_that_nobody_gave_is_refused() -> None:
    with pytest.raises(Fenced, match="only epochs up to 0 are known here"):
        Producers({}).judge("p", 3, 1)


def test_there_are_only_so_many_names_and_known_ones_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "MOST_NAMES", 2)
    producers = Producers({"p": ProducerPlace(3, 7, 70)})
    producers.open("q")
    with pytest.raises(TooManyNames, match=r"'r' is refused: this source has 2 names .* kept for"):
        producers.open("r")
    assert producers.open("p").epoch == 4
    for name in ("", "n" * 256):
        with pytest.raises(TooManyNames, match="1 to 255 characters"):
            producers.open(name)


def test_a_gap_is_refused_and_says_what_is_next() -> None:
    producers = Producers({"p": ProducerPlace(1, 4, 40)})
    with pytest.raises(SequenceGap, match=r"batch 6 .* batch 5 is next.* after tuple 40"):
        producers.judge("p", 1, 6)
    assert producers.place("p") == ProducerPlace(1, 4, 40)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9)), max_size=60))
def test_what_is_taken_is_every_batch_once_in_order(calls: list[tuple[int, int]]) -> None:
    """Whatever comes: opened again (0), or a batch of one of the last three epochs."""
    producers = Producers({})
    taken: list[int] = []
    for what, sequence in calls:
        if what == 0:
            assert producers.open("p").sequence == len(taken)
            continue
        epoch = producers.place("p").epoch - what + 1
        try:
            verdict = producers.judge("p", epoch, sequence)
        except (Fenced, SequenceGap):
            assert what > 1 or sequence > len(taken) + 1
            continue
        assert what == 1
        if verdict is BatchVerdict.NEXT:
            producers.took("p", sequence, sequence)
            taken.append(sequence)
    assert taken == list(range(1, len(taken) + 1))
