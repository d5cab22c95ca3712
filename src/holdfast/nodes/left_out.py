"""The rows that a replica has left out because the query's own code raises on them.

They are in ``dead-letters.jsonl`` of the node's directory, durable before the results of their
bucket go anywhere. A bucket that is computed again after a crash writes its rows again: a row is
there at least once, on each replica.
"""

from __future__ import annotations

from pathlib import Path

from holdfast.connect.dead_letters import DeadLetters
from holdfast.connect.source import Reject
from holdfast.nodes.journal import Journal
from holdfast.spark.rejected import Rejected


class LeftOut:
    """Writes rows down, in the thread of the jobs."""

    def __init__(self, path: Path, journal: Journal) -> None:
        self._letters = DeadLetters.reopened(path)
        self._journal = journal

    @property
    def count(self) -> int:
        return self._letters.count

    def take(self, rejected: tuple[Rejected, ...]) -> None:
        """Write rows down; if that fails so does their job, which is tried again."""
        for one in rejected:
            self._letters.add(one.operator, [Reject(one.reason, one.row)])
        try:
            self._letters.flush()
        except OSError:
            self._letters.forget(len(rejected))
            raise
        first = rejected[0]
        self._journal.write_once(
            "rows left out",
            first.operator,
            rows=len(rejected),
            reason=first.reason,
            file=str(self._letters.path),
        )

    def close(self) -> None:
        self._letters.close()
