"""``holdfast up --from-now``: a changed network goes on where the one before it stopped.

What it computes has changed, so the state of the one before is of no use: it is put aside, and the
changed fragments begin with nothing at the moment up to which the results of the one before are in
their logs. Everything else goes on: sources keep their logs and places, output streams their ids,
clients what they have, and fragments that have not changed their state. No tuple is lost or counted
twice; a window that was open is counted from there.

Of the replicas of a fragment the one that is furthest goes on, in these steps:

1. Its state is copied to ``data/aside``.
2. Its record is written with that moment and without a state, as the new query's.
3. The directories of the others go to ``data/aside``, too, and what they provide and where they
   begin is that of the first: one that had nothing might begin where its inputs do, elsewhere.

Done again after a crash, they come to the same. What is not possible like that is refused before
anything is touched: other sources, other columns of a stream, a fragment that is new.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from holdfast import disk
from holdfast.core.frame import Kind
from holdfast.core.records import RecoveryRecord
from holdfast.core.settings import Keeping
from holdfast.deployment import Deployment
from holdfast.durable import make_private
from holdfast.errors import StateError
from holdfast.kept import consumers
from holdfast.kept.packed_codec import decode_record, encode_record
from holdfast.kept.state_directory import StateDirectory
from holdfast.log import StreamLog
from holdfast.log.payload import is_window
from holdfast.plans.fragment_plans import FragmentPlan
from holdfast.plans.plan import Plan, SourcePlan


@dataclass(frozen=True)
class _Place:
    """Where a replica's results end, with its record as it would be there.

    torn  the stream in whose log there is more, of a write that was interrupted; nobody has read
          it, but what comes next would have its ids.
    """

    node: str
    record: RecoveryRecord
    torn: str | None


def begin_from_now(deployment: Deployment, before: Plan, now: Plan) -> None:
    """Have the fragments that have changed begin with nothing where they stopped.

    StateError, and nothing is touched, if it cannot be done.
    """
    _refuse_elsewhere(deployment)
    _refuse_sources(before, now)
    changed = [
        plan
        for name, plan in now.fragments.items()
        if name not in before.fragments or before.fragments[name].description != plan.description
    ]
    places = [_furthest(deployment, before.fragments.get(plan.name), plan) for plan in changed]
    for plan, place in zip(changed, places, strict=True):
        _forget_state(deployment, plan, place)
        for node in deployment.fragments[plan.name].processes:
            if node != place.node:
                _begin_as(deployment, place.node, node)


def _refuse_elsewhere(deployment: Deployment) -> None:
    for server in deployment.servers:
        if deployment.hosted_by(server):
            raise StateError(
                f"--from-now changes what nodes have kept, and server {server!r} has nodes of "
                f"{deployment.name}, too. {_OTHERWISE}"
            )


def _refuse_sources(before: Plan, now: Plan) -> None:
    for name, source in now.sources.items():
        kept = before.sources.get(name)
        if kept is None or _parts(kept) != _parts(source):
            what = "is new" if kept is None else "has changed"
            raise StateError(f"--from-now: source {name!r} {what}, and logs keep it. {_OTHERWISE}")


def _parts(source: SourcePlan) -> tuple[object, ...]:
    return source.schema, source.stime, source.keys


def _furthest(deployment: Deployment, before: FragmentPlan | None, now: FragmentPlan) -> _Place:
    """The replica of a changed fragment that has got furthest."""
    if before is None:
        raise StateError(f"--from-now: fragment {now.name!r} was not there before. {_OTHERWISE}")
    kept = {output.stream: output.schema for output in before.outputs}
    for output in now.outputs:
        if output.stream in kept and kept[output.stream] != output.schema:
            raise StateError(
                f"--from-now: the columns of {output.stream!r} have changed, and its log and its "
                f"readers go on with what they have. Give the changed output another name, or "
                f"{_OTHERWISE[0].lower()}{_OTHERWISE[1:]}"
            )
    if not set(now.inputs) <= set(before.inputs):
        raise StateError(
            f"--from-now: fragment {now.name!r} reads {_names(now.inputs)}; before, it read "
            f"{_names(before.inputs)}. {_OTHERWISE}"
        )
    nodes = deployment.fragments[now.name].processes
    places = [place for node in nodes for place in _place_of(deployment, node, before, now)]
    if not places:
        raise StateError(f"--from-now: no replica of {now.name!r} has kept its place. {_OTHERWISE}")
    furthest = max(places, key=lambda one: (one.record.boundary, one.torn is None))
    if furthest.torn is not None:
        raise StateError(
            f"--from-now: {furthest.node} was interrupted while it wrote {furthest.torn!r}. Take "
            f"the change back, start the deployment, stop it with holdfast down, and change it then"
        )
    return furthest


def _place_of(
    deployment: Deployment, node: str, before: FragmentPlan, now: FragmentPlan
) -> Iterator[_Place]:
    """Where a replica's results end; nothing if it has kept nothing."""
    directory = _directory(deployment, node)
    if not (directory / "state" / "manifest.json").exists():
        return
    state = StateDirectory(directory / "state")
    try:
        manifest = state.manifest
    finally:
        state.close()
    if manifest is None:
        return
    if manifest["kept"] == Keeping.WINDOWS.value:
        raise StateError(
            f"--from-now: {node} keeps its state in its output log (checkpoint = "
            f'"continuous"), from which it cannot be taken away. {_OTHERWISE}'
        )
    record = decode_record(manifest["record"])
    ends = {one.stream: _end_of(directory / "streams" / one.stream) for one in before.outputs}
    boundary = max((end.boundary for end in ends.values()), default=record.boundary)
    torn = [name for name, end in ends.items() if end.torn or end.boundary != boundary]
    outputs = tuple(
        (one.stream, ends[one.stream].next_id if one.stream in ends else 0) for one in now.outputs
    )
    inputs = tuple((stream, first) for stream, first in record.inputs if stream in now.inputs)
    placed = replace(record, boundary=boundary, marker=boundary, inputs=inputs, outputs=outputs)
    yield _Place(node, placed, torn[0] if torn else None)


