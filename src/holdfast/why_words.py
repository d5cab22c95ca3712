"""Why something is tentative, in words and as plain values."""

from __future__ import annotations

from typing import Any

from holdfast.core.frame import Missing, Why
from holdfast.times import show_moment


def show_why(why: Why) -> str:
    """``load missing since 2026-03-01T12:00:00.200Z, on 67 % of the usual data``."""
    missing = [f"{one.stream} missing since {show_moment(one.since)}" for one in why.missing]
    share = [] if why.share is None else [f"on {100 * why.share:.0f} % of the usual data"]
    return ", ".join([*missing, *share]) or "nobody knows why"


def plain_why(why: Why) -> dict[str, Any]:
    """For JSON: ``{"missing": {"load": 1700000000000000}, "share": 0.67}``."""
    return {"missing": {one.stream: one.since for one in why.missing}, "share": why.share}


def read_why(found: dict[str, Any]) -> Why:
    """The reverse."""
    missing = (Missing(str(name), int(since)) for name, since in found["missing"].items())
    return Why(tuple(missing), found["share"])
