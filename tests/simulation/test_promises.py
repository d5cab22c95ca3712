"""The table of what each kind of delivery promises: the docs', and what the simulator finds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from holdfast.core.settings import Delivery
from holdfast.simulation.checkers import Stall, Violation
from holdfast.simulation.mutations import MUTATIONS
from holdfast.simulation.promises import PROMISES, Failure, Promise, cell, has_another, outcome

DOCS = Path(__file__).parents[2] / "docs" / "design" / "shards.md"
Cell = tuple[Delivery, Failure]
CELLS = [pytest.param(*cell, id=f"{cell[0].value} {cell[1].name.lower()}") for cell in PROMISES]


def told() -> dict[Cell, str]:
    """What the docs say, cell by cell: the bold words that each begins with."""
    section = DOCS.read_text().partition("\n## Delivery\n")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    titles = [title.strip() for title in rows[0]]
    found = {}
    for row in rows[2:]:
        kind = Delivery(row[0].strip().strip("`"))
        for failure in Failure:
            words = re.match(r"\s*\*\*(.+?)\*\*", row[titles.index(failure.value)])
            assert words is not None, f"{kind.value}, {failure.value}: says no promise"
            found[kind, failure] = words[1]
    return found


def test_the_docs_promise_what_is_checked() -> None:
    assert told() == {cell: str(promise) for cell, promise in PROMISES.items()}
    assert set(PROMISES) == {(kind, failure) for kind in Delivery for failure in Failure}


def check(delivery: Delivery, failure: Failure, seed: int) -> None:
    scenario = cell(delivery, failure, seed)
    found = outcome(scenario)
    assert found.keeps(PROMISES[delivery, failure]), found
    assert found.held
    if delivery is Delivery.EXACTLY_ONCE and has_another(scenario):
        assert not found.ended


def is_broken(delivery: Delivery, failure: Failure, seed: int) -> bool:
    try:
        return not outcome(cell(delivery, failure, seed)).keeps(PROMISES[delivery, failure])
    except (Violation, Stall):
        return True


@pytest.mark.slow
@pytest.mark.parametrize(("delivery", "failure"), CELLS)
def test_every_promise_is_kept(delivery: Delivery, failure: Failure) -> None:
    check(delivery, failure, 0)


@pytest.mark.thorough
@pytest.mark.parametrize(("delivery", "failure"), CELLS)
def test_every_promise_is_kept_whatever_the_network(delivery: Delivery, failure: Failure) -> None:
    for seed in range(1, 16):
        check(delivery, failure, seed)


@pytest.mark.slow
@pytest.mark.parametrize(("delivery", "failure"), CELLS)
def test_what_is_not_promised_happens(delivery: Delivery, failure: Failure) -> None:
    """Else the table could promise more. What comes again, readers leave out by its id."""
    promise = PROMISES[delivery, failure]
    missing = {name for name in ("may_lose", "may_end") if getattr(promise, name)}
    for seed in range(20):
        if not missing:
            return
        found = outcome(cell(delivery, failure, seed))
        missing -= {"may_lose"} if found.lost else set()
        missing -= {"may_end"} if found.ended else set()
    assert not missing


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "delivery", "seed"),
    [
        ("record at least once what nobody has confirmed", Delivery.AT_LEAST_ONCE, 21),
        ("acknowledge at least once what only came", Delivery.AT_LEAST_ONCE, 0),
        ("go on at most once by the ids of another life", Delivery.AT_MOST_ONCE, 0),
    ],
)
def test_a_mistake_breaks_its_cell(name: str, delivery: Delivery, seed: int) -> None:
    (mistake,) = [one for one in MUTATIONS if one.name == name]
    with mistake.applied():
        assert is_broken(delivery, Failure.PROCESS, seed)
    assert not is_broken(delivery, Failure.PROCESS, seed)


def test_promises_are_said_in_words() -> None:
    assert str(Promise(may_lose=True)) == "may lose, never doubles"
    assert str(Promise(may_double=True, may_end=True)) == "never loses, or says so"
