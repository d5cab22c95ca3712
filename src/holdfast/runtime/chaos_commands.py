"""``holdfast chaos``: make a part of a running deployment fail, and put it right again."""

from __future__ import annotations

import argparse
import signal
import time
from collections.abc import Callable
from typing import Any

_SIGNALS = {"kill": signal.SIGKILL, "pause": signal.SIGSTOP, "resume": signal.SIGCONT}


def add_chaos(chaos: argparse.ArgumentParser) -> None:
    """Add the failures to the parser of ``holdfast chaos DEPLOYMENT.toml``."""
    failures = chaos.add_subparsers(required=True, metavar="FAILURE")
    for name, text in (
        ("kill", "kill -9 a process and its JVM; its supervisor starts it again"),
        ("pause", "stop a process and its JVM where they are"),
        ("resume", "let a paused process go on"),
    ):
        parser = _failure(failures, name, text, _signal)
        parser.add_argument("process")
        parser.set_defaults(number=_SIGNALS[name])
    cut = _failure(failures, "cut", "cut the link between two nodes", _cut)
    cut.add_argument("source", metavar="NODE")
    cut.add_argument("target", metavar="NODE")
    cut.add_argument("--one-way", action="store_true", help="only what the first sends is lost")
    cut.add_argument("--seconds", type=float, help="heal it after so long (default: stays cut)")
    heal = _failure(failures, "heal", "heal a link, all links of a node, or every link", _heal)
    heal.add_argument("source", metavar="NODE", nargs="?")
    heal.add_argument("target", metavar="NODE", nargs="?")


def _failure(
    failures: Any, name: str, text: str, function: Callable[[argparse.Namespace], int]
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = failures.add_parser(name, help=text, description=text)
    parser.set_defaults(command=function)
    return parser


def _signal(options: argparse.Namespace) -> int:
    from holdfast.deployment import load_deployment
    from holdfast.runtime.supervisor import send_signal

    deployment = load_deployment(options.deployment)
    pid = send_signal(deployment, options.process, options.number)
    print(f"{options.number.name}: {options.process}, process {pid}")
    return 0


def _cut(options: argparse.Namespace) -> int:
    from holdfast.deployment import load_deployment
    from holdfast.runtime.chaos import cut, heal

    deployment = load_deployment(options.deployment)
    ends = (options.source, options.target)
    cut(deployment, *ends, one_way=options.one_way)
    arrow = "->" if options.one_way else "--"
    print(f"cut: {options.source} {arrow} {options.target}")
    if options.seconds is not None:
        try:
            time.sleep(options.seconds)
        finally:
            heal(deployment, *ends, one_way=options.one_way)
            print(f"healed: {options.source} {arrow} {options.target}")
    return 0


def _heal(options: argparse.Namespace) -> int:
    from holdfast.deployment import load_deployment
    from holdfast.runtime.chaos import heal

    silent = heal(load_deployment(options.deployment), options.source, options.target)
    print(f"healed: {' -- '.join(filter(None, (options.source, options.target))) or 'every link'}")
    if silent:
        print(f"{', '.join(silent)} did not answer; heal again when they are up")
    return 1 if silent else 0