@dataclass(frozen=True)
class _End:
    """The time up to which a log has results, the id that comes next, and whether it has more."""

    boundary: int
    next_id: int
    torn: bool


def _end_of(directory: Path) -> _End:
    with StreamLog.open(directory, read_only=True) as log:
        kinds = [header.kind for header, _ in log.headers() if not is_window(header.kind)]
        torn = bool(kinds) and kinds[-1] is not Kind.BOUNDARY
        return _End(log.last_boundary or 0, log.next_id, torn)


def _forget_state(deployment: Deployment, plan: FragmentPlan, place: _Place) -> None:
    """Steps 1 and 2."""
    directory = _directory(deployment, place.node) / "state"
    aside = _aside(deployment, f"{place.node}-state")
    shutil.copytree(directory, aside)
    state = StateDirectory(directory)
    try:
        assert state.manifest is not None, "it was read before"
        manifest = {**state.manifest, "network": list(plan.description)}
        state.forget()
        state.write_manifest({**manifest, "record": encode_record(place.record)})
    finally:
        state.close()


def _begin_as(deployment: Deployment, first: str, other: str) -> None:
    """Step 3."""
    directory, source = _directory(deployment, other), _directory(deployment, first)
    aside = _aside(deployment, other)
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


def _aside(deployment: Deployment, name: str) -> Path:
    """A place in ``data/aside`` that nothing has yet."""
    make_private(deployment.data / "aside")
    number = 1
    while (path := deployment.data / "aside" / f"{name}-{number}").exists():
        number += 1
    return path


def _directory(deployment: Deployment, node: str) -> Path:
    return deployment.data / "processes" / node


def _names(streams: Iterable[str]) -> str:
    return ", ".join(map(repr, sorted(streams)))


_OTHERWISE = "Start the changed network as another deployment, with a data directory of its own"
