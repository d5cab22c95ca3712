"""``holdfast client``, ``replica`` and ``rescale``: who takes part in a running deployment."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from holdfast.commands.arguments import Commands, add_group, for_deployment

if TYPE_CHECKING:
    from holdfast.cluster.members import Changed


def add_members(commands: Commands) -> None:
    """Add the commands to the parser of ``holdfast``."""
    client = add_group(commands, "client", "retire a client of a deployment")
    retire = for_deployment(client, "retire", "keep nothing for a client any more", _retire)
    retire.add_argument("client", metavar="CLIENT")
    retire.add_argument(
        "--to", metavar="HOST:PORT", help="any server of the cluster it was submitted to"
    )
    replica = add_group(commands, "replica", "change the replicas of a running deployment")
    remove = for_deployment(replica, "remove", "take a replica out; it ends", _remove)
    add = for_deployment(replica, "add", "give a fragment one more replica, which joins", _add)
    add.add_argument("fragment", metavar="FRAGMENT")
    add.add_argument(
        "place",
        metavar="PLACE",
        nargs="?",
        help="a host of this machine, or a server (default: this machine)",
    )
    move = for_deployment(replica, "move", "have a new replica take the place of one", _move)
    for each in (remove, move):
        each.add_argument("replica", metavar="REPLICA")
        each.add_argument(
            "--force", action="store_true", help="though no other one has all that it has"
        )
    move.add_argument("place", metavar="PLACE", help="a host of this machine, or a server")
    move.add_argument(
        "--seconds", type=float, default=300.0, help="for the new one to be stable (default: 300)"
    )
    shards = "give a fragment another number of shards while it runs"
    about = (
        f"{shards}: new ones start beside those that run, and take over. If that is interrupted, "
        f"or takes too long, give the same number again to go on, or the one before to call it "
        f"off: the new ones end, and those that ran go on."
    )
    rescale = for_deployment(commands, "rescale", shards, _rescale, about)
    rescale.add_argument("fragment", metavar="FRAGMENT")
    rescale.add_argument("shards", metavar="SHARDS", type=int)
    rescale.add_argument(
        "--seconds", type=float, default=300.0, help="for new shards to take over (default: 300)"
    )


def _retire(options: argparse.Namespace) -> int:
    from holdfast.cluster.members import Changed, retire_client

    if options.to is not None:
        from holdfast.commands.cluster import ask_cluster

        found = ask_cluster(options, "cluster-retire", client=options.client)
        return _say(f"{options.client} is retired", Changed(found["epoch"], ()))
    return _say(f"{options.client} is retired", retire_client(options.deployment, options.client))


def _remove(options: argparse.Namespace) -> int:
    from holdfast.cluster.members import remove_replica

    changed = remove_replica(options.deployment, options.replica, force=options.force)
    return _say(f"{options.replica} is removed", changed)


def _add(options: argparse.Namespace) -> int:
    from holdfast.cluster.members import add_replica
    from holdfast.deployment import LOOPBACK

    place = options.place or LOOPBACK
    name, changed = add_replica(options.deployment, options.fragment, place)
    return _say(f"{name} is added at {place}, and joins", changed)


def _move(options: argparse.Namespace) -> int:
    from holdfast.cluster.members import move_replica

    print(f"moving {options.replica}: a new replica joins first, at {options.place}", flush=True)
    name, changed = move_replica(
        options.deployment,
        options.replica,
        options.place,
        force=options.force,
        wait_s=options.seconds,
    )
    return _say(f"{name} at {options.place} has taken the place of {options.replica}", changed)


def _rescale(options: argparse.Namespace) -> int:
    from holdfast.cluster.rescaling import rescale

    changed = rescale(
        options.deployment,
        options.fragment,
        options.shards,
        wait_s=options.seconds,
        tell=lambda text: print(text, flush=True),
    )
    return _say(f"{options.fragment} has {changed.shards} shards", changed)


def _say(what: str, changed: Changed) -> int:
    print(f"{what} (epoch {changed.epoch})")
    if not changed.started:
        print(
            "it was never started from this directory, so nobody has heard of it: it counts when "
            "it is. If it runs elsewhere, say so on the machine that started it"
        )
    if changed.unaware:
        print(f"not heard of it yet: {', '.join(changed.unaware)}; they will when they are back")
    return 0
