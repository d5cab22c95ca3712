"""A view of a stream: stable tuples stay, tentative ones are taken back by time."""

from __future__ import annotations

import pyarrow as pa

from holdfast.client import Boundary, Tuples, Undo, View
from holdfast.core.frame import Missing, Why
from holdfast.frames import TIME


def table(*stimes: int) -> pa.Table:
    times = pa.array(list(stimes)).cast(TIME)
    return pa.table({"stime": times, "tmax": times, "number": list(stimes)})


def test_a_view_applies_corrections() -> None:
    view = View()
    assert view.table is None
    view.apply(Tuples(True, 0, table(1, 2)))
    view.apply(Boundary(3))
    view.apply(Tuples(False, 2, table(3, 5)))
    view.apply(Tuples(False, 4, table(7)))
    whole = view.table
    assert whole is not None
    assert whole["number"].to_pylist() == [1, 2, 3, 5, 7]
    assert whole["is_stable"].to_pylist() == [True, True, False, False, False]
    view.apply(Undo(6))
    view.apply(Tuples(True, 2, table(3, 4, 5)))
    view.apply(Boundary(6))
    stable, tentative = view.stable, view.tentative
    assert stable is not None
    assert tentative is not None
    assert stable["number"].to_pylist() == [1, 2, 3, 4, 5]
    assert tentative["number"].to_pylist() == [7]
    assert (view.stable_until, view.undone) == (6, 2)


def test_a_view_says_what_stands_tentatively_and_why() -> None:
    view = View()
    assert view.why is None
    view.apply(Tuples(False, 0, table(1), Why((Missing("load", 40),), 0.5)))
    view.apply(Tuples(False, 1, table(5), Why((Missing("load", 30), Missing("fan", 60)), 0.8)))
    assert view.why == Why((Missing("fan", 60), Missing("load", 30)), 0.5)
    view.apply(Undo(3))
    assert view.why == Why((Missing("fan", 60), Missing("load", 30)), 0.8)
    view.apply(Undo(9))
    assert view.why is None
