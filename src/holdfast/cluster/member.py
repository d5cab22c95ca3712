"""One server in its cluster: who else is there, who coordinates, and what is to be run here.

    holdfast server --listen 10.0.0.2:4700 --name east --seeds 10.0.0.1:4700,10.0.0.2:4700,...

The seeds elect the coordinator (``core.election``); servers that are no seeds take part without a
vote. A server goes by its address among servers, and by its name in deployments. What all of them
have agreed on is in the register (``desired.py``); a server does what the register says of it, and
nothing else that another server tells it.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.cluster.cluster_metrics import ClusterMetrics
from holdfast.cluster.coordinating import Coordinating
from holdfast.cluster.desired import Desired
from holdfast.cluster.neighbours import Card, Machine, Neighbours
from holdfast.cluster.placing import Servers
from holdfast.cluster.seat_loop import (
    NotTaken,
    SeatLoop,
    plain_message,
    read_message,
)
from holdfast.core.adaptation import AdaptationSettings
from holdfast.core.cluster_messages import ClusterMessage, Heard, Met, Version
from holdfast.core.election import ElectionTiming
from holdfast.core.together import FailedTogether
from holdfast.deployment_checks import plain_name
from holdfast.durable import make_private, write_whole
from holdfast.errors import HoldfastError, InputError
from holdfast.flight.credentials import SecuritySpec
from holdfast.flight.server import Control
from holdfast.nodes.journal import Journal

# A server that was heard so long ago is there.
THERE_SECONDS = 5.0
_FORWARD_SECONDS = 50.0


@dataclass(frozen=True)
class ClusterOptions:
    """What ``holdfast server`` was told of its cluster.

    zone             what is likely to fail, or to be cut off, together with it.
    replace_after_s  how long a server is silent before its replicas are replaced.
    adaptation       how much better another server must be, and for how long, for a move.
    at               its latitude and longitude, if it says so.
    """

    name: str
    seeds: tuple[str, ...]
    zone: str = ""
    replace_after_s: float = 30.0
    adaptation: AdaptationSettings = field(default_factory=AdaptationSettings)
    timing: ElectionTiming = field(default_factory=ElectionTiming)
    at: tuple[float, ...] = ()


class ClusterError(HoldfastError):
    """What was asked cannot be done in this cluster now."""


class Member:
    """This server's part in its cluster."""

    def __init__(
        self,
        address: str,
        options: ClusterOptions,
        data: Path,
        security: SecuritySpec,
        apply: Callable[[Desired], dict[str, str]],
        journal: Journal,
    ) -> None:
        """``apply`` does what the desired state says of this server; what went wrong, by name."""
        check_name(options.name)
        self.address, self.name, self._options = address, options.name, options
        self._journal = journal
        directory = data / "cluster"
        make_private(directory)
        self._life = _life(directory / "life")
        self._machine = Machine()
        self._apply = apply
        self._newest: tuple[Version, str] | None = None
        self._together = FailedTogether()
        self._changed = threading.Event()
        self.stopping = threading.Event()
        self.problems: dict[str, str] = {}
        self._loop = SeatLoop(
            address,
            directory / "record.json",
            options.seeds,
            options.timing,
            lambda to, message: self._neighbours.send(to, message),
            self._obey,
            journal,
        )
        self._neighbours = Neighbours(
            address,
            options.name,
            security.read(),
            self.card,
            self._envelope,
            lambda known: self._loop.post(Met(known)),
            journal,
        )
        # Who is who is known at once; what is to run is not, before somebody says it is settled.
        self.desired = self.newest[1]
        self._coordinating = Coordinating(
            self,
            directory / "staged",
            security.table(),
            options.replace_after_s,
            options.adaptation,
            journal,
        )

    # -- life ----------------------------------------------------------------------------

    def start(self) -> None:
        self._loop.start()
        self._neighbours.meet(self._options.seeds)
        for target in (self._applying, self._coordinating.run):
            threading.Thread(target=target, name="holdfast-cluster", daemon=True).start()

    def close(self) -> None:
        self.stopping.set()
        self._changed.set()
        self._neighbours.close()
        self._loop.close()

    # -- what is known -------------------------------------------------------------------

    @property
    def is_coordinating(self) -> bool:
        return self._loop.view.is_coordinating

    @property
    def voters(self) -> tuple[str, ...]:
        return self._loop.view.voters

    @property
    def newest(self) -> tuple[Version, Desired]:
        """The newest version of the register here, settled or not."""
        view = self._loop.view
        return view.version, Desired.read(view.value)

    def offer(
        self,
        desired: Desired,
        based_on: Version,
        voters: tuple[str, ...] | None = None,
        within_s: float = 20.0,
    ) -> Version:
        """Have the cluster take another desired state; NotTaken if it does not."""
        try:
            return self._loop.offer(desired.text(), based_on, voters).result(within_s)
        except TimeoutError:
            raise NotTaken(
                f"a majority of the servers has not written it within {within_s:g} s; it may come "
                f"to count all the same",
                is_known=False,
            ) from None

    def ask(self, address: str, action: str, options: dict[str, Any], within_s: float) -> Any:
        return self._neighbours.ask(address, action, options, within_s)

    def card(self) -> Card:
        """What this server says of itself."""
        view = self._loop.view
        return {
            "address": self.address,
            "name": self.name,
            "zone": self._options.zone,
            "at": list(self._options.at),
            "life": self._life,
            "cores": len(os.sched_getaffinity(0)),
            **self._machine.look(),
            "delays_ms": {
                each.address: None if each.delay_ms is None else round(each.delay_ms, 3)
                for each in self._neighbours
            },
            "coordinator": view.coordinator,
            "term": view.term,
            "version": list(view.version),
            "voters": list(view.voters),
            "problems": {
                **self.problems,
                **({"disk": self._loop.disk_problem} if self._loop.disk_problem else {}),
            },
        }

    def metrics(self) -> ClusterMetrics:
        """What it knows of its cluster, for Prometheus."""
        return ClusterMetrics(lambda: self._status({}), lambda: self._coordinating.moved)

    def silent_s(self) -> dict[str, float]:
        """For how many seconds each other server has not answered."""
        now = time.monotonic()
        return {
            each.address: now - each.heard_at
            for each in self._neighbours
            if each.heard_at is not None
        }

    def there(self) -> Servers:
        """The servers that answer, this one included."""
        found = {self.name: self.card()}
        for neighbour in self._neighbours:
            heard_at = neighbour.heard_at
            if heard_at is not None and time.monotonic() - heard_at < THERE_SECONDS:
                found.setdefault(neighbour.card["name"], neighbour.card)
        told = {name: str(card["zone"]) for name, card in found.items()}
        told |= {
            each["name"]: each["zone"]
            for each in self.desired.servers.values()
            if each["name"] not in told
        }
        return Servers(found, self._together.zones(told))

    def watch(self) -> None:
        """Note who is silent now, and with whom."""
        known = self.desired.names()
        silent = known.keys() - self.there().cards.keys()
        self._together.look(known, silent, time.monotonic_ns() // 1_000)

    # -- what others ask -----------------------------------------------------------------

    def controls(self) -> dict[str, Control]:
        """What any server answers, and what it hands on to the coordinator."""
        coordinating = self._coordinating
        handed_on: dict[str, Control] = {
            "cluster-submit": coordinating.submit,
            "cluster-withdraw": coordinating.withdraw,
            "cluster-retire": coordinating.retire,
            "cluster-collect": coordinating.collector.collect,
            "cluster-add": coordinating.collector.add,
            "cluster-move": coordinating.collector.move,
            "cluster-remove": coordinating.collector.remove,
            "cluster-vote": coordinating.voting.change,
            "cluster-forget": coordinating.voting.forget,
        }
        return {
            "cluster-hello": self._hello,
            "cluster-message": self._message,
            "cluster-status": self._status,
            "cluster-placement": coordinating.explain,
            "cluster-submission": self._submission,
            **{each: self._to_coordinator(each, answer) for each, answer in handed_on.items()},
        }

    def _submission(self, options: dict[str, Any]) -> dict[str, Any]:
        """What was submitted, as this server has it, for whoever wants to look at it."""
        return {"submission": vars(self.desired.submission(str(options["name"])))}

    def _hello(self, options: dict[str, Any]) -> dict[str, Any]:
        card = options["card"]
        self._check_life(str(card["address"]), str(card["life"]), str(card["name"]))
        self._neighbours.meet([str(card["address"])])
        known = [each.address for each in self._neighbours]
        return {"card": self.card(), "known": known}

    def _envelope(self, message: ClusterMessage) -> dict[str, Any]:
        view = self._loop.view
        return {
            "from": self.address,
            "life": self._life,
            "name": self.name,
            # At formation nothing but the seeds says who votes, so all must have the same.
            "seeds": sorted(view.voters) if view.version == Version() else None,
            "message": plain_message(message),
        }

    def _message(self, options: dict[str, Any]) -> dict[str, Any]:
        sender = str(options["from"])
        self._check_life(sender, str(options["life"]), str(options["name"]))
        view = self._loop.view
        own = sorted(view.voters) if view.version == Version() else None
        if own is not None and options["seeds"] not in (None, own):
            raise ClusterError(
                f"{self.name} was started with the seeds {', '.join(own)}, and {options['name']} "
                f"with {', '.join(options['seeds'])}: start all with the same"
            )
        self._loop.post(Heard(sender, read_message(options["message"])))
        return {}

    def _check_life(self, address: str, life: str, name: str) -> None:
        """Raise if somebody else goes by this address or this name."""
        known = self.desired.servers.get(address)
        if known is not None and known["life"] != life:
            raise ClusterError(
                f"{address} was {known['name']} and has lost what it had on disk, votes too: it "
                f"cannot take part as the same. Stop it, have the cluster forget the old one "
                f"(holdfast cluster vote remove, then forget), and start it anew"
            )
        # A server that answers has its name before the register says so.
        there = self.there().cards.get(name, {}).get("address", address)
        other = self.desired.names().get(name, there)
        if other != address:
            raise ClusterError(
                f"two servers are called {name!r}, at {address} and {other}; "
                f"give each a name of its own: --name"
            )

    def _to_coordinator(self, action: str, control: Control) -> Control:
        """Whoever is asked hands it on to the coordinator."""

        def answer(options: dict[str, Any]) -> dict[str, Any]:
            if self.is_coordinating:
                return control(options)
            coordinator = self._loop.view.coordinator
            if not coordinator:
                raise ClusterError(f"nothing is managed now: {self.why_unmanaged()}")
            if options.get("handed_on"):
                raise ClusterError(f"{self.name} does not coordinate any more; try again")
            found: dict[str, Any] = self.ask(
                coordinator, action, {**options, "handed_on": True}, _FORWARD_SECONDS
            )
            return found

        return answer

    def why_unmanaged(self) -> str:
        """Why nobody coordinates; "" if somebody does."""
        view = self._loop.view
        if view.coordinator:
            return ""
        voters = view.voters
        there = {card["address"] for card in self.there().cards.values()}
        reached = [each for each in voters if each in there]
        missing = [each for each in voters if each not in there]
        text = f"{len(reached)} of {len(voters)} servers that vote can be reached"
        if 2 * len(reached) <= len(voters):
            return (
                f"{text}, which is no majority; {', '.join(missing)} cannot. What runs goes on; "
                f"nothing is placed or replaced until a majority is there"
            )
        return f"{text}; a coordinator is being elected"

    def _status(self, options: dict[str, Any]) -> dict[str, Any]:
        view = self._loop.view
        cards = self.there().cards
        silent = self.silent_s()
        known = {**self.desired.servers}
        for neighbour in self._neighbours:
            known.setdefault(neighbour.address, {"name": neighbour.card.get("name", "?")})
        missing = {
            address: {
                "name": each["name"],
                "silent_s": silent.get(address),
                "problem": getattr(self._neighbours.get(address), "problem", ""),
            }
            for address, each in known.items()
            if address not in {card["address"] for card in cards.values()}
        }
        return {
            "asked": self.name,
            "coordinator": view.coordinator,
            "term": view.term,
            "version": list(view.version),
            "voters": list(view.voters),
            "unmanaged": self.why_unmanaged(),
            "servers": dict(cards),
            "missing": missing,
            "failed_together": [list(pair) for pair in self._together.pairs()],
            "submissions": {
                name: {
                    "placed": each.placed,
                    "note": self._coordinating.notes.get(name, ""),
                    **self._coordinating.collector.status(name),
                }
                for name, each in self.desired.submissions.items()
            },
        }

    # -- obeying -------------------------------------------------------------------------

    def _obey(self, version: Version, value: str) -> None:
        self._newest = (version, value)
        self._changed.set()

    def _applying(self) -> None:
        """Do what the newest settled version says; again, while something could not be done."""
        again = False
        while not self.stopping.is_set():
            self._changed.wait(1.0 if again else None)
            self._changed.clear()
            if self.stopping.is_set() or self._newest is None:
                continue
            self.desired = Desired.read(self._newest[1])
            self._neighbours.meet(tuple(self.desired.servers))
            self.problems = self._apply(self.desired)
            again = bool(self.problems)


def check_name(name: str) -> None:
    if not plain_name(name) or name == "here" or ":" in name:
        raise InputError(f"--name is a plain name as deployments have it, got {name!r}")


def _life(path: Path) -> str:
    """The number of this directory."""
    if not path.exists():
        write_whole(path, secrets.token_hex(8).encode())
    return path.read_text().strip()
