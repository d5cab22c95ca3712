"""What must hold in every run, one promise a file. A broken one raises ``Violation``."""

from __future__ import annotations


class Violation(Exception):
    """A promise is broken: the answer is wrong, late or lost."""

    def __init__(self, promise: str, what: str) -> None:
        super().__init__(f"{promise}: {what}")
        self.promise = promise


class Stall(Violation):
    """All is well again and still nothing moves."""
