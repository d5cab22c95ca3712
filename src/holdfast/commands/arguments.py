"""How a command is added to the parser of ``holdfast``, and the arguments that several take."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

Command = Callable[[argparse.Namespace], int]
Commands = Any  # argparse's action for subparsers, whose type is private


def add_command(
    commands: Commands, name: str, text: str, command: Command | None = None, about: str = ""
) -> argparse.ArgumentParser:
    """A command with what it does in a line, and in ``about`` at length."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=about or text
    )
    if command is not None:
        parser.set_defaults(command=command)
    return parser


def for_deployment(
    commands: Commands, name: str, text: str, command: Command | None = None, about: str = ""
) -> argparse.ArgumentParser:
    """A command about a deployment, whose file it is given."""
    parser = add_command(commands, name, text, command, about)
    parser.add_argument("deployment", metavar="DEPLOYMENT.toml")
    return parser


def add_group(commands: Commands, name: str, text: str, metavar: str = "ACTION") -> Commands:
    """A command that has commands of its own."""
    parser = add_command(commands, name, text)
    return parser.add_subparsers(required=True, metavar=metavar)


def add_secrets(parser: argparse._ActionsContainer) -> None:
    """With what somebody may talk to servers (``SecuritySpec.given``)."""
    parser.add_argument("--token-file", type=Path, metavar="FILE", help="a token for every role")
    parser.add_argument("--tokens", type=Path, metavar="DIR", help="a token for each role")
    parser.add_argument(
        "--security", type=Path, metavar="DIR", help="what holdfast security init made"
    )
