"""The errors a user of Holdfast can meet; each message says what to do."""

from __future__ import annotations


class HoldfastError(Exception):
    """The base of every error Holdfast raises on purpose."""


class Removed(HoldfastError):
    """A client that was retired or a replica that was removed: it takes part no longer."""


class NetworkError(HoldfastError):
    """A query network that cannot run, found while it is built.

    The message names the operator and the fix.
    """


class InputError(HoldfastError):
    """A source, or the data in it, that cannot be read as declared."""


class StateError(HoldfastError):
    """A state directory or packed state that does not fit the network that reads it."""
