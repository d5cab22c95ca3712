from __future__ import annotations

from pathlib import Path

from holdfast.simulation.diagrams import page

PAGE = Path(__file__).parents[2] / "docs" / "design" / "states.md"


def test_the_diagrams_are_current() -> None:
    assert PAGE.read_text() == page(), (
        "run: python -m holdfast.simulation.diagrams docs/design/states.md"
    )
