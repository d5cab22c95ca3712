"""Draws a network as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.operators import Operator


def describe(name: str, operators: Sequence[Operator], outputs: Mapping[str, list[str]]) -> str:
    """The graph as text: each operator with its inputs, columns and outputs."""
    lines = [f"network {name}"]
    return "\n".join(lines)


def draw(
    path: str, name: str, operators: Sequence[Operator], outputs: Mapping[str, list[str]]
) -> None:
    """Draw the graph into an .svg or .png file."""
