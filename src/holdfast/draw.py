"""Shows a network: as text, and as a picture."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

from holdfast.errors import NetworkError
from holdfast.layout import Area, Box, Drawing, lay_out
from holdfast.operators import Operator, SourceOperator, StatefulOperator

_COLORS = {  # fill and border
    "source": ("#e8f1fb", "#3b7dc4"),
    "stateless": ("#ffffff", "#8a8f98"),
    "stateful": ("#fdf3e0", "#d08a1d"),
    "output": ("#e7f5ec", "#2e9158"),
}
_EDGE, _INK, _FAINT, _FRAGMENT = "#8a8f98", "#1f2328", "#6a737d", "#f6f7f9"
_FONT = "DejaVu Sans, Verdana, Helvetica, Arial, sans-serif"


def describe(name: str, operators: Sequence[Operator], outputs: Mapping[str, list[str]]) -> str:
    """The graph as text: each operator with its inputs, columns and outputs."""
    lines = [f"network {name}"]
    width = max((len(operator.name) for operator in operators), default=0)
    indent = " " * (width + 4)
    for fragment in dict.fromkeys(operator.fragment for operator in operators):
        lines.append(f"fragment {fragment}")
        for operator in operators:
            if operator.fragment == fragment:
                lines.append(f"  {operator.name:<{width}}  {operator.label}")
                lines += [indent + detail for detail in _details(operator, outputs)]
    return "\n".join(lines)


def _details(operator: Operator, outputs: Mapping[str, list[str]]) -> list[str]:
    columns = ", ".join(
        f"{field.name} {field.dataType.simpleString()}{'' if field.nullable else ' not null'}"
        for field in operator.schema.fields
    )
    lines = []
    if operator.inputs:
        lines.append(f"from     {', '.join(each.name for each in operator.inputs)}")
    if isinstance(operator, SourceOperator):
        keys = f", key {', '.join(operator.keys)}" if operator.keys else ""
        lines.append(f"stime    {operator.stime or 'the time of arrival'}{keys}")
    lines.append(f"columns  {columns}")
    if operator.name in outputs:
        lines.append(f"output   {', '.join(outputs[operator.name])}")
    return lines


def draw(
    path: str, name: str, operators: Sequence[Operator], outputs: Mapping[str, list[str]]
) -> None:
    """Draw the graph into an .svg or .png file."""
    layout = lay_out(operators, outputs, {each.name: kind_of(each) for each in operators})
    match Path(path).suffix.lower():
        case ".svg":
            Path(path).write_text(_svg(name, layout), encoding="utf-8")
        case ".png":
            _png(path, name, layout)
        case other:
            raise NetworkError(
                f"cannot draw network {name!r} into {path!r}: the name must end in .svg or "
                f".png, not {other!r}"
            )


def kind_of(operator: Operator) -> str:
    """source, stateless or stateful."""
    if isinstance(operator, SourceOperator):
        return "source"
    return "stateful" if isinstance(operator, StatefulOperator) else "stateless"


def _svg(name: str, layout: Drawing) -> str:
    width, height = layout.width, layout.height
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" font-family="{_FONT}">',
        f"<title>network {_escaped(name)}</title>",
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        f'markerHeight="7" orient="auto"><path d="M0,0.5 L7.5,4 L0,7.5 z" fill="{_EDGE}"/>'
        "</marker></defs>",
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        _svg_text(layout.margin, 24, f"network {name}", 15, _INK, "start", bold=True),
    ]
    for area in layout.fragments:
        parts.append(_svg_rect(area, 10, _FRAGMENT, "#d0d7de", ' stroke-dasharray="4 3"'))
        label = f"fragment {area.name}"
        parts.append(_svg_text(area.x + 10, area.y + 16, label, 11, _FAINT, "start"))
    parts += [_svg_edge(points) for points in layout.edges]
    for box in layout.boxes:
        parts.append(_svg_rect(box, 6, *_COLORS[box.kind]))
        for text, y, size, bold in box.lines:
            color = _INK if bold else _FAINT
            parts.append(_svg_text(box.x + box.width / 2, y, text, size, color, "middle", bold))
    return "\n".join([*parts, "</svg>", ""])


def _svg_rect(where: Box | Area, radius: int, fill: str, border: str, more: str = "") -> str:
    return (
        f'<rect x="{where.x:.1f}" y="{where.y:.1f}" width="{where.width:.1f}" '
        f'height="{where.height:.1f}" rx="{radius}" fill="{fill}" stroke="{border}" '
        f'stroke-width="1.4"{more}/>'
    )


def _svg_edge(points: list[tuple[float, float]]) -> str:
    curve = f"M{points[0][0]:.1f},{points[0][1]:.1f}"
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        bend = (x1 - x0) / 2
        curve += f" C{x0 + bend:.1f},{y0:.1f} {x1 - bend:.1f},{y1:.1f} {x1:.1f},{y1:.1f}"
    return (
        f'<path d="{curve}" fill="none" stroke="{_EDGE}" stroke-width="1.4" '
        f'marker-end="url(#arrow)"/>'
    )


def _svg_text(
    x: float, y: float, text: str, size: float, color: str, anchor: str, bold: bool = False
) -> str:
    weight = ' font-weight="600"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" fill="{color}" '
        f'text-anchor="{anchor}"{weight}>{_escaped(text)}</text>'
    )


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _png(path: str, name: str, layout: Drawing) -> None:
    # Imported here: matplotlib takes a second, and only a picture needs it.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
    from matplotlib.path import Path as Curve

    points = 72.0
    figure = Figure(figsize=(layout.width / points, layout.height / points), dpi=144)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_xlim(0, layout.width)
    axes.set_ylim(layout.height, 0)
    axes.axis("off")
    axes.text(layout.margin, 24, f"network {name}", fontsize=15, weight="bold", color=_INK)
    for area in layout.fragments:
        corner, radius = (area.x, area.y), "round,pad=0,rounding_size=10"
        axes.add_patch(
            FancyBboxPatch(
                corner, area.width, area.height, radius, fc=_FRAGMENT, ec="#d0d7de", ls="--"
            )
        )
        axes.text(area.x + 10, area.y + 16, f"fragment {area.name}", fontsize=11, color=_FAINT)
    for edge in layout.edges:
        vertices, codes = [edge[0]], [Curve.MOVETO]
        for (x0, y0), (x1, y1) in itertools.pairwise(edge):
            bend = (x1 - x0) / 2
            vertices += [(x0 + bend, y0), (x1 - bend, y1), (x1, y1)]
            codes += [Curve.CURVE4] * 3
        axes.add_patch(
            FancyArrowPatch(
                path=Curve(vertices, codes),
                arrowstyle="-|>,head_length=5,head_width=2.5",
                color=_EDGE,
                lw=1.4,
                shrinkA=0,
                shrinkB=0,
            )
        )
    for box in layout.boxes:
        fill, border = _COLORS[box.kind]
        shape = "round,pad=0,rounding_size=6"
        axes.add_patch(
            FancyBboxPatch((box.x, box.y), box.width, box.height, shape, fc=fill, ec=border, lw=1.4)
        )
        for text, y, size, bold in box.lines:
            axes.text(
                box.x + box.width / 2,
                y,
                text,
                fontsize=size,
                ha="center",
                color=_INK if bold else _FAINT,
                weight="bold" if bold else "normal",
            )
    figure.savefig(path)
