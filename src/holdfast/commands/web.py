"""``holdfast web``: the page of a deployment, or of what a cluster runs."""

from __future__ import annotations

import argparse

from holdfast.commands.arguments import add_secrets

DEFAULT_PORT = 4780
_CLUSTER = """In place of a file, HOST:PORT of any server of a cluster: the page shows its servers
and what was submitted to it."""


def _port(text: str) -> int:
    if not text.isdigit() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"a port is a number from 0 to 65535, not {text!r}")
    return int(text)


def add_web(parser: argparse.ArgumentParser) -> None:
    """Add the options to the parser of ``holdfast web``."""
    parser.add_argument("--host", default="127.0.0.1", help="where to listen (default: 127.0.0.1)")
    parser.add_argument(
        "--port", type=_port, default=DEFAULT_PORT, help=f"default: {DEFAULT_PORT}; 0: any"
    )
    parser.add_argument(
        "--name", action="append", default=[], help="a further name the server is called by"
    )
    cluster = parser.add_argument_group("cluster", _CLUSTER)
    cluster.add_argument(
        "--submission", metavar="NAME", help="the one that is shown first, if there are several"
    )
    add_secrets(cluster)
    parser.set_defaults(command=_web)


def _web(options: argparse.Namespace) -> int:
    from holdfast.web.serve import run_web

    return run_web(options)
