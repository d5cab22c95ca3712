"""``holdfast log``: the command, without what it runs on."""

from __future__ import annotations

import argparse
from pathlib import Path

from holdfast.commands.arguments import Commands, add_command, add_group


def add_log(commands: Commands) -> None:
    """Add the command to the parser of ``holdfast``."""
    what = add_group(commands, "log", "look into the durable logs of streams", "WHAT")
    look = add_command(what, "inspect", "what is in a log, and whether it is intact", _inspect)
    look.add_argument("directory", type=Path, metavar="DIR", help="of one stream, or above several")
    look.add_argument("--json", action="store_true", help="as JSON, one line for each log")
    mend = add_command(what, "repair", "cut a damaged log where the damage begins", _repair)
    mend.add_argument("directory", type=Path, metavar="DIR", help="of one stream")
    mend.add_argument(
        "--yes", action="store_true", help="really cut it; without, say what would be cut"
    )


def _inspect(options: argparse.Namespace) -> int:
    from holdfast.log.commands import inspect_logs

    return inspect_logs(options)


def _repair(options: argparse.Namespace) -> int:
    from holdfast.log.commands import repair_log

    return repair_log(options)
