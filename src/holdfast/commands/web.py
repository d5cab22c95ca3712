"""``holdfast web``: the page of a deployment."""

from __future__ import annotations

import argparse

DEFAULT_PORT = 4780


def add_web(parser: argparse.ArgumentParser) -> None:
    """Add the options to the parser of ``holdfast web``."""
    parser.add_argument("--host", default="127.0.0.1", help="where to listen (default: 127.0.0.1)")
    parser.add_argument(
        "--port", type=int, default=DEFAULT_PORT, help=f"default: {DEFAULT_PORT}; 0: any"
    )
    parser.add_argument(
        "--name", action="append", default=[], help="a further name the server is called by"
    )
    parser.set_defaults(command=_web)


def _web(options: argparse.Namespace) -> int:
    from holdfast.web.serve import run_web

    return run_web(options)
