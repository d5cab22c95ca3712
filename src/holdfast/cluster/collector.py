"""What a coordinator discards of what was submitted, and adds again: every period, and by hand.

What is decided is a change of membership in the register, as all others are (``coordinating.py``):
feeds that are collected, replicas that are gone or added. ``collecting.py`` decides.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypedDict

from holdfast.cluster.collecting import (
    Collecting,
    Decision,
    Watched,
    counted_so_far,
    decided,
    watch,
)
from holdfast.cluster.members import able_among
from holdfast.cluster.placed import running_of
from holdfast.cluster.placing import NotPlaced
from holdfast.cluster.status import is_stable, node_status
from holdfast.core.collection import Collection
from holdfast.core.records import Membership
from holdfast.deployment import Deployment, FragmentSpec
from holdfast.nodes.journal import Journal
from holdfast.plans.membership_file import read_membership
from holdfast.plans.plan import read_plan

if TYPE_CHECKING:
    from holdfast.cluster.coordinating import Coordinating
    from holdfast.cluster.member import Member


class Usefulness(TypedDict):
    """What is worth how much.

    cost      of all streams that are used.
    replicas  what each replica of a racing fragment is worth.
    feeds     every feed at one; its utility is None if it was collected.
    """

    cost: float
    replicas: dict[str, float]
    feeds: list[dict[str, Any]]


class Collector:
    """Decides what goes, while its server coordinates."""

    def __init__(self, coordinating: Coordinating, member: Member, journal: Journal) -> None:
        self._coordinating = coordinating
        self._member = member
        self._journal = journal
        self._collecting: dict[str, Collecting] = {}

    def status(self, name: str) -> dict[str, Any]:
        """What the streams of a submission cost, and what was collected; known to who decides."""
        found = self._collecting.get(name)
        if found is None or found.cost is None:
            return {}
        return {"cost": round(found.cost, 1), "collected": dict(found.totals)}

    def usefulness(self, deployment: Deployment, rates: Mapping[str, float]) -> Usefulness:
        """What replicas and feeds are worth, by all that was counted; any server can tell."""
        said = node_status(deployment, list(deployment.endpoints))
        plan, servers = read_plan(deployment), self._member.there()
        running = counted_so_far(watch(deployment, plan, rates, servers, said))
        collection = Collection(running, 1)
        feeds, replicas = collection.utilities()
        return {
            "cost": collection.cost,
            "replicas": {
                name: replicas.get(name, 0.0)
                for names in running.replicas.values()
                for name in names
            },
            "feeds": [
                {
                    **asdict(feed),
                    "cost": running.feeds[feed].cost,
                    "utility": feeds.get(feed),
                }
                for feed in sorted(running.feeds, key=str)
                if any(feed.producer in names for names in running.replicas.values())
            ],
        }

    def forget(self) -> None:
        """Somebody else coordinates."""
        self._collecting.clear()

    def look(self, name: str, deployment: Deployment) -> list[str]:
        """Every period, discard what is worth least while all of it costs too much."""
        spec, now = deployment.collection, time.monotonic()
        rates = self._coordinating.rates_of(name).look(deployment)
        if spec is None or not rates:
            return []
        collecting = self._collecting.setdefault(name, Collecting())
        if not collecting.is_due(spec, now):
            # What was waited for at the last look is still being waited for.
            return [collecting.waits] if collecting.waits else []
        watched = self._watched(deployment, rates)
        if isinstance(watched, str):
            collecting.waits = watched
            return [watched]
        decision = collecting.look(
            watched, spec, now, lambda: self._one_more(name, deployment, watched)
        )
        self._decide(name, deployment, decision)
        collecting.waits = "" if decision.changes else decision.said
        return [decision.said] if decision.said else []

    def _watched(self, deployment: Deployment, rates: Mapping[str, float]) -> Watched | str:
        """The feeds of a submission; or why nothing is decided about them now."""
        said = node_status(deployment, list(deployment.endpoints))
        epoch = read_membership(deployment.data).epoch
        for node, told in said.items():
            if told.get("error"):
                return f"nothing is collected while {node} does not answer"
            if node not in deployment.clients and told.get("epoch", epoch) < epoch:
                return f"nothing is collected before {node} has heard of the last change"
        for spec in deployment.fragments.values():
            for replica in running_of(deployment, spec):
                if not is_stable(said[replica]) and spec.standby is None:
                    return f"nothing is collected while {replica} is {said[replica].get('state')}"
        return watch(deployment, read_plan(deployment), rates, self._member.there(), said)

    def _one_more(
        self, name: str, deployment: Deployment, watched: Watched
    ) -> tuple[str, float, float] | None:
        """Of what was collected, the fragment of which one more would shorten the way most."""
        found: list[tuple[float, float, str]] = []
        for spec in deployment.fragments.values():
            running = running_of(deployment, spec)
            if spec.name in watched.running.replicas and len(
                running
            ) < self._coordinating.submitted_count(name, spec):
                place = self._coordinating.place_for(deployment, spec, list(running.values()))
                cost, sooner = watched.one_more(next(iter(running)), place)
                found.append((sooner, cost, spec.name))
        if not found:
            return None
        sooner, cost, fragment = max(found)
        return fragment, cost, sooner

    def _decide(self, name: str, deployment: Deployment, decision: Decision) -> None:
        if not decision.changes:
            return
        self._journal.write("collection", submission=name, said=decision.said)
        if decision.added is not None:
            self._one_more_of(name, deployment, decision.added, None)
            return
        collected = [(each.consumer, each.stream, each.producer) for each in decision.collected]
        used = [(each.consumer, each.stream, each.producer) for each in decision.used]
        counts = {
            spec.name: len(running_of(deployment, spec).keys() - set(decision.gone))
            for spec in deployment.fragments.values()
            if set(decision.gone) & set(spec.processes)
        }

        def change(known: Membership) -> Membership:
            left = known.without(*decision.gone) if decision.gone else known
            return left.collecting(collected, used)

        self._coordinating.change(name, change, {}, counts)

    def _one_more_of(
        self, name: str, deployment: Deployment, fragment: str, place: str | None
    ) -> tuple[str, str]:
        spec = deployment.fragments[fragment]
        running = running_of(deployment, spec)
        if place is None:
            place = self._coordinating.place_for(deployment, spec, list(running.values()))
        counts = {fragment: len(running) + 1}
        return self._coordinating.add_replica(
            name, deployment, spec, next(iter(running)), place, counts
        ), place

    def collect(self, options: dict[str, Any]) -> dict[str, Any]:
        """Discard what is worth least at once, down to a cost and a number that are given."""
        name = str(options["name"])
        cost, least = float(options["cost"]), int(options["least"])
        if cost < 0 or least < 1:
            raise NotPlaced(f"a cost from 0 on and at least 1 replica, got {cost:g} and {least}")
        with self._coordinating.lock:
            deployment = self._deployment_of(name)
            watched = self._watched(deployment, self._coordinating.rates_of(name).look(deployment))
            if isinstance(watched, str):
                raise NotPlaced(watched)
            running = counted_so_far(watched)
            collection = Collection(running, least)
            before = collection.cost
            decision = decided(collection.collect(cost), running, before)
            self._decide(name, deployment, decision)
        return {"said": decision.said, "before": before, "after": collection.cost}

    def add(self, options: dict[str, Any]) -> dict[str, Any]:
        """Add a replica of a fragment, where it costs least or where it is said."""
        name, fragment, place = str(options["name"]), str(options["fragment"]), options["server"]
        with self._coordinating.lock:
            deployment = self._deployment_of(name)
            spec = deployment.fragments.get(fragment)
            if spec is None:
                known = ", ".join(deployment.fragments)
                raise NotPlaced(f"{name} has no fragment {fragment!r}; it has {known}")
            self._check_place(deployment, spec, place)
            added, place = self._one_more_of(name, deployment, fragment, place)
        return {"replica": added, "server": place}

    def move(self, options: dict[str, Any]) -> dict[str, Any]:
        """Have another replica join where it is said, and this one go when that is stable."""
        name, replica, place = str(options["name"]), str(options["replica"]), str(options["server"])
        with self._coordinating.lock:
            deployment = self._deployment_of(name)
            spec, like = self._others_of(deployment, replica)
            self._check_place(deployment, spec, place)
            added = self._coordinating.add_replica(
                name, deployment, spec, like[0], place, instead_of=replica, stays=True
            )
        return {"replica": added, "server": place}

    def remove(self, options: dict[str, Any]) -> dict[str, Any]:
        """Have one replica fewer of its fragment from now on: this one goes at once."""
        name, replica = str(options["name"]), str(options["replica"])
        with self._coordinating.lock:
            deployment = self._deployment_of(name)
            spec, left = self._others_of(deployment, replica)
            self._check_place(deployment, spec, None)
            able, reasons = able_among(deployment, replica, left)
            if not able:
                raise NotPlaced(
                    f"{replica} stays until another one of {spec.name} is stable and has all that "
                    f"it has: {'; '.join(reasons)}"
                )
            self._coordinating.change(
                name, lambda known: known.without(replica), {}, {spec.name: len(left)}
            )
        self._journal.write("removed", submission=name, replica=replica)
        return {"replica": replica, "left": left}

    def _others_of(self, deployment: Deployment, replica: str) -> tuple[FragmentSpec, list[str]]:
        """The fragment of a replica that takes part, and those that could stand in for it."""
        at = {each: spec for spec in deployment.fragments.values() for each in spec.processes}
        running = [each for each in at if each not in deployment.gone]
        if replica not in running:
            raise NotPlaced(
                f"{deployment.name} has no replica {replica!r}; it has {', '.join(running)}"
            )
        spec = at[replica]
        others = [each for each in running_of(deployment, spec) if each != replica]
        if not others:
            raise NotPlaced(f"{replica} is the only one of {spec.name}: nobody could stand in")
        return spec, others

    def _check_place(self, deployment: Deployment, spec: FragmentSpec, place: str | None) -> None:
        if spec.standby is not None:
            raise NotPlaced(
                f"{spec.name} is {spec.protection.value} and has two copies, neither more nor less"
            )
        if place is not None and place not in self._member.there().cards:
            raise NotPlaced(f"server {place!r} does not answer now, or there is none")
        if place in running_of(deployment, spec).values():
            raise NotPlaced(f"{place} has a replica of {spec.name} already")

    def _deployment_of(self, name: str) -> Deployment:
        return self._coordinating.staged(name, self._member.newest[1].submission(name))
