"""Where the boxes of a network's picture go: a layered layout, left to right.

1. Each operator's layer is one more than its deepest input's; sources that feed later layers
   only move right beside them, outputs come last.
2. An edge that skips layers passes through them as a waypoint with a place of its own.
3. Within a layer, places are sorted by the mean position of their neighbours, to and fro, so
   that few edges cross.
4. Each layer is as wide as its widest box; boxes are spread around the middle.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.operators import Operator

_TEXT, _SMALL = 11.0, 9.0
_LINE, _PADDING = 14.0, 9.0
_WRAP = 26
_GAP_X, _GAP_Y, _MARGIN, _TOP = 46.0, 18.0, 24.0, 62.0
_CHARACTER = 0.62  # mean width of a character, in font sizes
_SWEEPS = 12
# What Spark wraps around an expression when it shows a Column.
_COLUMN = re.compile(r"Column<'(.*?)'>")


@dataclass(frozen=True)
class Box:
    """One operator or output; ``lines`` are text, baseline, font size and whether it is bold."""

    kind: str
    x: float
    y: float
    width: float
    height: float
    lines: list[tuple[str, float, float, bool]]


@dataclass(frozen=True)
class Area:
    """The part of the picture a fragment takes."""

    name: str
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Drawing:
    """Everything placed."""

    width: float
    height: float
    boxes: list[Box]
    edges: list[list[tuple[float, float]]]
    fragments: list[Area]
    margin: float = _MARGIN


@dataclass(eq=False)
class _Place:
    """A box or a waypoint within a layer."""

    layer: int
    kind: str = "waypoint"
    title: list[str] = field(default_factory=list)
    detail: list[str] = field(default_factory=list)
    fragment: str = ""
    inputs: list[_Place] = field(default_factory=list)
    readers: list[_Place] = field(default_factory=list)
    x: float = 0.0
    y: float = 0.0  # the middle

    @property
    def height(self) -> float:
        lines = len(self.title) + len(self.detail)
        return lines * _LINE + 2 * _PADDING if lines else 8.0

    @property
    def width(self) -> float:
        bold = max((len(line) for line in self.title), default=0) * _TEXT * 1.08
        plain = max((len(line) for line in self.detail), default=0) * _SMALL
        return max(bold, plain) * _CHARACTER + 2 * _PADDING


def lay_out(
    operators: Sequence[Operator], outputs: Mapping[str, list[str]], kinds: Mapping[str, str]
) -> Drawing:
    """Place every operator and output."""
    places = _places(operators, outputs, kinds)
    layers = _layers(places)
    for sweep in range(_SWEEPS):
        _sort(layers, forward=sweep % 2 == 0)
    width = _place_columns(layers)
    height = _place_rows(layers)
    real = [place for place in places if place.kind != "waypoint"]
    return Drawing(
        width,
        height,
        [_box(place) for place in real],
        [edge for place in real for edge in _edges_into(place)],
        _areas(real),
    )


def shown_label(operator: Operator) -> str:
    """What it does, without what Spark wraps around its expressions."""
    return _COLUMN.sub(r"\1", operator.label)


def _places(
    operators: Sequence[Operator], outputs: Mapping[str, list[str]], kinds: Mapping[str, str]
) -> list[_Place]:
    named: dict[str, _Place] = {}
    for operator in operators:
        layer = max((named[each.name].layer + 1 for each in operator.inputs), default=0)
        place = _Place(layer, kinds[operator.name], fragment=operator.fragment)
        if place.kind == "source":
            place.title = [operator.name]
            place.detail = textwrap.wrap(", ".join(operator.schema.fieldNames()), _WRAP + 4)
        else:
            place.title = textwrap.wrap(shown_label(operator), _WRAP)[:5]
        place.inputs = [named[each.name] for each in operator.inputs]
        named[operator.name] = place
    for operator in reversed(operators):  # a source stands right before what reads it
        readers = [named[each.name].layer for each in operators if operator in each.inputs]
        if not operator.inputs and readers:
            named[operator.name].layer = min(readers) - 1
    last = max((place.layer for place in named.values()), default=0) + 1
    places = list(named.values())
    for name, listed in outputs.items():
        for output in listed:
            columns = next(each for each in operators if each.name == name).schema.fieldNames()
            place = _Place(last, "output", [output], textwrap.wrap(", ".join(columns), _WRAP + 4))
            place.fragment = ""
            place.inputs = [named[name]]
            places.append(place)
    return places


def _layers(places: list[_Place]) -> list[list[_Place]]:
    """The places by layer, with waypoints where an edge passes a layer."""
    layers: list[list[_Place]] = [[] for _ in range(max(place.layer for place in places) + 1)]
    for place in places:
        layers[place.layer].append(place)
    for place in places:
        place.inputs = [_chain(layers, each, place) for each in place.inputs]
        for each in place.inputs:
            each.readers.append(place)
    return layers


def _chain(layers: list[list[_Place]], start: _Place, end: _Place) -> _Place:
    """The last place of a chain of waypoints from ``start`` to just before ``end``."""
    for layer in range(start.layer + 1, end.layer):
        waypoint = _Place(layer, inputs=[start])
        start.readers.append(waypoint)
        layers[layer].append(waypoint)
        start = waypoint
    return start


def _sort(layers: list[list[_Place]], forward: bool) -> None:
    for layer in layers if forward else reversed(layers):
        order = {
            id(place): index / len(each) for each in layers for index, place in enumerate(each)
        }
        means = {}
        for place in layer:
            near = place.inputs if forward else place.readers
            values = [order[id(each)] for each in near]
            means[id(place)] = sum(values) / len(values) if values else order[id(place)]
        layer.sort(key=lambda place: means[id(place)])


def _place_columns(layers: list[list[_Place]]) -> float:
    x = _MARGIN + 8
    for layer in layers:
        width = max(place.width for place in layer)
        for place in layer:
            place.x = x + (width - (place.width if place.title else 0.0)) / 2
        x += width + _GAP_X
    return x - _GAP_X + _MARGIN + 8


def _place_rows(layers: list[list[_Place]]) -> float:
    """Stack each layer around the middle, then draw places towards their neighbours."""
    heights = [sum(place.height + _GAP_Y for place in layer) - _GAP_Y for layer in layers]
    tallest = max(heights)
    for layer, height in zip(layers, heights, strict=True):
        y = _TOP + (tallest - height) / 2
        for place in layer:
            place.y = y + place.height / 2
            y += place.height + _GAP_Y
    for sweep in range(_SWEEPS):
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            _pull(layer, _TOP, _TOP + tallest)
    return _TOP + tallest + _MARGIN + 8


def _pull(layer: list[_Place], top: float, bottom: float) -> None:
    wanted = []
    for place in layer:
        near = [each.y for each in (*place.inputs, *place.readers)]
        wanted.append(sum(near) / len(near) if near else place.y)
    floor = top
    for place, y in zip(layer, wanted, strict=True):  # down, keeping the gaps
        place.y = max(y, floor + place.height / 2)
        floor = place.y + place.height / 2 + _GAP_Y
    ceiling = bottom
    for place in reversed(layer):  # and up again where that went over the edge
        place.y = min(place.y, ceiling - place.height / 2)
        ceiling = place.y - place.height / 2 - _GAP_Y


def _box(place: _Place) -> Box:
    top = place.y - place.height / 2
    lines = []
    y = top + _PADDING + _TEXT - 0.5
    for text in place.title:
        lines.append((text, y, _TEXT, True))
        y += _LINE
    for text in place.detail:
        lines.append((text, y, _SMALL, False))
        y += _LINE
    return Box(place.kind, place.x, top, place.width, place.height, lines)


def _edges_into(place: _Place) -> list[list[tuple[float, float]]]:
    edges = []
    count = len(place.inputs)
    for index, before in enumerate(sorted(place.inputs, key=lambda each: each.y)):
        # Several edges into one box meet it at different heights, and do not cross there.
        spread = (index - (count - 1) / 2) * min(14.0, place.height / (count + 1))
        points = [(place.x, place.y + spread)]
        while before.kind == "waypoint":
            points.append((before.x, before.y))
            before = before.inputs[0]
        points.append((before.x + before.width, before.y))
        edges.append(points[::-1])
    return edges


def _areas(places: list[_Place]) -> list[Area]:
    """The rectangle around each fragment, if there is more than one."""
    names = list(dict.fromkeys(place.fragment for place in places if place.fragment))
    if len(names) < 2:
        return []
    areas = []
    for name in names:
        mine = [place for place in places if place.fragment == name]
        left = min(place.x for place in mine) - 12
        right = max(place.x + place.width for place in mine) + 12
        top = min(place.y - place.height / 2 for place in mine) - 24
        bottom = max(place.y + place.height / 2 for place in mine) + 12
        areas.append(Area(name, left, top, right - left, bottom - top))
    return areas
