"""Who provides each stream of a deployment and who reads it, and the settings that follow."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from holdfast.core.entry import EntrySettings
from holdfast.core.provenance import TIMED, Trail
from holdfast.core.settings import (
    Bound,
    Delivery,
    Input,
    Output,
    Protection,
    ReplicaSettings,
    StandbySettings,
    Timing,
)
from holdfast.deployment import Deployment, DeploymentError, load_deployment
from holdfast.flight.security import Security
from holdfast.plans.addresses import Book
from holdfast.plans.budget import check_budget, divide, division, end_to_end_us, told
from holdfast.plans.deliveries import check_delivery
from holdfast.plans.fragment_plans import MOST_WAYS, FragmentPlan
from holdfast.plans.lags import boundary_interval_us, source_of
from holdfast.plans.membership_file import read_membership
from holdfast.plans.plan import Plan, deployed, read_plan
from holdfast.plans.sharding import merging
from holdfast.plans.source_times import (
    check_sources,
    check_times,
    lane_idle_us,
    least_alpha,
    timing_at,
)


class Topology:
    """Who provides each stream and who reads it, in a deployment of a plan."""

    def __init__(self, deployment: Deployment, plan: Plan) -> None:
        self._deployment = deployment
        self._plan = plan = deployed(deployment, plan)
        self._check()
        self.delays_us = divide(deployment, plan)
        self.producers: dict[str, tuple[str, ...]] = {
            name: (spec.process,) for name, spec in deployment.sources.items()
        }
        made_by = plan.made_by
        self.producers |= {stream: self._replicas_of(name) for stream, name in made_by.items()}
        # The streams that shape each stream; none for those of sources.
        self.shaped_by: dict[str, tuple[str, ...]] = dict.fromkeys(deployment.sources, ())
        for stream, output in plan.streams.items():
            self.shaped_by[stream] = tuple(sorted(output.reached_by))
        # The streams whose readers keep a feed at every replica.
        self.standing = {
            stream for stream, name in made_by.items() if deployment.fragments[name].standing
        }
        # The streams of which nothing is kept: their ids are those of one life.
        self.lossy = {
            stream
            for stream, name in made_by.items()
            if deployment.fragments[name].delivery is Delivery.AT_MOST_ONCE
        }
        # By which trails the tuples come of sources, and of streams with early results.
        self._trails = self._find_trails()
        self.consumers: dict[str, tuple[str, ...]] = dict.fromkeys(self.producers, ())
        for name in plan.fragments:
            for process in self._replicas_of(name):
                for stream in self._part_of(name, process).inputs:
                    self.consumers[stream] += (process,)
        # Also those that were retired: that nobody is left is not that there never was anybody.
        for client in deployment.clients.values():
            self.consumers[client.output] += (client.name,)

    @property
    def early(self) -> set[str]:
        """The streams whose results can be had before their order is known."""
        return set(self._trails) - set(self._deployment.sources)

    def _find_trails(self) -> dict[str, tuple[Trail, ...]]:
        """Fragments that race have such streams: those of which something can be said before all
        inputs have come as far."""
        found: dict[str, tuple[Trail, ...]] = dict.fromkeys(self._deployment.sources, (Trail(),))
        for name in self._plan.in_order:
            if self._deployment.fragments[name].protection is not Protection.RACE:
                continue
            fragment = self._plan.fragments[name]
            for output in fragment.outputs:
                # What is not early comes in order, and is known by its times.
                trails = [
                    trail.then(branch)
                    for stream, branch in output.ways
                    for trail in found.get(stream, (TIMED,))
                ]
                trails += [trail for trail, _ in output.memory]
                rest_on = [frozenset((stream,)) for stream, _ in output.ways]
                rest_on += [inputs for _, inputs in output.memory]
                ahead = any(inputs != fragment.inputs.keys() for inputs in rest_on)
                ahead |= bool(output.pairs)
                early = ahead or any(stream in found for stream, _ in output.ways)
                lossy = any(inputs & self.lossy for inputs in rest_on)
                if early and not lossy and len(trails) <= MOST_WAYS:
                    found[output.stream] = tuple(trails)
        return found

    def _replicas_of(self, fragment: str) -> tuple[str, ...]:
        """The replicas of a fragment that take part."""
        names = self._deployment.fragments[fragment].processes
        return tuple(name for name in names if name not in self._deployment.gone)

    @property
    def timing(self) -> Timing:
        try:
            return replace(self._deployment.timing, bucket_us=self._plan.bucket_us)
        except ValueError as error:
            raise DeploymentError(f"{self._deployment.path.name}: timing: {error}") from None

    def fragment_timing(self, fragment: str) -> Timing:
        """The times of one fragment, with its share of X."""
        timing = replace(self.timing, delay_us=self.delays_us[fragment])
        least = least_alpha(self._deployment, self._plan, fragment, timing)
        return replace(timing, alpha_least=least)

    def within_us(self, stream: str) -> int:
        """X from the sources to a stream."""
        return end_to_end_us(self._plan, self.delays_us, stream)

    def budget(self) -> list[str]:
        """How X of each output is divided, in words."""
        return told(self._deployment, self._plan)

    def division(self) -> dict[str, dict[str, Any]]:
        """The same for programs, in seconds."""
        return division(self._deployment, self._plan)

    def entry(self, source: str) -> EntrySettings:
        spec = self._deployment.sources[source]
        bucket_us = self._plan.bucket_us
        return EntrySettings(
            spec.process,
            source,
            self.consumers[source],
            boundary_interval_us=boundary_interval_us(bucket_us),
            lane_idle_us=lane_idle_us(
                timing_at(self._deployment, self._plan, source),
                source_of(spec).time_settings(bucket_us),
            ),
            bound=self.bound(source),
        )

    def replica(self, process: str) -> ReplicaSettings:
        fragment, index = self._find(process)
        spec, plan = self._deployment.fragments[fragment], self._part_of(fragment, process)
        turned = spec.processes[index + 1 :] + spec.processes[:index]
        partners = tuple(
            name
            for name in turned
            if name not in self._deployment.gone
            and (not spec.merges or spec.merged_by(name) == spec.merged_by(process))
        )
        timing = self.fragment_timing(fragment)
        # What is handed on before its order is known.
        early = [output for output in plan.outputs if output.stream in self.early]
        handed_on = {name for output in early for name, _ in output.ways}
        # Or joined before.
        joined = {
            name
            for output in early
            for trail, inputs in output.memory
            if trail in output.pairs
            for name in inputs
        }
        handed_on -= self._deployment.sources.keys()
        asked = (handed_on | joined) & self.early
        if spec.standby is not None:
            # The other copy sleeps, and cannot be asked to go on while this one reconciles.
            partners = ()
            # In memory, a record costs nothing, and lets the producers trim.
            interval_us = spec.standby.checkpoint_interval_us if spec.standby.persist else 0
            timing = replace(timing, record_interval_us=interval_us)
        return ReplicaSettings(
            process,
            # Replicas start at different producers, to spread the load.
            tuple(
                Input(
                    name,
                    _rotated(self.producers[name], index),
                    name in self.standing,
                    None if plan.shard is None else plan.shard.share.parts[name],
                    name in asked,
                    self._trails.get(name, (TIMED,)) if name in handed_on else (),
                    lossy=name in self.lossy,
                )
                for name in plan.inputs
            ),
            tuple(
                Output(
                    output.stream,
                    output.reached_by,
                    self.consumers[output.stream],
                    output.ways if output.stream in self.early else (),
                    output.memory if output.stream in self.early else (),
                    output.pairs if output.stream in self.early else frozenset(),
                )
                for output in plan.outputs
            ),
            partners,
            timing,
            spec.while_failed,
            spec.while_stabilizing,
            spec.reconcile,
            continuous=spec.continuous,
            delivery=spec.delivery,
            predecessors=self._predecessors(fragment, process),
            begins_empty=self._begins_empty(fragment, process),
            query=plan.query,
            bounds=tuple(
                (output.stream, bound)
                for output in plan.outputs
                if (bound := self.bound(output.stream)) is not None
            ),
        )

    def _part_of(self, fragment: str, process: str) -> FragmentPlan:
        """What a replica of a fragment reads and serves: of what merges, one generation's part."""
        spec, plan = self._deployment.fragments[fragment], self._plan.fragments[fragment]
        if len(spec.generations) < 2:
            return plan
        shards = [self._plan.fragments[name] for name in spec.merged_by(process).names]
        return merging(plan, shards)

    def _generation(self, fragment: str, process: str) -> int:
        """Which number of shards a replica is of, counted from 1."""
        spec = self._deployment.fragments[fragment]
        if spec.merges:
            return spec.merged_by(process).number
        return 1 if spec.shard is None else spec.shard.generation

    def _begins_empty(self, fragment: str, process: str) -> bool:
        """Whether a replica that has nothing may begin so, where nothing was trimmed."""
        spec = self._deployment.fragments[fragment]
        if spec.delivery is Delivery.AT_MOST_ONCE:
            return True
        first = self._generation(fragment, process) == 1
        return first and (spec.standby is None or self._was_there(spec.standby.copies, process))

    def _was_there(self, copies: tuple[str, ...], process: str) -> bool:
        """Whether a copy is where it was when the deployment began.

        Where that is another machine now, the first one may still go by its name.
        """
        server = self._deployment.endpoints[process].server
        return process in copies and server not in self._deployment.moved

    def _predecessors(self, fragment: str, process: str) -> tuple[tuple[str, ...], ...]:
        """Whose work a replica takes over: the first of a shard, or of what merges, does that."""
        spec = self._deployment.fragments[fragment]
        if spec.delivery is Delivery.AT_MOST_ONCE:
            return ()  # it begins with nothing, from now on
        whole = self._deployment.fragments[spec.shard.fragment] if spec.shard else spec
        own = self._generation(fragment, process)
        before = [one for one in whole.generations if one.number < own]
        taken_part = self._replicas_of(fragment)
        if spec.merges:
            taken_part = tuple(one for one in taken_part if spec.merged_by(one).number == own)
        if not before or process != taken_part[0]:
            return ()
        if spec.merges:
            old = (one for one in self._replicas_of(fragment) if spec.merged_by(one).number < own)
            return (tuple(old),)
        names = self.taken_from(fragment, before[-1].names)
        return tuple(self._replicas_of(name) for name in names)

    def taken_from(self, fragment: str, before: Sequence[str]) -> tuple[str, ...]:
        """Of the shards of the generation before, those that have slots of a new one."""
        plans = self._plan.fragments
        shard = plans[fragment].shard
        assert shard is not None
        near = tuple(name for name in before if (one := plans[name].shard) and shard.overlaps(one))
        return near or tuple(before)

    def bound(self, stream: str) -> Bound | None:
        """How much of a stream is kept for somebody who is away; None for all of it."""
        bounds = self._deployment.bounds
        bound = bounds.get(stream, bounds.get(""))
        source = self._deployment.sources.get(stream)
        if bound is None or bound.is_none or (source is not None and source.keep):
            return None
        fragments = tuple(
            self._replicas_of(name)
            for name, fragment in self._plan.fragments.items()
            if stream in fragment.inputs
        )
        away_us = max(bound.away_us, self._deployment.timing.delay_us)
        return replace(bound, fragments=fragments, away_us=away_us)

    def standby(self, process: str) -> StandbySettings | None:
        """How a copy stands by, if it is one of a passive or hybrid fragment."""
        pair = self._deployment.fragments[self.fragment_of(process)].standby
        return pair and pair.among(read_membership(self._deployment.data))

    def fragment_of(self, process: str) -> str:
        return self._find(process)[0]

    def fragment_plan(self, process: str) -> FragmentPlan:
        """What a replica reads and serves."""
        fragment = self.fragment_of(process)
        found, spec = self._part_of(fragment, process), self._deployment.fragments[fragment]
        if found.shard is None or spec.shard is None:
            return found
        return replace(found, shard=replace(found.shard, ring=spec.shard.ring))

    def _find(self, process: str) -> tuple[str, int]:
        spec = self._deployment.fragment_of(process)
        if spec is None:
            raise DeploymentError(f"{self._deployment.path.name}: there is no replica {process!r}")
        return spec.name, spec.processes.index(process)

    def _check(self) -> None:
        deployment, plan = self._deployment, self._plan
        for what, given, known in (
            ("sources", deployment.sources, plan.sources),
            ("fragments", deployment.fragments, plan.fragments),
        ):
            for name in given:
                if name not in known:
                    raise DeploymentError(
                        f"{deployment.path.name}: {what}.{name}: the network has no such "
                        f"{what[:-1]}; it has {sorted(known)}"
                    )
            for name in known:
                if name not in given:
                    raise DeploymentError(
                        f"{deployment.path.name}: the network's {what[:-1]} {name!r} is not "
                        f"deployed; add [{what}.{name}]"
                    )
        check_delivery(deployment, plan)
        check_sources(deployment, plan)
        check_budget(deployment, plan)
        check_times(deployment, plan)
        streams = {*plan.sources, *plan.made_by}
        for stream in deployment.bounds:
            if stream and stream not in streams:
                raise DeploymentError(
                    f"{deployment.path.name}: bounds.{stream}: the network has no such stream; "
                    f"it has {sorted(streams)}"
                )
        for client in deployment.clients.values():
            if client.output not in plan.outputs:
                raise DeploymentError(
                    f"{deployment.path.name}: clients.{client.name}: the network has no output "
                    f"{client.output!r}; it has {sorted(plan.outputs)}"
                )


@dataclass(frozen=True)
class Reach:
    """What somebody outside a deployment needs to talk to it."""

    deployment: Deployment
    topology: Topology
    security: Security

    def book(self, *names: str) -> Mapping[str, str]:
        """Where nodes are; those with these names, if any is given."""
        return Book(self.deployment, self.security, names or None)


def reach(path: str | os.PathLike[str]) -> Reach:
    """How to reach a deployment that was started on this machine."""
    deployment = load_deployment(path)
    topology = Topology(deployment, read_plan(deployment))
    return Reach(deployment, topology, deployment.security.read())


def _rotated(names: tuple[str, ...], by: int) -> tuple[str, ...]:
    by %= len(names)
    return names[by:] + names[:by]
