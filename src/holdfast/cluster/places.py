"""Where the replicas of a fragment stopped, and how all of them begin there with another network.

Of the replicas of a fragment the one that is furthest goes on, and the others as it does, whichever
machines they are on (``kept_nodes``):

1. Its state is copied to ``data/aside``.
2. Its record is written for the new network, with its state or without.
3. The directories of the others go to ``data/aside``, too, and what they provide and where they
   begin is that of the first: one that had nothing might begin where its inputs do, elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from holdfast.cluster.kept_elsewhere import KeptElsewhere
from holdfast.cluster.kept_nodes import KeptNodes, StoppedAt
from holdfast.cluster.placed import running_of
from holdfast.core.ending import beyond
from holdfast.core.records import RecoveryRecord
from holdfast.deployment import Deployment
from holdfast.errors import StateError
from holdfast.gained import gained_columns
from holdfast.identity import identity_of
from holdfast.plans.fragment_plans import FragmentPlan
from holdfast.plans.plan import Plan, SourcePlan

OTHERWISE = "Start the changed network as another deployment, with a data directory of its own"


class Changing:
    """Has fragments of a deployment begin with another network, where they stopped.

    flag  the option that asked for it, for what is said.
    """

    def __init__(self, deployment: Deployment, before: Plan, now: Plan, flag: str) -> None:
        self.deployment = deployment
        self._before = before
        self._now = now
        self.flag = flag

    # -- before anything is touched -----------------------------------------------------

    def refuse_sources(self, bare: Plan) -> None:
        """StateError if the sources are others, but for columns that they have gained."""
        for name, source in bare.sources.items():
            kept = self._before.sources.get(name)
            if kept is None or _parts(kept) != _parts(source):
                what = "is new" if kept is None else "has changed"
                raise self.refusal(f"source {name!r} {what}, and logs keep it")

    def refusal(self, why: str, otherwise: str = OTHERWISE) -> StateError:
        return StateError(f"{self.flag}: {why}. {otherwise}")

    def furthest(self, name: str) -> StoppedAt:
        """The replica of a changed fragment that has got furthest."""
        before, now = self._before.fragments.get(name), self._now.fragments[name]
        if before is None:
            raise self.refusal(f"fragment {name!r} was not there before")
        self._refuse_streams(before, now)
        streams = [output.stream for output in before.outputs]
        found = (self.kept(node).place(node, streams) for node in self.replicas(name))
        places = [place for place in found if place is not None]
        if not places:
            raise self.refusal(f"no replica of {name!r} has kept its place")
        for place in places:
            self._refuse_begun(place, before, now)
        # Of two that are as far, the one with the newer record: what only an older one needs may
        # have been acknowledged by the other.
        furthest = max(
            places, key=lambda one: (one.boundary, one.torn is None, one.record.boundary)
        )
        if furthest.torn is not None:
            raise self.refusal(
                f"{furthest.node} was interrupted while it wrote {furthest.torn!r}", AGAIN
            )
        self._refuse_readers_ahead(places, furthest)
        return furthest

    def _refuse_begun(self, place: StoppedAt, before: FragmentPlan, now: FragmentPlan) -> None:
        """StateError if another change was interrupted, which may have forgotten the state."""
        found = identity_of(place.network)
        if found in (before.identity, *before.earlier):
            return
        if place.flag != self.flag or found != now.identity:
            raise self.refusal(
                f"{place.node} has begun with a changed network already, in another change that "
                f"was interrupted",
                f"Go on with that one, with the network as it was changed then: holdfast up "
                f"{place.flag or '--from-now or --keep-state, whichever it was'}",
            )

    def _refuse_readers_ahead(self, places: Iterable[StoppedAt], furthest: StoppedAt) -> None:
        """StateError if somebody may have read what is in no log: it cannot be computed again."""
        for place in places:
            if place.ended is None:
                raise self.refusal(
                    f"{place.node} did not end in order, or soon after a life that did not: its "
                    f"readers may have results that no log has",
                    AGAIN,
                )
            reader = beyond(place.ended, furthest.logged())
            if reader is not None:
                raise self.refusal(
                    f"a reader of {reader.stream!r} has it up to tuple {reader.next_id} and "
                    f"{shown_time(reader.boundary)}, further than the log of {furthest.node}",
                    AGAIN,
                )

    def _refuse_streams(self, before: FragmentPlan, now: FragmentPlan) -> None:
        kept = {output.stream: output.schema for output in before.outputs}
        for output in now.outputs:
            if gained_columns(kept.get(output.stream, output.schema), output.schema) is None:
                raise self.refusal(
                    f"the columns of {output.stream!r} have changed, and its log and its readers "
                    f"go on with what they have; it may only gain some that can be null",
                    f"Give the changed output another name, or {OTHERWISE[0].lower()}"
                    f"{OTHERWISE[1:]}",
                )
        if not set(now.inputs) <= set(before.inputs):
            raise self.refusal(
                f"fragment {now.name!r} reads {_names(now.inputs)}; before, it read "
                f"{_names(before.inputs)}"
            )

    # -- the steps ------------------------------------------------------------------------

    def begin(self, name: str, place: StoppedAt, record: RecoveryRecord, keeps: bool) -> None:
        """The three steps, for one fragment; ``keeps``: with the state that belongs to it."""
        first = self.kept(place.node)
        network = self._now.fragments[name].description
        first.begin(place.node, network, record, keeps, self.flag)
        for node in self.replicas(name):
            if node != place.node:
                self._begin_as(place.node, node)

    def _begin_as(self, first: str, other: str) -> None:
        """Step 3."""
        giver, taker = self.kept(first), self.kept(other)
        giver.pack(first)
        offset = 0
        while piece := giver.read(first, offset):
            taker.write(other, offset, piece)
            offset += len(piece)
        taker.unpack(other)

    def replicas(self, name: str) -> tuple[str, ...]:
        """Those of a fragment that take part: who is gone has kept nothing that counts."""
        return tuple(running_of(self.deployment, self.deployment.fragments[name]))

    def kept(self, node: str) -> KeptNodes:
        """What a node has kept, where it runs."""
        server = self.deployment.endpoints[node].server
        if server is None:
            return KeptNodes(self.deployment.data)
        return KeptElsewhere(self.deployment, server)


def _parts(source: SourcePlan) -> tuple[object, ...]:
    return source.schema, source.stime, source.keys


def shown_time(stime: int) -> str:
    """A tuple time for people."""
    return datetime.fromtimestamp(stime / 1e6, UTC).isoformat(sep=" ", timespec="milliseconds")


def _names(streams: Iterable[str]) -> str:
    return ", ".join(map(repr, sorted(streams)))


AGAIN = (
    "Take the change back, start the deployment, let it run until it is stable, stop it with "
    "holdfast down, and change it then"
)
