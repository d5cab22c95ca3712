"""``holdfast cluster``, ``submit``, ``withdraw`` and ``placement``: clusters of servers."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.flight.security import Security

_SUBMIT = """Hands a deployment to a cluster: any of its servers. Sources, and clients with a sink,
say which server they run on (listen = "east"); fragments say how many replicas they have, and the
cluster finds the servers for them. It is acknowledged when a majority of the servers has it on
disk. What was submitted can be looked at with the other commands, by the file that is written."""
_COLLECT = """Discards what is worth least of racing fragments, by how early each replica was:
feeds, which their readers revive by themselves when they need them, and whole replicas, until the
streams cost no more than is said. [collection] of the deployment file has it done every period."""
_CALL_SECONDS = 60.0


def add_cluster(commands: argparse._SubParsersAction[Any]) -> None:
    """Add the commands to the parser of ``holdfast``."""
    cluster = commands.add_parser("cluster", help="servers that form a cluster")
    actions = cluster.add_subparsers(required=True, metavar="ACTION")
    about = "the servers of a cluster, how far they are, who coordinates, what is submitted"
    status = actions.add_parser("status", help=about, description=about)
    status.add_argument("server", metavar="HOST:PORT", help="any of its servers")
    status.add_argument("--json", action="store_true", help="for programs; nothing is left out")
    _add_security(status)
    status.set_defaults(command=_status)

    for action, text, command in (
        ("vote", "give a server a vote, or take it away", _vote),
        ("forget", "forget a server that is gone for good", _forget),
    ):
        parser = actions.add_parser(action, help=text, description=text)
        parser.add_argument("server", metavar="HOST:PORT", help="any of its servers")
        if action == "vote":
            parser.add_argument("change", choices=["add", "remove"])
        parser.add_argument("name", metavar="NAME", help="of the server")
        _add_security(parser)
        parser.set_defaults(command=command)

    _add(commands, "submit", "hand a deployment to a cluster, which places it", _submit, _SUBMIT)
    _add(commands, "withdraw", "have a cluster stop what was submitted", _withdraw)

    placement = commands.add_parser("placement", help="where a cluster has put replicas")
    kinds = placement.add_subparsers(required=True, metavar="ACTION")
    why = "why each replica is where it is, and what the second best server would cost"
    _add(kinds, "explain", why, _explain)

    replicas = commands.add_parser(
        "replicas", help="discard, add, move or remove replicas of what was submitted to a cluster"
    )
    actions = replicas.add_subparsers(required=True, metavar="ACTION")
    now = "discard the least useful replicas and feeds now"
    collect = _add(actions, "collect", now, _collect, _COLLECT)
    collect.add_argument(
        "--cost", type=float, required=True, help="what all streams may cost: tuples a second × ms"
    )
    collect.add_argument(
        "--least", type=int, default=1, help="so many replicas of each fragment stay (default 1)"
    )
    add = _add(actions, "add", "add a replica of a fragment where it costs least", _add_replica)
    add.add_argument("fragment", metavar="FRAGMENT")
    add.add_argument("--at", metavar="SERVER", help="there, wherever it would cost least")
    to = "have another replica join at a server, and this one go when that one is stable"
    move = _add(actions, "move", to, _move)
    move.add_argument("replica", metavar="REPLICA")
    move.add_argument("server", metavar="SERVER")
    fewer = "have a replica end, and its fragment one fewer from now on"
    _add(actions, "remove", fewer, _remove).add_argument("replica", metavar="REPLICA")


def _add(
    commands: argparse._SubParsersAction[Any],
    name: str,
    text: str,
    command: Callable[[argparse.Namespace], int],
    description: str = "",
) -> argparse.ArgumentParser:
    """A command about a deployment that a cluster runs."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=description or text
    )
    parser.add_argument("deployment", metavar="DEPLOYMENT.toml")
    parser.add_argument("--to", required=True, metavar="HOST:PORT", help="any of its servers")
    parser.set_defaults(command=command)
    return parser


def _add_security(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--token-file", type=Path, metavar="FILE", help="a token for every role")
    parser.add_argument("--tokens", type=Path, metavar="DIR", help="a token for each role")
    parser.add_argument(
        "--security", type=Path, metavar="DIR", help="what holdfast security init made"
    )


def _call(address: str, security: Security, action: str, options: dict[str, Any]) -> Any:
    from holdfast.errors import HoldfastError, InputError
    from holdfast.flight.peers import call, explain

    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise InputError(f"a server is host:port, got {address!r}")
    try:
        location = security.location(host, int(port))
        return call(location, security, "holdfast", action, options, _CALL_SECONDS)
    except HoldfastError:
        raise
    except Exception as error:
        raise HoldfastError(f"server {address}: {explain(error)}") from None


def _security(options: argparse.Namespace) -> Security:
    from holdfast.flight.credentials import SecuritySpec

    return SecuritySpec.given(options.security, options.token_file, options.tokens).read()


def _vote(options: argparse.Namespace) -> int:
    asked = {"server": options.name, "votes": options.change == "add"}
    found = _call(options.server, _security(options), "cluster-vote", asked)
    print(f"votes: {', '.join(found['voters'])}")
    return 0


def _forget(options: argparse.Namespace) -> int:
    _call(options.server, _security(options), "cluster-forget", {"server": options.name})
    print(f"{options.name} is forgotten")
    return 0


def _status(options: argparse.Namespace) -> int:
    found = _call(options.server, _security(options), "cluster-status", {})
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


def _ask(options: argparse.Namespace, action: str, **more: Any) -> dict[str, Any]:
    """Ask a cluster about what was submitted to it; its answer, with the name of that."""
    from holdfast.deployment import load_deployment

    deployment = load_deployment(options.deployment)
    asked: dict[str, Any] = {"name": deployment.name, **more}
    asked.update(_call(options.to, deployment.security.read(), action, asked))
    return asked


def _withdraw(options: argparse.Namespace) -> int:
    found = _ask(options, "cluster-withdraw")
    print(f"{found['name']} is withdrawn; the servers stop it")
    return 0


def _explain(options: argparse.Namespace) -> int:
    found = _ask(options, "cluster-placement")
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
    found = _ask(options, "cluster-collect", cost=options.cost, least=options.least)
    print(found["said"] or f"nothing may go; its streams cost {found['before']:.0f}")
    return 0


def _add_replica(options: argparse.Namespace) -> int:
    found = _ask(options, "cluster-add", fragment=options.fragment, server=options.at)
    print(f"{found['replica']} at {found['server']} joins")
    return 0


def _move(options: argparse.Namespace) -> int:
    found = _ask(options, "cluster-move", replica=options.replica, server=options.server)
    print(
        f"{found['replica']} joins at {found['server']}; {options.replica} goes when it is stable"
    )
    return 0


def _remove(options: argparse.Namespace) -> int:
    found = _ask(options, "cluster-remove", replica=options.replica)
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
