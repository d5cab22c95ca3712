"""``holdfast log``: the command, without what it runs on."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add_log(commands: argparse._SubParsersAction[Any]) -> None:
    """Add the command to the parser of ``holdfast``."""
    text = "look into the durable logs of streams"
    log = commands.add_parser("log", help=text, description=text)
    what = log.add_subparsers(required=True, metavar="WHAT")
    look = what.add_parser("inspect", help="what is in a log, and whether it is intact")
    look.add_argument("directory", type=Path, metavar="DIR", help="of one stream, or above several")
    look.add_argument("--json", action="store_true", help="as JSON, one line for each log")
    look.set_defaults(command=_inspect)
    mend = what.add_parser("repair", help="cut a damaged log where the damage begins")
    mend.add_argument("directory", type=Path, metavar="DIR", help="of one stream")
    mend.add_argument(
        "--yes", action="store_true", help="really cut it; without, say what would be cut"
    )
    mend.set_defaults(command=_repair)


def _inspect(options: argparse.Namespace) -> int:
    from holdfast.log.commands import inspect_logs

    return inspect_logs(options)


def _repair(options: argparse.Namespace) -> int:
    from holdfast.log.commands import repair_log

    return repair_log(options)
