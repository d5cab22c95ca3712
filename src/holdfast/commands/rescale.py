"""``holdfast rescale``: another number of shards while a deployment runs."""

from __future__ import annotations

import argparse
from typing import Any


def add_rescale(commands: argparse._SubParsersAction[Any]) -> None:
    """Add the command to the parser of ``holdfast``."""
    text = "give a fragment another number of shards while it runs"
    parser = commands.add_parser("rescale", help=text, description=text)
    parser.add_argument("deployment", metavar="DEPLOYMENT.toml")
    parser.add_argument("fragment", metavar="FRAGMENT")
    parser.add_argument("shards", metavar="SHARDS", type=int)
    parser.add_argument(
        "--seconds", type=float, default=300.0, help="for new shards to take over (default: 300)"
    )
    parser.set_defaults(command=_rescale)


def _rescale(options: argparse.Namespace) -> int:
    from holdfast.cluster.rescaling import rescale

    changed = rescale(
        options.deployment,
        options.fragment,
        options.shards,
        wait_s=options.seconds,
        tell=lambda text: print(text, flush=True),
    )
    print(f"{options.fragment} has {changed.shards} shards (epoch {changed.epoch})")
    if changed.unaware:
        print(f"not heard of it yet: {', '.join(changed.unaware)}; they will when they are back")
    return 0
