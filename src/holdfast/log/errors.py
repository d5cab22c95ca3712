"""What can go wrong with a stream log; each message names the file and says what to do."""

from __future__ import annotations

from pathlib import Path

from holdfast.errors import HoldfastError


class LogError(HoldfastError):
    """The base of every error of a stream log."""


class LogLocked(LogError):
    """Another process, or another object of this one, has the log open for writing."""


class LogClosed(LogError):
    """The log was closed; open it again."""


class LogBroken(LogError):
    """The disk failed in a way that leaves unknown what it holds: reopen the log to find out."""


class SchemaMismatch(LogError):
    """Tuples of another schema than the log's."""


class OutOfOrder(LogError):
    """A frame whose ids do not continue the stream; nothing of the append was written."""


class FrameTooLarge(LogError):
    """A frame that does not fit one block; split it."""


class DiskFull(LogError):
    """The file system has no room; nothing was written, a later append may succeed."""


class WriteFailed(LogError):
    """The file system refused a write for another reason than room; nothing was written."""


class Trimmed(LogError):
    """The position asked for was trimmed away."""


class UnknownPosition(LogError):
    """A log sequence number this log does not have."""


class DamagedLog(LogError):
    """Bytes that were durable once and are not what was written.

    Everything before ``offset`` of ``path`` is intact and readable.
    """

    def __init__(self, path: Path, offset: int, problem: str) -> None:
        self.path = path
        self.offset = offset
        self.problem = problem
        super().__init__(
            f"{path}: damaged at byte {offset}: {problem}. Everything before it is readable "
            f"(open the log with read_only=True). Put back a good copy of this file; or, where "
            f"every reader has acknowledged what this segment holds, trim past it; or cut the log "
            f"here with holdfast log repair {path.parent}, which keeps the rest aside. A replica "
            f"makes lost frames again, with the same ids, if its kept state is not newer than "
            f"them; an entry point cannot, so cut its log only if its tuples can be sent again."
        )
