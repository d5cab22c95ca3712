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
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cluster.collector import Collector
from holdfast.cluster.desired import Desired, Submission, checked_name, staged
from holdfast.cluster.placed import fits, places_of, running_of, wanted_places, with_places
from holdfast.cluster.placing import (
    NotPlaced,
    check_places,
    choose_places,
    explain_places,
    is_worth_it,
    query_of,
)
from holdfast.cluster.rates import Rates
from holdfast.cluster.seat_loop import NotTaken
from holdfast.cluster.status import node_status
from holdfast.cluster.voting import Voting
from holdfast.core.adaptation import Adaptation, AdaptationSettings
from holdfast.core.placement import Choice
from holdfast.core.records import Membership
from holdfast.deployment import (
    Deployment,
    FragmentSpec,
    add_replica_to,
    load_deployment,
    read_tables,
)
from holdfast.deployment_file import DeploymentReader
from holdfast.errors import HoldfastError
from holdfast.nodes.journal import Journal
from holdfast.plans.addresses import Addresses, Ports
from holdfast.plans.membership_file import change_membership
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
        self._adaptations: dict[str, Adaptation] = {}
        self.collector = Collector(self, member, journal)
        self.voting = Voting(member, self.lock, self.staged, journal)

    # -- submitting ----------------------------------------------------------------------

    def submit(self, options: dict[str, Any]) -> dict[str, Any]:
        """Place a deployment and have the cluster run it; where its replicas are."""
        name = checked_name(options["name"])
        sent = Submission(
            dict(options["tables"]),
            str(options["network"]),
            dict(options["files"]),
            str(options["plan"]),
        )
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
            if name not in desired.submissions:
                known = ", ".join(sorted(desired.submissions)) or "nothing"
                raise NotPlaced(f"{name!r} is not submitted; submitted are: {known}")
            version = self._member.offer(desired.without_submission(name), version)
        self._journal.write("withdrawn", submission=name)
        return {"version": list(version)}

    # -- why it is where it is -----------------------------------------------------------

    def explain(self, options: dict[str, Any]) -> dict[str, Any]:
        """Why the replicas of a submission are where they are; any server can tell."""
        name = str(options["name"])
        submission = self._member.desired.submissions.get(name)
        if submission is None:
            known = ", ".join(sorted(self._member.desired.submissions)) or "nothing"
            raise NotPlaced(f"{name!r} is not submitted; submitted are: {known}")
        directory = self._directory.parent / "explained" / name
        deployment = staged(directory, submission, self._security)
        rates = self.rates_of(name).look(deployment)
        query = query_of(deployment, read_plan(deployment), rates)
        choices = explain_places(query, self._member.there(), places_of(deployment))
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
                    "fragment": each.fragment,
                    "server": each.server,
                    "replica": names[each.fragment, each.server],
                    "utility": worth["replicas"].get(names[each.fragment, each.server]),
                    "cost": each.cost,
                    "runner_up": each.runner_up,
                    "ruled_out": dict(each.ruled_out),
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
                self._adaptations.clear()
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
        notes = []
        for spec in deployment.fragments.values():
            note = self._look_at(name, deployment, spec, lost)
            if note:
                notes.append(note)
        if not notes:
            notes += self._adapt(name, deployment, submission)
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
        """The names of servers that have been silent for too long."""
        silent = self._member.silent_s()
        there = self._member.there().cards
        return {
            each["name"]
            for address, each in desired.servers.items()
            if each["name"] not in there
            and address != self._member.address
            and silent.get(address, self._replace_after_s) >= self._replace_after_s
        }

    def _look_at(
        self, name: str, deployment: Deployment, spec: FragmentSpec, lost: set[str]
    ) -> str:
        """Replace what a fragment has lost; what is to be said of it."""
        at = dict(zip(spec.processes, spec.replicas, strict=True))
        running = [each for each in at if each not in deployment.gone]
        gone = [each for each in running if at[each].server in lost]
        if not gone:
            return ""
        left = [each for each in running if each not in gone]
        if spec.standby is not None or not left or len(gone) + len(left) < 2:
            where = ", ".join(sorted({str(at[each].server) for each in gone}))
            return f"{', '.join(gone)} waits for {where}: nobody else has what it has on disk"
        if len(left) < self._wanted_of(name, spec):
            place = self.place_for(deployment, spec, [str(at[each].server) for each in left])
            added = self.add_replica(name, deployment, spec, left[0], place)
            return f"{added} at {place} takes the place of {gone[0]}"
        said = node_status(deployment, left)
        waiting = [each for each in left if said[each].get("state") != "stable"]
        if waiting:
            return f"{', '.join(waiting)} is not stable yet; {', '.join(gone)} goes when it is"
        self._remove(name, spec, gone)
        return f"{', '.join(gone)} is removed"

    # -- moving --------------------------------------------------------------------------

    def _adapt(self, name: str, deployment: Deployment, submission: Submission) -> list[str]:
        """Move a replica to a server where it has long been better off; what is to be said."""
        rates = self.rates_of(name).look(deployment)
        query = query_of(deployment, read_plan(deployment), rates)
        choices = explain_places(query, self._member.there(), places_of(deployment))
        for spec in deployment.fragments.values():
            note = self._end_move(name, deployment, spec, choices)
            if note:
                return [note]
        movable = [
            spec.name
            for spec in deployment.fragments.values()
            if spec.name not in submission.stays
            and spec.standby is None
            and len(running_of(deployment, spec)) > 1
        ]
        adaptation = self._adaptations.setdefault(name, Adaptation(self._settings))
        known = [
            choice
            for choice in choices
            if choice.fragment in movable and is_worth_it(choice, query)
        ]
        # What flows is known before anything moves for it.
        move = adaptation.look(known, time.monotonic_ns() // 1_000) if rates else None
        if move is None:
            return []
        spec = deployment.fragments[move.fragment]
        running = running_of(deployment, spec)
        here = next(each for each, server in running.items() if server == move.here)
        like = next(each for each in running if each != here)
        added = self.add_replica(name, deployment, spec, like, move.there, instead_of=here)
        return [f"{added} at {move.there} is to take the place of {here} at {move.here}"]

    def _end_move(
        self, name: str, deployment: Deployment, spec: FragmentSpec, choices: list[Choice]
    ) -> str:
        """Remove what moves, or of more replicas than were asked for the dearest, once all are
        stable."""
        running = running_of(deployment, spec)
        if spec.standby is not None or len(running) <= self._wanted_of(name, spec):
            return ""
        said = node_status(deployment, list(running))
        waiting = [each for each in running if said[each].get("state") != "stable"]
        if waiting:
            return f"{', '.join(waiting)} is not stable yet; one more goes when it is"
        moves = self._member.newest[1].submissions[name].moves
        moved = [each for each in running if moves.get(each) in running]
        if moved:
            self._remove(name, spec, moved[:1])
            return f"{moved[0]} is removed"
        costs = {each.server: each.cost for each in choices if each.fragment == spec.name}
        servers = self._member.there()
        zones = {at: servers.zone(at) or at for at in servers.cards}
        listed = [zones.get(server, server) for server in running.values()]

        def rank(replica: str) -> tuple[bool, float, str]:
            server = running[replica]
            # Two of one zone are one too many there, whatever they cost.
            return listed.count(zones.get(server, server)) > 1, costs.get(server, 0.0), replica

        dearest = max(running, key=rank)
        self._remove(name, spec, [dearest])
        return f"{dearest} is removed"

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
        query = query_of(deployment, read_plan(deployment))
        servers = self._member.there()
        fixed = {
            fragment: [server for server in found if server in servers.cards]
            for fragment, found in places_of(deployment).items()
        }
        fixed[spec.name] = beside
        pinned = {each: at for each, at in query.pinned.items() if at in servers.cards}
        known = {*pinned, *query.fragments}
        flows = tuple(flow for flow in query.flows if {flow.producer, flow.consumer} <= known)
        wanted = {each: len(found) for each, found in fixed.items()}
        wanted[spec.name] += 1
        query = replace(query, pinned=pinned, flows=flows)
        return choose_places(query, servers, wanted, fixed).places[spec.name][-1]

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
        tables = read_tables(deployment.path)
        add_replica_to(tables["fragments"][spec.name], added, place)
        larger = replace(DeploymentReader(deployment.path).deployment(tables), gone=deployment.gone)
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
            if places:
                change_membership(deployment, change, places)
            else:
                change_membership(deployment, change)
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
