"""``holdfast log``: look into a stream log, and cut a damaged one."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from holdfast.log.files import Files
from holdfast.log.inspection import Contents, LogSummary, inspect
from holdfast.log.recovery import segment_paths
from holdfast.log.repairs import repair


def inspect_logs(options: argparse.Namespace) -> int:
    """0 if every log is intact, 1 if one is damaged."""
    intact = True
    for directory in _logs_below(options.directory):
        summary = inspect(directory)
        intact = intact and summary.is_intact
        print(json.dumps(_plain(summary)) if options.json else _told(summary))
    return 0 if intact else 1


def _logs_below(directory: Path) -> list[Path]:
    """The directory itself if it has no logs below it: ``inspect`` says what is wrong then."""
    found = {path.parent for path in directory.rglob("*.seg")} if directory.is_dir() else set()
    return sorted(found) or [directory]


def repair_log(options: argparse.Namespace) -> int:
    summary = inspect(options.directory)
    if summary.is_intact:
        print(f"{options.directory}: intact; nothing to repair")
        return 0
    damage = summary.damage[0]
    later = [
        path for path in segment_paths(Files(), options.directory) if path.name > damage.path.name
    ]
    if not options.yes:
        print(f"{damage.path}: damaged at byte {damage.offset}: {damage.problem}")
        print(f"would be cut there{''.join(f', and {path.name} set aside' for path in later)}")
        print("A replica may compute again what is cut off; an entry point loses it.")
        print("To cut it: holdfast log repair --yes", options.directory)
        return 1
    done = repair(options.directory)
    assert done is not None
    print(f"{done.path}: cut at byte {done.offset}; what followed is kept:")
    for path in done.set_aside:
        print(f"  {path}")
    return 0


def figures(summary: LogSummary) -> dict[str, Any]:
    """What there is to say of a log, by name; values are numbers, text or None."""
    contents, tail = summary.contents, summary.tail
    found: dict[str, Any] = {
        "bytes": summary.size_bytes,
        "segments": len(summary.segments),
        "first_id": contents.first_id,
        "next_id": None if tail is None else tail.next_id,
        "boundary": None if tail is None else tail.boundary,
        "stime_min": contents.stime_min,
        "stime_max": contents.stime_max,
    }
    windows = summary.windows
    if windows is not None:
        # What a recovery from the window states would read and compute again, and how long.
        found |= {
            "window_states": windows.states,
            "open_windows": windows.open_windows,
            "extent": windows.extent,
            "extent_from": windows.extent_from,
            "replay": windows.replay,
            "replay_from": windows.replay_from,
            "recovery_seconds": windows.recovery_s,
        }
    if summary.torn_tail is not None:
        found["torn_tail_bytes"] = summary.torn_tail.dropped_bytes
    return found


def by_kind(contents: Contents) -> dict[str, dict[str, int]]:
    """Frames, tuples and bytes of each kind of frame."""
    return {
        kind: {
            "frames": contents.frames[kind],
            "tuples": contents.tuples.get(kind, 0),
            "bytes": contents.bytes[kind],
        }
        for kind in sorted(contents.frames)
    }


def _plain(summary: LogSummary) -> dict[str, Any]:
    return {
        "log": str(summary.directory),
        **figures(summary),
        "kinds": by_kind(summary.contents),
        "damage": [str(each) for each in summary.damage],
    }


def _told(summary: LogSummary) -> str:
    lines = [f"{summary.directory}: {'intact' if summary.is_intact else 'DAMAGED'}"]
    times = ("boundary", "stime_min", "stime_max", "extent_from", "replay_from")
    for name, value in figures(summary).items():
        if value is not None:
            shown = _time(value) if name in times else f"{value:,}"
            lines.append(f"  {name.replace('_', ' '):<20} {shown}")
    for kind, counts in by_kind(summary.contents).items():
        told = f"{counts['frames']:,} frames, {counts['bytes']:,} bytes"
        if counts["tuples"]:
            told = f"{counts['tuples']:,} tuples in {told}"
        lines.append(f"  {kind:<20} {told}")
    lines += [f"  {damage}" for damage in summary.damage]
    return "\n".join(lines)


def _time(micros: int) -> str:
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(micros // 1_000_000))
    return f"{stamp}.{micros % 1_000_000:06} UTC"
