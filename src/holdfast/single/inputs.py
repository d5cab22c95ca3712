"""All sources of a run: reads them, and says which tuples can be released."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from holdfast.connect.dead_letters import DeadLetters
from holdfast.connect.ingest import Inlet
from holdfast.connect.source import Source
from holdfast.core.source_time import Late
from holdfast.errors import InputError, StateError
from holdfast.kept.state_directory import StateDirectory
from holdfast.late_rows import why_late_rows_are_not_taken
from holdfast.network import Network
from holdfast.operators import SourceOperator
from holdfast.spark.engine import Bucket, input_schema

# A partition that is at its end and quiet for so long, while others are not, holds nobody back.
_LANE_IDLE_US = 5_000_000


@dataclass(frozen=True)
class Released:
    """What one advance takes: one bucket, or several in one when the run is behind."""

    bucket: Bucket
    tuples: int
    # When the tuple that waited longest arrived (monotonic seconds), if there is any tuple.
    arrived: float | None


class Inputs:
    """The inlets of a network."""

    def __init__(
        self,
        network: Network,
        sources: Mapping[str, Source],
        dead_letters: DeadLetters,
        directory: StateDirectory | None,
    ) -> None:
        check_names("source", network, sources, network.sources)
        saved = directory.manifest if directory else None
        self._bucket = network.bucket
        self.inlets: list[Inlet] = []
        for name, operator in network.sources.items():
            if saved:
                check_same("source", name, saved["sources"][name]["source"], sources[name].identity)
            self._check_late(network, operator, sources[name])
            inlet = Inlet(
                operator.declaration,
                input_schema(operator),
                sources[name],
                network.bucket,
                dead_letters,
                saved["sources"][name] if saved else None,
                directory.source(name) if directory else None,
                lane_idle_us=_LANE_IDLE_US if sources[name].has_lanes else None,
            )
            waiting = directory.read_waiting(name) if directory else None
            if waiting is not None:
                inlet.restore_waiting(waiting)
            # Killed before its end was noted, it must come to the same one: results that no sink
            # can take back may be out.
            if saved and saved["finished"] is not None:
                inlet.look_further()
            self.inlets.append(inlet)

    def _check_late(self, network: Network, operator: SourceOperator, source: Source) -> None:
        if source.late == Late.TAKE.value:
            reason = why_late_rows_are_not_taken(network, operator)
            if reason is not None:
                raise InputError(
                    f"source {operator.name!r}: late = 'take' is not possible: {reason}"
                )

    @property
    def tuples(self) -> int:
        return sum(inlet.tuples for inlet in self.inlets)

    @property
    def ended(self) -> bool:
        return all(inlet.ended for inlet in self.inlets)

    @property
    def problem(self) -> str | None:
        """What keeps sources from being read right now, if anything does."""
        return "; ".join(inlet.problem for inlet in self.inlets if inlet.problem) or None

    @property
    def boundary(self) -> int:
        """Everything older has arrived, from every source that has not ended."""
        return min(inlet.boundary for inlet in self.inlets)

    @property
    def boundary_at_end(self) -> int:
        """What the boundary would be if the sources that have ended went on."""
        return min(inlet.own_boundary for inlet in self.inlets)

    def forbid_before(self, boundary: int) -> None:
        """Tuples older than ``boundary`` are too late, whatever their source has sent."""
        for inlet in self.inlets:
            inlet.forbid_before(boundary)

    def take(self, most: int) -> int:
        """Read the sources that are live or that the others wait for; how many rows came."""
        boundary = self.boundary
        total = 0
        for inlet in self.inlets:
            waited_for = inlet.boundary <= boundary
            if not (waited_for or inlet.source.live or inlet.takes_arrival_time):
                continue
            rows = 0
            # Lanes that are ahead hold themselves back; those they wait for must be read.
            while rows < most and (not inlet.is_full or inlet.source.has_lanes):
                came = inlet.take()
                if came == 0:
                    break
                rows += came
            total += rows
        return total

    def release(self, start: int, boundary: int) -> Released:
        """The tuples from ``start`` to before ``boundary`` as one bucket."""
        tables: dict[str, pa.Table] = {}
        arrived: list[float] = []
        for inlet in self.inlets:
            parts = inlet.release(boundary)
            if parts:
                tables[inlet.name] = pa.concat_tables([part.table for part in parts])
                arrived += [part.arrived for part in parts]
        tuples = sum(table.num_rows for table in tables.values())
        return Released(Bucket(start, boundary, tables), tuples, min(arrived, default=None))

    def save(self) -> dict[str, Any]:
        return {inlet.name: inlet.save() for inlet in self.inlets}

    def waiting(self) -> dict[str, pa.Table]:
        tables = {inlet.name: inlet.waiting() for inlet in self.inlets}
        return {name: table for name, table in tables.items() if table.num_rows}

    def checkpointed(self, saved: Mapping[str, Any]) -> None:
        for inlet in self.inlets:
            inlet.checkpointed(saved[inlet.name])

    def close(self) -> None:
        for inlet in self.inlets:
            inlet.close()


def check_names(
    what: str, network: Network, given: Mapping[str, object], known: Mapping[str, object]
) -> None:
    """Raise InputError unless ``given`` binds exactly the names in ``known``."""
    for name in given:
        if name not in known:
            raise InputError(
                f"network {network.name!r} has no {what} {name!r}; it has {sorted(known)}"
            )
    if what == "source":
        for name in known:
            if name not in given:
                raise InputError(
                    f"source {name!r} of network {network.name!r} is bound to nothing; say where "
                    f"it comes from, e.g. sources={{{name!r}: read_csv('{name}.csv')}} or "
                    f"--source {name}=csv:{name}.csv"
                )


def check_same(what: str, name: str, before: str, now: str) -> None:
    """Raise StateError if a name is bound to something else than in the run to go on from."""
    if before != now:
        raise StateError(
            f"{what} {name!r} was bound to {before} in the run this state directory belongs to, "
            f"now it is {now}; bind it as before, or use a new state directory"
        )
