"""What is known of a fragment without its operators, and so without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import pyarrow as pa

from holdfast.core.messages import Part
from holdfast.core.provenance import Trail
from holdfast.identity import identity_of
from holdfast.slots import Routing, Share, shard_name, slot_range

Ways: TypeAlias = tuple[tuple[str, Trail], ...]
Memory: TypeAlias = tuple[tuple[Trail, frozenset[str]], ...]
# A stream that is united with itself again and again has ways without number.
MOST_WAYS = 64


@dataclass(frozen=True)
class FragmentStream:
    """A stream a fragment serves.

    ways    (input, trail): how tuples get here that pass only operators that look at one tuple at
            a time (``core.provenance``).
    memory  (trail, inputs): by which trails the others come, and on which inputs they rest.
    pairs   the trails of those that are pairs of a join, each there once both halves are.
    """

    stream: str
    schema: pa.Schema
    reached_by: frozenset[str]
    ways: Ways = ()
    memory: Memory = ()
    pairs: frozenset[Trail] = frozenset()


@dataclass(frozen=True)
class Routes:
    """How the tuples that a fragment reads can be divided among shards (``routes``).

    columns  for each input that operators with state read, the columns to divide it by; none if
             the fragment has no such operator.
    refused  why it cannot be divided by key; None if it can.
    """

    columns: Mapping[str, tuple[str, ...]]
    refused: str | None = None

    @property
    def stateless(self) -> bool:
        return not self.columns and self.refused is None


@dataclass(frozen=True)
class ShardPlan:
    """Which part of a fragment's work a shard does.

    fragment  the fragment as the network has it.
    number    the shard, from 1 to ``shards``.
    columns   the routing columns of each input.
    generation  how many times there has been another number of shards, from 1.
    part      of a shard in ``parts``, each of which another one inherits, which of them it is.
    ring      the shards whose processes its copies share, its own first, as it is deployed now.
    """

    fragment: str
    number: int
    shards: int
    routing: Routing
    columns: Mapping[str, tuple[str, ...]]
    generation: int = 1
    part: int = 1
    parts: int = 1
    ring: tuple[int, ...] = ()

    @property
    def slots(self) -> tuple[int, int]:
        """The first slot it owns, and the first one that is not its own."""
        at = (self.number - 1) * self.parts + self.part
        return slot_range(at, self.shards * self.parts, self.routing)

    @property
    def share(self) -> Share:
        """What it takes of its inputs."""
        return Share({stream: Part(*self.slots, names) for stream, names in self.columns.items()})

    @property
    def which(self) -> str:
        """What its description says of which slots it takes."""
        first, end = self.slots
        part = f"part {self.part} of " if self.parts > 1 else ""
        return f"{part}shard {self.number} of {self.shards}: slots {first} to {end}"

    def serves(self, stream: str) -> str:
        """The stream that has the shard's part of a stream of the fragment."""
        part = self.part if self.parts > 1 else None
        return shard_name(stream, self.generation, self.number, part)

    @property
    def heirs(self) -> tuple[str, ...]:
        """The shards that hold its state, where its work goes on."""
        return tuple(shard_name(self.fragment, self.generation, each) for each in self.ring[1:])

    def overlaps(self, other: ShardPlan) -> bool:
        """Whether both have a slot in common."""
        (first, end), (begin, stop) = self.slots, other.slots
        return max(first, begin) < min(end, stop)


@dataclass(frozen=True)
class DescribedOperator:
    """An operator as the description of its fragment has it, field by field.

    inputs  from where it reads: operators, and streams that the fragment reads.
    state   of which kind its state is; empty if it has none.
    lines   what it does, but for from where it reads.
    """

    name: str
    inputs: tuple[str, ...]
    state: str
    lines: tuple[str, ...]

    def text(self) -> list[str]:
        """Its lines in the description."""
        kind = f"{self.state} " if self.state else ""
        first = f"{kind}from {', '.join(self.inputs)}"
        return [f"{self.name}: {line}" for line in (first, *self.lines)]


@dataclass(frozen=True)
class FragmentPlan:
    """One fragment: what it reads and what it serves.

    inputs       the streams it reads, with their schemas.
    blocking     whether it holds a join, which says nothing while an input is missing.
    description  what it computes; its state is that of no other description (``identity``).
    routes       how it can be divided; None once it is known how it is deployed.
    shard        what it is a shard of, if it is one.
    merges       the streams of shards that each of its outputs is merged from, if it does that.
    earlier      the identities of other descriptions whose state is as good as its own.
    operators    what of the description is that of operators.
    """

    name: str
    inputs: Mapping[str, pa.Schema]
    outputs: tuple[FragmentStream, ...]
    blocking: bool
    description: tuple[str, ...]
    routes: Routes | None = None
    shard: ShardPlan | None = None
    merges: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    earlier: tuple[str, ...] = ()
    operators: tuple[DescribedOperator, ...] = ()

    @property
    def identity(self) -> str:
        """A digest of the description."""
        return identity_of(self.description)

    @property
    def query(self) -> str:
        """A digest of what it computes, for whichever slots: with those of others, its state is
        that of a shard of another number of them."""
        without: tuple[str, ...] = ()
        if self.shard is not None:
            without = (self.shard.which,)
        elif self.merges:
            without = tuple(merged_from(stream, parts) for stream, parts in self.merges.items())
        return identity_of([line for line in self.description if line not in without])


def merged_from(stream: str, parts: Sequence[str]) -> str:
    """What the description of a fragment that merges says of the shards' streams."""
    return f"merge {stream}: {', '.join(parts)}"
