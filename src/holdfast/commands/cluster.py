"""``holdfast cluster``, ``submit``, ``withdraw`` and ``placement``: clusters of servers."""

from __future__ import annotations

import argparse
import json
from typing import Any

from holdfast.commands.arguments import (
    Command,
    Commands,
    add_command,
    add_group,
    add_secrets,
    for_deployment,
)

_SUBMIT = """Hands a deployment to a cluster: any of its servers. Sources, and clients with a sink,
say which server they run on (listen = "east"); fragments say how many replicas they have, and the
cluster finds the servers for them. It is acknowledged when a majority of the servers has it on
disk. What was submitted can be looked at with the other commands, by the file that is written."""
_COLLECT = """Discards what is worth least of racing fragments, by how early each replica was:
feeds, which their readers revive by themselves when they need them, and whole replicas, until the
streams cost no more than is said. [collection] of the deployment file has it done every period."""


def add_cluster(commands: Commands) -> None:
    """Add the commands to the parser of ``holdfast``."""
    cluster = add_group(commands, "cluster", "servers that form a cluster")
    about = "the servers of a cluster, how far they are, who coordinates, what is submitted"
    status = add_command(cluster, "status", about, _status)
    vote = add_command(cluster, "vote", "give a server a vote, or take it away", _vote)
    forget = add_command(cluster, "forget", "forget a server that is gone for good", _forget)
    for each in (status, vote, forget):
        each.add_argument("server", metavar="HOST:PORT", help="any of its servers")
        add_secrets(each)
    status.add_argument("--json", action="store_true", help="for programs; nothing is left out")
    vote.add_argument("change", choices=["add", "remove"])
    for each in (vote, forget):
        each.add_argument("name", metavar="NAME", help="of the server")

    _add(commands, "submit", "hand a deployment to a cluster, which places it", _submit, _SUBMIT)
    _add(commands, "withdraw", "have a cluster stop what was submitted", _withdraw)

    placement = add_group(commands, "placement", "where a cluster has put replicas")
    why = "why each replica is where it is, and what the second best server would cost"
    _add(placement, "explain", why, _explain)

    by_hand = "discard, add, move or remove replicas of what was submitted to a cluster"
    replicas = add_group(commands, "replicas", by_hand)
    now = "discard the least useful replicas and feeds now"
    collect = _add(replicas, "collect", now, _collect, _COLLECT)
    collect.add_argument(
        "--cost", type=float, required=True, help="what all streams may cost: tuples a second × ms"
    )
    collect.add_argument(
        "--least", type=int, default=1, help="so many replicas of each fragment stay (default 1)"
    )
    add = _add(replicas, "add", "add a replica of a fragment where it costs least", _add_replica)
    add.add_argument("fragment", metavar="FRAGMENT")
    add.add_argument("--at", metavar="SERVER", help="there, wherever it would cost least")
    to = "have another replica join at a server, and this one go when that one is stable"
    move = _add(replicas, "move", to, _move)
    move.add_argument("replica", metavar="REPLICA")
    move.add_argument("server", metavar="SERVER")
    fewer = "have a replica end, and its fragment one fewer from now on"
    _add(replicas, "remove", fewer, _remove).add_argument("replica", metavar="REPLICA")


def _add(
    commands: Commands, name: str, text: str, command: Command, about: str = ""
) -> argparse.ArgumentParser:
    """A command about a deployment that a cluster runs."""
    parser = for_deployment(commands, name, text, command, about)
    parser.add_argument("--to", required=True, metavar="HOST:PORT", help="any of its servers")
    return parser


def _ask_server(options: argparse.Namespace, action: str, **asked: Any) -> Any:
    from holdfast.cluster.remote import ask_server
    from holdfast.flight.credentials import SecuritySpec

    spec = SecuritySpec.given(options.security, options.token_file, options.tokens)
    return ask_server(options.server, spec.read(), action, asked)


def _vote(options: argparse.Namespace) -> int:
    votes = options.change == "add"
    found = _ask_server(options, "cluster-vote", server=options.name, votes=votes)
    print(f"votes: {', '.join(found['voters'])}")
    return 0


def _forget(options: argparse.Namespace) -> int:
    _ask_server(options, "cluster-forget", server=options.name)
    print(f"{options.name} is forgotten")
    return 0


def _status(options: argparse.Namespace) -> int:
    found = _ask_server(options, "cluster-status")
    if options.json:
        print(json.dumps(found, indent=1))
    else:
        show_status(found)
    return 0


