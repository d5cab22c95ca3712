"""Durable stream logs: see ``StreamLog``."""

from holdfast.log.commit import Appended
from holdfast.log.errors import (
    DamagedLog,
    DiskFull,
    FrameTooLarge,
    LogBroken,
    LogClosed,
    LogError,
    LogLocked,
    OutOfOrder,
    SchemaMismatch,
    Trimmed,
    UnknownPosition,
    WriteFailed,
)
from holdfast.log.inspection import LogSummary, SegmentSummary, inspect
from holdfast.log.log import StreamLog
from holdfast.log.options import Durability, LogOptions
from holdfast.log.reader import Entry, LogReader
from holdfast.log.recovery import TailCut
from holdfast.log.repairs import Repair, repair
from holdfast.log.window_summary import WindowSummary

__all__ = [
    "Appended",
    "DamagedLog",
    "DiskFull",
    "Durability",
    "Entry",
    "FrameTooLarge",
    "LogBroken",
    "LogClosed",
    "LogError",
    "LogLocked",
    "LogOptions",
    "LogReader",
    "LogSummary",
    "OutOfOrder",
    "Repair",
    "SchemaMismatch",
    "SegmentSummary",
    "StreamLog",
    "TailCut",
    "Trimmed",
    "UnknownPosition",
    "WindowSummary",
    "WriteFailed",
    "inspect",
    "repair",
]
