"""Where the replicas of a fragment stopped, and how all of them begin there with another network.

Of the replicas of a fragment the one that is furthest goes on, and the others as it does:

1. Its state is copied to ``data/aside``.
2. Its record is written for the new network, with its state or without.
3. The directories of the others go to ``data/aside``, too, and what they provide and where they
   begin is that of the first: one that had nothing might begin where its inputs do, elsewhere.

Done again after a crash, they come to the same.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from holdfast import disk
from holdfast.core.frame import Kind
from holdfast.core.records import RecoveryRecord
from holdfast.core.settings import Keeping
from holdfast.deployment import Deployment
from holdfast.durable import make_private
from holdfast.errors import StateError
from holdfast.gained import gained_columns
from holdfast.kept import consumers
from holdfast.kept.packed_codec import decode_record, encode_record
from holdfast.kept.state_directory import StateDirectory
from holdfast.log import StreamLog
from holdfast.log.payload import is_window
from holdfast.plans.fragment_plans import FragmentPlan
from holdfast.plans.plan import Plan, SourcePlan

OTHERWISE = "Start the changed network as another deployment, with a data directory of its own"


@dataclass(frozen=True)
class End:
    """The time up to which a log has results, the id that comes next, and whether it has more.

    bounded  whether a mark in the log says how far it is; its header may know it, too.
    """

    boundary: int
    next_id: int
    torn: bool
    bounded: bool


@dataclass(frozen=True)
class Place:
    """Where a replica stopped: its record, how its state is kept, and where its results end.

    boundary  up to which its results are in its logs.
    torn      the stream in whose log there is more, of a write that was interrupted; nobody has
              read it, but what comes next would have its ids.
    """

    node: str
    record: RecoveryRecord
    keeping: Keeping
    ends: Mapping[str, End]
    boundary: int
    torn: str | None


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

    def refuse_elsewhere(self) -> None:
        """StateError if nodes have kept something on other machines."""
        for server in self.deployment.servers:
            if self.deployment.hosted_by(server):
                raise self.refusal(
                    f"it changes what nodes have kept, and server {server!r} has nodes of "
                    f"{self.deployment.name}, too"
                )

    def refuse_sources(self, bare: Plan) -> None:
        """StateError if the sources are others, but for columns that they have gained."""
        for name, source in bare.sources.items():
            kept = self._before.sources.get(name)
            if kept is None or _parts(kept) != _parts(source):
                what = "is new" if kept is None else "has changed"
                raise self.refusal(f"source {name!r} {what}, and logs keep it")

    def refusal(self, why: str, otherwise: str = OTHERWISE) -> StateError:
        return StateError(f"{self.flag}: {why}. {otherwise}")

    def furthest(self, name: str) -> Place:
        """The replica of a changed fragment that has got furthest."""
        before, now = self._before.fragments.get(name), self._now.fragments[name]
        if before is None:
            raise self.refusal(f"fragment {name!r} was not there before")
        self._refuse_streams(before, now)
        nodes = self.deployment.fragments[name].processes
        places = [place for node in nodes for place in self._place_of(node, before)]
        if not places:
            raise self.refusal(f"no replica of {name!r} has kept its place")
        furthest = max(places, key=lambda one: (one.boundary, one.torn is None))
        if furthest.torn is not None:
            raise self.refusal(
                f"{furthest.node} was interrupted while it wrote {furthest.torn!r}", AGAIN
            )
        return furthest

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

    def _place_of(self, node: str, before: FragmentPlan) -> Iterator[Place]:
        """Where a replica stopped; nothing if it has kept nothing."""
        directory = self.directory(node)
        if not (directory / "state" / "manifest.json").exists():
            return
        state = StateDirectory(directory / "state")
        try:
            manifest = state.manifest
        finally:
            state.close()
        if manifest is None:
            return
        record = decode_record(manifest["record"])
        ends = {one.stream: _end_of(directory / "streams" / one.stream) for one in before.outputs}
        boundary = max((end.boundary for end in ends.values()), default=record.boundary)
        torn = [name for name, end in ends.items() if end.torn or end.boundary != boundary]
        keeping = Keeping(manifest["kept"])
        yield Place(node, record, keeping, ends, boundary, torn[0] if torn else None)

    # -- the steps ------------------------------------------------------------------------

    def begin(self, name: str, place: Place, record: RecoveryRecord, keeps: bool) -> None:
        """The three steps, for one fragment; ``keeps``: with the state that belongs to it."""
        plan = self._now.fragments[name]
        directory = self.directory(place.node) / "state"
        shutil.copytree(directory, self._aside(f"{place.node}-state"))
        state = StateDirectory(directory)
        try:
            assert state.manifest is not None, "it was read before"
            manifest = {**state.manifest, "network": list(plan.description)}
            if not keeps:
                state.forget()
            state.write_manifest({**manifest, "record": encode_record(record)})
        finally:
            state.close()
        for node in self.deployment.fragments[name].processes:
            if node != place.node:
                self._begin_as(place.node, node)

    def _begin_as(self, first: str, other: str) -> None:
        """Step 3."""
        directory, source = self.directory(other), self.directory(first)
        aside = self._aside(other)
        incarnation = _incarnation(directory / "state")
        if directory.exists():
            disk.rename(directory, aside)
        made = directory.parent / f"{other}.part"
        shutil.rmtree(made, ignore_errors=True)
        make_private(made)
        for part in ("streams", "state"):
            shutil.copytree(source / part, made / part)
        # Whom it provides for, and which of their lives count, is its own.
        if (aside / consumers.FILE).exists():
            shutil.copy(aside / consumers.FILE, made / consumers.FILE)
        state = StateDirectory(made / "state")
        try:
            assert state.manifest is not None, "it was written in step 2"
            record = replace(decode_record(state.manifest["record"]), incarnation=incarnation)
            state.write_manifest({**state.manifest, "record": encode_record(record)})
        finally:
            state.close()
        disk.rename(made, directory)
        disk.sync_directory(directory.parent)

    def put_aside(self, node: str) -> None:
        """Whatever a node has kept goes to ``data/aside``."""
        if self.directory(node).exists():
            disk.rename(self.directory(node), self._aside(node))

    def _aside(self, name: str) -> Path:
        """A place in ``data/aside`` that nothing has yet."""
        aside = self.deployment.data / "aside"
        make_private(aside)
        number = 1
        while (path := aside / f"{name}-{number}").exists():
            number += 1
        return path

    def directory(self, node: str) -> Path:
        """What a node of this machine has kept."""
        return self.deployment.data / "processes" / node


def _parts(source: SourcePlan) -> tuple[object, ...]:
    return source.schema, source.stime, source.keys


def _end_of(directory: Path) -> End:
    with StreamLog.open(directory, read_only=True) as log:
        kinds = [header.kind for header, _ in log.headers() if not is_window(header.kind)]
        torn = bool(kinds) and kinds[-1] is not Kind.BOUNDARY
        bounded = Kind.BOUNDARY in kinds
        return End(log.last_boundary or 0, log.next_id, torn, bounded)


def _incarnation(path: Path) -> int:
    """Which life of a replica's directory has written its record; 0 if there is none."""
    if not (path / "manifest.json").exists():
        return 0
    state = StateDirectory(path)
    try:
        assert state.manifest is not None
        return decode_record(state.manifest["record"]).incarnation
    finally:
        state.close()


def shown_time(stime: int) -> str:
    """A tuple time for people."""
    return datetime.fromtimestamp(stime / 1e6, UTC).isoformat(sep=" ", timespec="milliseconds")


def _names(streams: Iterable[str]) -> str:
    return ", ".join(map(repr, sorted(streams)))


AGAIN = "Take the change back, start the deployment, stop it with holdfast down, and change it then"
