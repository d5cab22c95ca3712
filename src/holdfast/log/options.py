"""The settings of a stream log."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

_KIB, _MIB = 1 << 10, 1 << 20


class Durability(StrEnum):
    """When written frames are forced to the disk, and so what an acknowledgement means.

    ALWAYS    before an append returns. What was appended survives a power cut. Appends from
              several threads share the wait.
    INTERVAL  every ``sync_interval_ms``, in the background. An append survives the death of
              the process at once, a power cut once ``durable_lsn`` has passed it.
    """

    ALWAYS = "always"
    INTERVAL = "interval"


@dataclass(frozen=True, slots=True)
class LogOptions:
    """How a log behaves; nothing here changes what its files mean, so all of it may change.

    segment_bytes      a segment is sealed when it would grow beyond this; trimming works by the
                       segment.
    preallocate_bytes  how much of a segment is reserved on the disk ahead of the writer. It
                       makes writing cheaper and takes that much room until the segment is
                       sealed or the log closed. 0 for none.
    direct_bytes       appends of at least so many bytes go past the system's cache, which costs
                       less (direct.py); for logs that are rarely read back. 0 for none.
    index_bytes        about how far apart the entries of the index are.
    checkpoint_bytes   how much may be written before the index file is brought up to date, and
                       so about how much is read when a log is opened after a crash.
    """

    durability: Durability = Durability.ALWAYS
    sync_interval_ms: float = 50.0
    segment_bytes: int = 64 * _MIB
    preallocate_bytes: int = 8 * _MIB
    direct_bytes: int = 0
    index_bytes: int = 64 * _KIB
    checkpoint_bytes: int = 8 * _MIB

    def __post_init__(self) -> None:
        object.__setattr__(self, "durability", Durability(self.durability))
        for name in ("sync_interval_ms", "segment_bytes", "index_bytes", "checkpoint_bytes"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be above zero; got {getattr(self, name)}")
        for name in ("preallocate_bytes", "direct_bytes"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is 0 or more; got {getattr(self, name)}")
