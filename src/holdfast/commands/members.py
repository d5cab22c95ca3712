"""``holdfast client`` and ``holdfast replica``: who takes part in a running deployment."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.cluster.members import Changed


def add_members(commands: argparse._SubParsersAction[Any]) -> None:
    """Add both commands to the parser of ``holdfast``."""
    client = _group(commands, "client", "retire a client of a deployment")
    retire = _action(client, "retire", "keep nothing for a client any more", _retire)
    retire.add_argument("client", metavar="CLIENT")
    replica = _group(commands, "replica", "change the replicas of a running deployment")
    remove = _action(replica, "remove", "take a replica out; it ends", _remove)
    remove.add_argument("replica", metavar="REPLICA")
    remove.add_argument(
        "--force", action="store_true", help="though no other one has all that it has"
    )


def _group(commands: Any, name: str, text: str) -> Any:
    parser = commands.add_parser(name, help=text, description=text)
    return parser.add_subparsers(required=True, metavar="ACTION")


def _action(actions: Any, name: str, text: str, function: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(name, help=text, description=text)
    parser.add_argument("deployment", metavar="DEPLOYMENT.toml")
    parser.set_defaults(command=function)
    return parser


def _retire(options: argparse.Namespace) -> int:
    from holdfast.cluster.members import retire_client

    return _say(f"{options.client} is retired", retire_client(options.deployment, options.client))


def _remove(options: argparse.Namespace) -> int:
    from holdfast.cluster.members import remove_replica

    changed = remove_replica(options.deployment, options.replica, force=options.force)
    return _say(f"{options.replica} is removed", changed)


def _say(what: str, changed: Changed) -> int:
    print(f"{what} (epoch {changed.epoch})")
    if changed.unaware:
        print(f"not heard of it yet: {', '.join(changed.unaware)}; they will when they are back")
    return 0
