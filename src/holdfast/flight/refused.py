"""Refusals that a caller must obey: trying again changes nothing.

An error of Flight has words for people, and beside them bytes for programs; what a caller does next
hangs on the bytes alone.
"""

from __future__ import annotations

from enum import Enum

from pyarrow import flight


class Refused(Enum):
    """ASKED: not so, not here, or not by you. FENCED: a newer life of the caller's name is here."""

    ASKED = b"refused"
    FENCED = b"fenced"


def refused(text: str, why: Refused = Refused.ASKED) -> flight.FlightServerError:
    """The error that says so."""
    return flight.FlightServerError(text, why.value)


def refusal_of(error: BaseException) -> Refused | None:
    """Whether an error of a call is such a refusal, and which."""
    if isinstance(error, flight.FlightUnauthenticatedError | flight.FlightUnauthorizedError):
        return Refused.ASKED
    said = getattr(error, "extra_info", b"") or b""
    return next((each for each in Refused if each.value == said), None)