def show_status(found: dict[str, Any]) -> None:
    """The cluster as a table."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    names = {card["address"]: name for name, card in found["servers"].items()}
    if found["unmanaged"]:
        console.print(f"[red]nobody coordinates[/red]: {found['unmanaged']}")
    else:
        who = names.get(found["coordinator"], found["coordinator"])
        console.print(
            f"{who} coordinates, elected in term {found['term']} by {len(found['voters'])} "
            f"servers that vote; version {found['version'][0]}.{found['version'][1]}"
        )
    table = Table("server", "address", "zone", "votes", "cpu", "memory", "ms to the others")
    for name, card in sorted(found["servers"].items()):
        delays = ", ".join(
            f"{names.get(address, address)} {delay:.1f}"
            for address, delay in sorted(card["delays_ms"].items())
            if delay is not None and address in names
        )
        votes = "yes" if card["address"] in found["voters"] else "no"
        table.add_row(
            name,
            card["address"],
            card["zone"],
            votes,
            f"{card['cpu']:.0%}",
            f"{card['memory']:.0%}",
            delays,
        )
    for address, each in sorted(found["missing"].items()):
        silent = "never heard" if each["silent_s"] is None else f"silent {each['silent_s']:.0f} s"
        votes = "yes" if address in found["voters"] else "no"
        table.add_row(each["name"], address, "", votes, "", "", f"[red]{silent}[/red]")
    console.print(table)
    for one, other in found.get("failed_together", []):
        console.print(f"{one} and {other} were seen to fail together; no fragment has both")
    for name, each in sorted(found["submissions"].items()):
        places = "; ".join(f"{one}: {', '.join(at)}" for one, at in each["placed"].items())
        note = f". {each['note']}" if each["note"] else ""
        if "cost" in each:
            gone = each["collected"]
            note += (
                f". Its streams cost {each['cost']:.0f}; collected: {gone['feeds']} feeds and "
                f"{gone['replicas']} replicas, {gone['revived']} feeds revived"
            )
        console.print(f"{name}: {places}{note}")
    for name, card in sorted(found["servers"].items()):
        for what, problem in card["problems"].items():
            console.print(f"[red]{name}: {what}: {problem}[/red]")


def _submit(options: argparse.Namespace) -> int:
    from holdfast.cluster.submitting import submit

    path, placed = submit(options.deployment, options.to, print)
    for fragment, servers in placed.items():
        print(f"{fragment}: {', '.join(servers)}")
    print(f"look at it with holdfast status {path}")
    return 0


def ask_cluster(options: argparse.Namespace, action: str, **more: Any) -> dict[str, Any]:
    """Ask a cluster about what was submitted to it; its answer, with the name of that."""
    from holdfast.cluster.remote import ask_server
    from holdfast.deployment import load_deployment

    deployment = load_deployment(options.deployment)
    asked: dict[str, Any] = {"name": deployment.name, **more}
    asked.update(ask_server(options.to, deployment.security.read(), action, asked))
    return asked


def _withdraw(options: argparse.Namespace) -> int:
    from holdfast.cluster.submitting import forget

    found = ask_cluster(options, "cluster-withdraw")
    forget(options.deployment)
    print(f"{found['name']} is withdrawn; the servers stop it")
    return 0


def _explain(options: argparse.Namespace) -> int:
    found = ask_cluster(options, "cluster-placement")
    for choice in found["choices"]:
        print(explained(choice))
    for feed in found["feeds"]:
        worth = "collected" if feed["utility"] is None else f"worth {feed['utility']:.2f}"
        print(
            f"{feed['stream']} from {feed['producer']} to {feed['consumer']}: {worth}, costs "
            f"{feed['cost']:.1f}"
        )
    print(f"all streams cost {found['cost']:.1f}")
    return 0


def _collect(options: argparse.Namespace) -> int:
    found = ask_cluster(options, "cluster-collect", cost=options.cost, least=options.least)
    print(found["said"] or f"nothing may go; its streams cost {found['before']:.0f}")
    return 0


def _add_replica(options: argparse.Namespace) -> int:
    found = ask_cluster(options, "cluster-add", fragment=options.fragment, server=options.at)
    print(f"{found['replica']} at {found['server']} joins")
    return 0


def _move(options: argparse.Namespace) -> int:
    found = ask_cluster(options, "cluster-move", replica=options.replica, server=options.server)
    print(
        f"{found['replica']} joins at {found['server']}; {options.replica} goes when it is stable"
    )
    return 0


def _remove(options: argparse.Namespace) -> int:
    found = ask_cluster(options, "cluster-remove", replica=options.replica)
    print(f"{options.replica} ends; {', '.join(found['left'])} goes on")
    return 0


def explained(choice: dict[str, Any]) -> str:
    """One choice in words."""
    text = (
        f"{choice['fragment']} at {choice['server']}: its streams cost {choice['cost']:.1f} "
        f"(rate × ms)"
    )
    if choice["runner_up"] is None:
        text += "; no other server may have it"
    else:
        server, cost = choice["runner_up"]
        text += f"; at {server}, the second best, they would cost {cost:.1f}"
    if choice.get("utility") is not None:
        text += f"; {choice['replica']} is worth {choice['utility']:.2f}"
    for server, why in sorted(choice["ruled_out"].items()):
        text += f"\n    {server} {why}"
    return text
