"""The knobs of continuous checkpoints, as a deployment file has them."""

from __future__ import annotations

from typing import Any

from holdfast.core.settings import Continuous, Reconcile
from holdfast.errors import HoldfastError
from holdfast.times import microseconds

# As a file and as the settings call them.
CONTINUOUS_KNOBS = {
    "extent": "extent",
    "replay": "replay",
    "recover_within": "recover_within_us",
    "interval": "interval_us",
    "period": "period_us",
}
_WITHIN_US = 2_000_000


class KnobError(Exception):
    """A knob that cannot be right."""

    def __init__(self, knob: str, what: str) -> None:
        super().__init__(knob, what)
        self.knob = knob
        self.what = what


def read_continuous(found: dict[str, Any]) -> Continuous | None:
    """What a fragment's table says of continuous checkpoints; None if it has none."""
    given = {key: found[key] for key in CONTINUOUS_KNOBS if key in found}
    checkpoint = found.get("checkpoint")
    if checkpoint is None:
        if given:
            raise KnobError(next(iter(given)), 'it needs checkpoint = "continuous"')
        return None
    if checkpoint != "continuous":
        raise KnobError("checkpoint", f"it is continuous, or left out; got {checkpoint!r}")
    _check_protection(found)
    if found.get("reconcile") == Reconcile.UNDO.value:
        what = 'it keeps the state, undo keeps none; use reconcile = "restore"'
        raise KnobError("checkpoint", what)
    values = {CONTINUOUS_KNOBS[key]: _value(key, value) for key, value in given.items()}
    if not {"extent", "replay"} & given.keys():
        values.setdefault("recover_within_us", _WITHIN_US)
    try:
        return Continuous(**values)
    except ValueError as error:
        raise KnobError("checkpoint", str(error)) from None


def _check_protection(found: dict[str, Any]) -> None:
    waits = found.get("protection") in ("passive", "hybrid")
    if waits and not found.get("standby", {}).get("persist", True):
        what = "it is kept in a log on disk; leave standby.persist = false out"
        raise KnobError("checkpoint", what)


def _value(key: str, value: Any) -> int:
    if key in ("extent", "replay"):
        if not isinstance(value, int) or value <= 0:
            raise KnobError(key, f"a number above 0, got {value!r}")
        return value
    try:
        return microseconds(value)
    except HoldfastError as error:
        raise KnobError(key, str(error)) from None
