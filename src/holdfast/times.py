"""Durations and times, all in integer microseconds."""

from __future__ import annotations

import datetime
import re

from holdfast.errors import NetworkError

SECOND = 1_000_000
MILLISECOND = 1_000

_UNITS = {
    "us": 1,
    "microsecond": 1,
    "ms": MILLISECOND,
    "millisecond": MILLISECOND,
    "s": SECOND,
    "second": SECOND,
    "m": 60 * SECOND,
    "minute": 60 * SECOND,
    "h": 3600 * SECOND,
    "hour": 3600 * SECOND,
    "d": 86400 * SECOND,
    "day": 86400 * SECOND,
}
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*")

Duration = str | datetime.timedelta


def microseconds(duration: Duration, least: int = 1) -> int:
    """``"10 seconds"``, ``"200 ms"`` or a timedelta as microseconds; must be positive, or at
    least ``least``.
    """
    if isinstance(duration, datetime.timedelta):
        value = duration // datetime.timedelta(microseconds=1)
    else:
        match = _DURATION.fullmatch(duration.lower()) if isinstance(duration, str) else None
        unit = match[2] if match else ""
        factor = _UNITS.get(unit) or _UNITS.get(unit.removesuffix("s"))
        if match is None or factor is None:
            raise NetworkError(
                f"expected a duration such as '10 seconds', '200 ms' or a timedelta, "
                f"got {duration!r}"
            )
        value = round(float(match[1]) * factor)
    if value < least:
        raise NetworkError(f"a duration must be longer than zero, got {duration!r}")
    return value


def show_duration(micros: int) -> str:
    """A short text for a duration: ``10 s``, ``200 ms``, ``2 min``."""
    for name, unit in (("h", 3600 * SECOND), ("min", 60 * SECOND), ("s", SECOND), ("ms", 1000)):
        if micros >= unit and micros % unit == 0:
            return f"{micros // unit} {name}"
    return f"{micros} µs"


def show_moment(micros: int) -> str:
    """A tuple time as text: ``2026-03-01T12:00:00.200Z``; its number if it is none a date has."""
    try:
        moment = datetime.datetime.fromtimestamp(micros / 1e6, datetime.UTC)
    except (ValueError, OverflowError, OSError):
        return f"{micros} µs"
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03}Z"
