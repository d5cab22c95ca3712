"""What a coordinator does: it takes submissions, places them, and replaces what is lost.

Everything it decides is a new version of the register, made of the newest one; nothing is done
before a majority has it on disk, and then every server does its own part (``member.py``). It asks
servers for free ports and nodes for their state, which changes nothing. So a coordinator that is
deposed in the middle leaves either all of a decision or nothing.

A replica whose server is silent for ``replace_after_s`` is replaced: another one is placed where
that costs least and joins (``core/joining.py``); when it says itself that it is stable, the lost
one is removed. A replica that has long been dearer than it would be elsewhere moves in the same way
(``core/adaptation.py``). What only one disk has, entry points and fragments without another
replica, waits for its server.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.cluster.collector import Collector
from holdfast.cluster.desired import Desired, SentDeployment, Submission, checked_name, staged
from holdfast.cluster.members import with_replica
from holdfast.cluster.placed import fits, places_of, running_of, wanted_places, with_places
from holdfast.cluster.placing import (
    NotPlaced,
    check_places,
    choose_places,
    query_of,
)
from holdfast.cluster.rates import Rates
from holdfast.cluster.seat_loop import NotTaken
from holdfast.cluster.status import node_status
from holdfast.cluster.voting import Voting
from holdfast.core.adaptation import AdaptationSettings
from holdfast.core.managing import AddReplica, Kept, Managing, Order, RemoveReplicas, Replicas, Seen
from holdfast.core.records import Membership
from holdfast.deployment import Deployment, FragmentSpec, load_deployment
from holdfast.errors import HoldfastError
from holdfast.nodes.journal import Journal
from holdfast.plans.addresses import Addresses, Ports
from holdfast.plans.membership_file import change_membership, read_membership
from holdfast.plans.plan import read_plan
from holdfast.plans.topology import Topology

if TYPE_CHECKING:
    from holdfast.cluster.member import Member

_LOOK_SECONDS = 1.0
_PORTS_SECONDS = 10.0


class Coordinating:
    """Decides, while its server coordinates."""

    def __init__(
        self,
        member: Member,
        directory: Path,
        security: dict[str, Any],
        replace_after_s: float,
        settings: AdaptationSettings,
        journal: Journal,
    ) -> None:
        self._member = member
        self._directory = directory
        self._security = security
        self._replace_after_s = replace_after_s
        self._began = time.monotonic()
        self._journal = journal
        # One decision at a time: each rests on the one before.
        self.lock = threading.RLock()
        # What waits, by submission, for those who look.
        self.notes: dict[str, str] = {}
        self._said: dict[str, str] = {}
        # How many replicas it has moved.
        self.moved = 0
        self._settings = settings
        # What the staged files say, so that they are written when something has changed only.
        self._on_disk: dict[str, Submission] = {}
        self._rates: dict[str, Rates] = {}
        self._managing: dict[str, Managing] = {}
        self.collector = Collector(self, member, journal)
        self.voting = Voting(member, self.lock, self.staged, journal)

    # -- submitting ----------------------------------------------------------------------

    def submit(self, options: dict[str, Any]) -> dict[str, Any]:
        """Place a deployment and have the cluster run it; where its replicas are."""
        name = checked_name(options["name"])
        sent = Submission(**vars(msgspec.convert(options, SentDeployment)))
        with self.lock:
            version, desired = self._member.newest
            before = desired.submissions.get(name)
            if before is not None:
                submission = self._same(name, before, sent)
            else:
                submission = self._placed(name, sent, desired)
                version = self._member.offer(desired.with_submission(name, submission), version)
        self._journal.write("submitted", submission=name, placed=submission.placed)
        return {"version": list(version), "submission": vars(submission)}

    def _same(self, name: str, before: Submission, sent: Submission) -> Submission:
        """Submitting again what is there already changes nothing; something else is refused."""
        if (before.files, before.network) != (sent.files, sent.network) or not fits(
            sent.tables, before.tables
        ):
            raise NotPlaced(
                f"{name} is submitted already, and is another one: withdraw it first (holdfast "
                f"withdraw), or give this one another name"
            )
        return before

    def _placed(self, name: str, sent: Submission, desired: Desired) -> Submission:
        names = desired.names()
        tables = {**sent.tables, "name": name}
        tables["servers"] = {each: {"listen": address} for each, address in names.items()}
        check_places(tables, names)
        wanted, fixed = wanted_places(tables)
        # To be read at all, what is to be placed is said to be somewhere.
        anywhere = min(names)
        guessed = {each: fixed.get(each) or [anywhere] * count for each, count in wanted.items()}
        deployment = self.staged(name, replace(sent, tables=with_places(tables, guessed)))
        plan = read_plan(deployment)
        query = query_of(deployment, plan)
        placed = choose_places(query, self._member.there(), wanted, fixed)
        places = {each: list(found) for each, found in placed.places.items()}
        submission = replace(
            sent, tables=with_places(tables, places), placed=places, stays=sorted(fixed)
        )
        deployment = self.staged(name, submission)
        Topology(deployment, plan)
        self._on_disk.pop(name, None)
        Addresses.choose(deployment, self._ports_of(deployment))
        return submission.changed(deployment)

    def staged(self, name: str, submission: Submission) -> Deployment:
        directory = self._directory / name
        if self._on_disk.get(name) == submission:
            return load_deployment(directory / "deployment.json")
        self._on_disk.pop(name, None)
        found = staged(directory, submission, self._security)
        self._on_disk[name] = submission
        return found

    def _ports_of(self, deployment: Deployment) -> Callable[[str, list[str], list[str]], Ports]:
        def ask(server: str, nodes: list[str], processes: list[str]) -> Ports:
            endpoint = deployment.servers[server]
            asked = {"host": endpoint.host, "nodes": nodes, "metrics": processes}
            address = f"{endpoint.host}:{endpoint.port}"
            try:
                found: Ports = self._member.ask(address, "ports", asked, _PORTS_SECONDS)
            except Exception as error:
                raise NotPlaced(f"server {server} has no ports to give: {error}") from None
            return found

        return ask

    def withdraw(self, options: dict[str, Any]) -> dict[str, Any]:
        """Have the cluster run a submission no longer."""
        name = str(options["name"])
        with self.lock:
            version, desired = self._member.newest
            desired.submission(name)  # or it is refused
            version = self._member.offer(desired.without_submission(name), version)
        self._journal.write("withdrawn", submission=name)
        return {"version": list(version)}

    def retire(self, options: dict[str, Any]) -> dict[str, Any]:
        """Keep nothing for a client of a submission any more."""
        name, client = str(options["name"]), str(options["client"])
        with self.lock:
            deployment = self.staged(name, self._member.newest[1].submission(name))
            there = sorted(set(deployment.clients) - deployment.gone)
            if client not in there:
                raise NotPlaced(f"{name} has no client {client!r}; it has {', '.join(there)}")
            self.change(name, lambda known: known.without(client), {})
            epoch = read_membership(deployment.data).epoch
        self._journal.write("retired", submission=name, client=client)
        return {"epoch": epoch}

    # -- why it is where it is -----------------------------------------------------------

    def explain(self, options: dict[str, Any]) -> dict[str, Any]:
        """Why the replicas of a submission are where they are; any server can tell."""
        name = str(options["name"])
        submission = self._member.desired.submission(name)
        directory = self._directory.parent / "explained" / name
        deployment = staged(directory, submission, self._security)
        rates = self.rates_of(name).look(deployment)
        query = query_of(deployment, read_plan(deployment), rates)
        choices = self._member.there().ground(query).explain(places_of(deployment))
        worth = self.collector.usefulness(deployment, rates)
        names = {
            (spec.name, server): replica
            for spec in deployment.fragments.values()
            for replica, server in running_of(deployment, spec).items()
        }
        return {
            "rates": rates,
            "cost": worth["cost"],
            "feeds": worth["feeds"],
            "choices": [
                {
                    **asdict(each),
                    "replica": names[each.fragment, each.server],
                    "utility": worth["replicas"].get(names[each.fragment, each.server]),
                }
                for each in choices
            ],
        }

    # -- looking after it ----------------------------------------------------------------

    def run(self) -> None:
        while not self._member.stopping.wait(_LOOK_SECONDS):
            self._member.watch()
            if not self._member.is_coordinating:
                self.notes = {}
                self._managing.clear()
                self.collector.forget()
                continue
            # Whatever it is, it is tried again; somebody else may coordinate by then.
            try:
                self._take_in()
                for name in list(self._member.newest[1].submissions):
                    with self.lock:
                        self._look_after(name)
            except (HoldfastError, OSError, KeyError, ValueError) as error:
                self._say("coordinating", str(error))

    def _take_in(self) -> None:
        """Write down servers that are new: who they are, and which directory they have."""
        with self.lock:
            version, desired = self._member.newest
            fresh = desired
            for card in self._member.there().cards.values():
                address, name = str(card["address"]), str(card["name"])
                if address in desired.servers or name in fresh.names():
                    continue
                fresh = fresh.with_server(address, name, str(card["zone"]), str(card["life"]))
            if fresh != desired:
                with contextlib.suppress(NotTaken):
                    self._member.offer(fresh, version)

    def _look_after(self, name: str) -> None:
        desired = self._member.newest[1]
        submission = desired.submissions.get(name)
        if submission is None:
            return
        deployment = self.staged(name, submission)
        lost = self._lost(desired)
        notes = self._manage(name, deployment, submission, lost)
        if not notes:
            notes += self.collector.look(name, deployment)
        for source in deployment.sources.values():
            if source.endpoint.server in lost:
                notes.append(
                    f"{source.process} waits for {source.endpoint.server}, which has its log"
                )
        self.notes[name] = "; ".join(notes)
        self._say(name, self.notes[name])

    def _lost(self, desired: Desired) -> set[str]:
        """The names of servers that have been silent for too long.

        Who was never heard may be starting, as this one was not long ago.
        """
        silent, up_s = self._member.silent_s(), time.monotonic() - self._began
        there = self._member.there().cards
        return {
            each["name"]
            for address, each in desired.servers.items()
            if each["name"] not in there
            and address != self._member.address
            and silent.get(address, up_s) >= self._replace_after_s
        }

    def _manage(
        self, name: str, deployment: Deployment, submission: Submission, lost: set[str]
    ) -> list[str]:
        """Carry out what is decided about its replicas (``core/managing.py``); what is said."""
        fragments = [
            Replicas(
                spec.name,
                running_of(deployment, spec),
                self._wanted_of(name, spec),
                submission.moves,
                is_pair=spec.standby is not None,
                stays=spec.name in submission.stays,
            )
            for spec in deployment.fragments.values()
        ]
        managing = self._managing.setdefault(name, Managing(self._settings))
        gone = frozenset(lost)
        asked = managing.asks(fragments, gone)
        said = node_status(deployment, asked) if asked else {}
        states = {each: str(told.get("state")) for each, told in said.items()}
        kept = {
            each: Kept(told.get("incarnation", 0), told["trimmed_below"])
            for each, told in said.items()
            if "trimmed_below" in told
        }
        rates = self.rates_of(name).look(deployment)
        query = query_of(deployment, read_plan(deployment), rates)
        seen = Seen(gone, states, self._member.there().ground(query), bool(rates), kept)
        decision = managing.look(fragments, seen, time.monotonic_ns() // 1_000)
        if decision.order is None:
            return list(decision.notes)
        return [self._carry_out(name, deployment, decision.order)]

    def _carry_out(self, name: str, deployment: Deployment, order: Order) -> str:
        spec = deployment.fragments[order.fragment]
        match order:
            case AddReplica(_, like, server, lost, here):
                added = self.add_replica(name, deployment, spec, like, server, instead_of=here)
                if here is None:
                    return f"{added} at {server} takes the place of {lost}"
                where = running_of(deployment, spec)[here]
                return f"{added} at {server} is to take the place of {here} at {where}"
            case RemoveReplicas(_, gone):
                self._remove(name, spec, list(gone))
                return f"{', '.join(gone)} is removed"

    def rates_of(self, name: str) -> Rates:
        return self._rates.setdefault(name, Rates())

    def _wanted_of(self, name: str, spec: FragmentSpec) -> int:
        """How many replicas it is to have now."""
        counts = self._member.newest[1].submissions[name].counts
        return counts.get(spec.name, self.submitted_count(name, spec))

    def submitted_count(self, name: str, spec: FragmentSpec) -> int:
        """How many replicas it was submitted with."""
        tables = self._member.newest[1].submissions[name].tables
        return len(tables["fragments"][spec.name]["replicas"])

    def place_for(self, deployment: Deployment, spec: FragmentSpec, beside: list[str]) -> str:
        """Where one more would cost least."""
        ground = self._member.there().ground(query_of(deployment, read_plan(deployment)))
        place = ground.one_more(spec.name, beside, places_of(deployment))
        if place is None:
            raise NotPlaced(f"no server that is there can take one more replica of {spec.name}")
        return place

    def add_replica(
        self,
        name: str,
        deployment: Deployment,
        spec: FragmentSpec,
        like: str,
        place: str,
        counts: Mapping[str, int] | None = None,
        instead_of: str | None = None,
        stays: bool = False,
    ) -> str:
        """Add a replica at a server; with ``instead_of``, that one goes when it is stable.

        stays  from now on the replicas of the fragment are where somebody has said.
        """
        added = f"{spec.name}-{len(spec.processes) + 1}"
        larger = with_replica(deployment, spec, place)
        # Where it listens is known before anybody hears of it.
        self._on_disk.pop(name, None)
        Addresses.choose(larger, self._ports_of(larger))
        change = lambda known: known.with_another(added, like)  # noqa: E731
        moves = {} if instead_of is None else {instead_of: added}
        self.change(name, change, {added: place}, counts, moves, [spec.name] if stays else [])
        if moves:
            self.moved += 1
            self._journal.write("moves", submission=name, replica=instead_of, to=place, by=added)
        return added

    def _remove(self, name: str, spec: FragmentSpec, gone: list[str]) -> None:
        # Looked at again as it is now: there are never fewer than were asked for.
        deployment = self.staged(name, self._member.newest[1].submissions[name])
        running = running_of(deployment, deployment.fragments[spec.name])
        if len(set(running) - set(gone)) >= self._wanted_of(name, spec):
            self.change(name, lambda known: known.without(*gone), {})

    def change(
        self,
        name: str,
        change: Callable[[Membership], Membership],
        places: dict[str, str],
        counts: Mapping[str, int] | None = None,
        moves: Mapping[str, str] | None = None,
        stays: Sequence[str] = (),
    ) -> None:
        """Change who takes part, in the staged files first, and offer what came of it.

        counts  of fragments that are to have another number of replicas from now on.
        moves   replicas that go when others are stable.
        stays   fragments whose replicas are where somebody has said, from now on.
        """
        with self.lock:
            version, desired = self._member.newest
            submission = desired.submissions.get(name)
            if submission is None:
                return
            deployment = load_deployment(self._directory / name / "deployment.json")
            self._on_disk.pop(name, None)
            change_membership(deployment, change, places)
            deployment = load_deployment(deployment.path)
            changed = replace(
                submission.changed(deployment),
                placed=places_of(deployment),
                stays=sorted({*submission.stays, *stays}),
                counts={**submission.counts, **(counts or {})},
                moves={
                    here: there
                    for here, there in {**submission.moves, **(moves or {})}.items()
                    if not {here, there} & deployment.gone
                },
            )
            self._member.offer(desired.with_submission(name, changed), version)
        self._journal.write("membership", submission=name, added=places)

    def _say(self, what: str, text: str) -> None:
        if text and self._said.get(what) != text:
            self._journal.write("cluster", level="warning", submission=what, problem=text)
        self._said[what] = text
