"""Reads the values of a deployment file: each with a message that names the place of a mistake."""

from __future__ import annotations

import re
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from holdfast.deployment import DeploymentError
from holdfast.times import microseconds

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?B)", re.IGNORECASE)
_SIZE_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}

E = TypeVar("E", bound=Enum)

# (table or key, what was written in it): what is to be written now. A checkpoint was four things.
_RENAMED = {
    ("timing", "checkpoint"): "record_interval",
    ("standby", "checkpoint"): "send",
    ("reconcile", "checkpoint"): "restore",
}


def _renamed(where: str, given: object) -> str | None:
    return _RENAMED.get((where.rpartition(".")[2], str(given)))


class TableReader:
    """What the tables of one file have in common."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def _error(self, where: str, what: str) -> DeploymentError:
        return DeploymentError(f"{self._file.name}: {where}: {what}")

    def _known(self, where: str, found: dict[str, Any], *names: str) -> None:
        unknown = [key for key in found if key not in names]
        if unknown:
            if (now := _renamed(where, unknown[0])) is not None:
                raise self._error(where, f"{unknown[0]!r} is called {now!r} now")
            raise self._error(
                where, f"{unknown[0]!r} means nothing here; known are {', '.join(names)}"
            )

    def _table(self, where: str, found: Any, *names: str) -> dict[str, Any]:
        if not isinstance(found, dict):
            raise self._error(where, f"a table is needed, got {found!r}")
        self._known(where, found, *names)
        return found

    def _need(self, where: str, found: dict[str, Any], name: str) -> Any:
        if name not in found:
            raise self._error(where, f"{name!r} is missing")
        return found[name]

    def _path(self, text: object) -> Path:
        return (self._file.parent / str(text)).resolve()

    def _flag(self, where: str, value: Any) -> bool:
        if not isinstance(value, bool):
            raise self._error(where, f"it is true or false; got {value!r}")
        return value

    def _count(self, where: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self._error(where, f"a number from 1 on, got {value!r}")
        return value

    def _length(self, where: str, value: Any, least: int = 1) -> int:
        try:
            return microseconds(value, least)
        except Exception as error:
            raise self._error(where, str(error)) from None

    def _choice(self, where: str, value: Any, choices: type[E]) -> E:
        try:
            return choices(value)
        except ValueError:
            if (now := _renamed(where, value)) is not None:
                raise self._error(where, f"{value!r} is called {now!r} now") from None
            known = ", ".join(str(each.value) for each in choices)
            raise self._error(where, f"it is one of {known}; got {value!r}") from None

    def _size(self, where: str, value: Any) -> int:
        """A number of bytes: 1000, "500 MB", "10 GB"."""
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
        match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
        if match is None or not float(match[1]):
            raise self._error(where, f'write it as a number of bytes or as "10 GB", got {value!r}')
        return round(float(match[1]) * _SIZE_UNITS[match[2].upper()])
