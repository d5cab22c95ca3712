"""Changes one value in the text of a deployment file, and leaves comments and all else alone.

It knows plain tables and one-line values. Whether the text says what it should is seen by reading
it again; where it does not, the change is refused, and somebody has to write it by hand.
"""

from __future__ import annotations

import copy
import re
import tomllib
from typing import Any

from holdfast.errors import InputError

Value = str | int | None
_HEADER = re.compile(r"^\s*\[\s*([^\[\]]+?)\s*\]\s*(#.*)?$")
_COMMENT = re.compile(r"""^((?:"[^"]*"|[^"#])*?)(\s+#.*)?$""")


def set_value(text: str, table: tuple[str, ...], key: str, value: Value) -> str:
    """The text with ``key`` of ``table`` set; with None, without it."""
    wanted = copy.deepcopy(tomllib.loads(text))
    place: dict[str, Any] = wanted
    for name in table:
        place = place.setdefault(name, {})
    if value is None:
        place.pop(key, None)
    else:
        place[key] = value
    changed = _changed(text, table, key, value)
    try:
        if tomllib.loads(changed) == wanted:
            return changed
    except tomllib.TOMLDecodeError:
        pass
    raise InputError(
        f"{'.'.join((*table, key))} is written in a way that cannot be changed here; change it in "
        f"the file itself"
    )


def _changed(text: str, table: tuple[str, ...], key: str, value: Value) -> str:
    lines = text.splitlines()
    start, end = _range(lines, table)
    if start is None:
        return "\n".join([*lines, "", f"[{'.'.join(table)}]", _line(key, value), ""])
    mine = re.compile(rf"""^\s*(?:{re.escape(key)}|"{re.escape(key)}")\s*=""")
    for number in range(start, end):
        if mine.match(lines[number]):
            comment = _COMMENT.match(lines[number])
            kept = (comment.group(2) or "") if comment is not None else ""
            lines[number : number + 1] = [] if value is None else [_line(key, value) + kept]
            return "\n".join([*lines, ""])
    if value is not None:
        while end > start and not lines[end - 1].strip():
            end -= 1
        lines.insert(end, _line(key, value))
    return "\n".join([*lines, ""])


def _range(lines: list[str], table: tuple[str, ...]) -> tuple[int | None, int]:
    """The lines of a table, without its header."""
    start = None if table else 0
    for number, line in enumerate(lines):
        if line.lstrip().startswith("["):
            if start is not None:
                return start, number
            header = _HEADER.match(line)
            if header is not None and _names(header.group(1)) == table:
                start = number + 1
    return start, len(lines)


def _names(header: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in header.split("."))


def _line(key: str, value: Value) -> str:
    if isinstance(value, int):
        return f"{key} = {value}"
    quoted = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'{key} = "{quoted}"'
