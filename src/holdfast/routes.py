"""By which columns the tuples of a fragment can be divided among shards.

Tuples that meet in an operator with state must come to the same shard: those with the same key of
a window, a join, a ``distinct`` or a ``process``. They do if every input of the fragment is divided
by columns that are among the keys of each such operator, at the same place among the keys wherever
several inputs meet. So each key is followed back, through the operators that hand its column on, to
the columns of the inputs it is; only plain columns count, because whoever divides a stream has
neither Spark nor the operators before it.

If there are several columns that serve, all of them are used: the more columns, the more even the
division.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from pyspark.sql import DataFrame
from pyspark.sql.types import DataType

from holdfast.hashing import BYTES, NARROW, WIDE
from holdfast.network import Network
from holdfast.operators import Operator, SourceOperator, StatefulOperator, StatelessOperator
from holdfast.plans.fragment_plans import Routes
from holdfast.spark.aggregate import Aggregate
from holdfast.spark.distinct import Distinct
from holdfast.spark.join import Join
from holdfast.spark.lineage import Handed, handed_on
from holdfast.spark.process import Process
from holdfast.spark.stages import full_schema

# The column of each input that a value is.
Origin: TypeAlias = Mapping[str, str]


def find_routes(part: Network) -> Routes:
    """How the inputs of a fragment, given as a network, can be divided by key."""
    tracer = _Tracer(part)
    ways: list[dict[str, str]] = [{}]
    for operator in part.operators:
        if not isinstance(operator, StatefulOperator):
            continue
        serving = tracer.serving(operator)
        if not serving:
            return Routes({}, tracer.why_none(operator))
        before, ways = ways, _agreeing(ways, serving)
        if not ways:
            keys = " and ".join(_shown(each) for each in serving)
            others = " or ".join(dict.fromkeys(_shown(each) for each in before))
            return Routes(
                {},
                f"{operator.label!r} needs the tuples together by {keys}, but operators before it "
                f"by {others}; put one of them into a fragment of its own",
            )
    streams = {stream for way in ways for stream in way}
    return Routes({stream: tuple(way[stream] for way in ways) for stream in sorted(streams)})


def state_keys(part: Network) -> dict[str, tuple[int, ...]]:
    """Which keys of each operator with state are the columns that its fragment is divided by.

    In the order of those columns: what has the state of a key says by them whose it is.
    """
    routes = find_routes(part)
    tracer = _Tracer(part)
    found = {}
    for operator in part.operators:
        if isinstance(operator, StatefulOperator) and routes.columns:
            (count,) = {len(columns) for columns in routes.columns.values()}
            ways = [
                {name: each[at] for name, each in routes.columns.items()} for at in range(count)
            ]
            found[operator.name] = tuple(tracer.place_of(operator, way) for way in ways)
    return found


def _agreeing(ways: list[dict[str, str]], serving: Sequence[Origin]) -> list[dict[str, str]]:
    found: list[dict[str, str]] = []
    for way in ways:
        for origin in serving:
            both = {**way, **origin}
            if all(both[stream] == column for stream, column in way.items()) and both not in found:
                found.append(both)
    return found


def _shown(origin: Origin) -> str:
    return ", ".join(f"{stream}.{column}" for stream, column in sorted(origin.items()))


class _Tracer:
    """Where the columns of every operator of a fragment come from."""

    def __init__(self, part: Network) -> None:
        self._spark = part.spark
        self._types: dict[tuple[str, str], DataType] = {}
        # The inputs that an operator's tuples come from, and those of its columns that are theirs.
        self._reach: dict[str, frozenset[str]] = {}
        self._origins: dict[str, dict[str, Origin]] = {}
        self._keys: dict[str, list[tuple[str, Origin | None]]] = {}
        for operator in part.operators:
            reach = [self._reach[each.name] for each in operator.inputs]
            self._reach[operator.name] = frozenset().union(*reach)
            self._origins[operator.name] = dict(self._traced(operator))

    def serving(self, operator: Operator) -> list[Origin]:
        """The keys of an operator by which all its inputs can be divided."""
        keys = (origin for _, origin in self._keys[operator.name])
        return [each for each in keys if each is not None and self._serves(operator, each)]

    def place_of(self, operator: Operator, way: Origin) -> int:
        """Which of an operator's keys a routing column is."""
        return next(
            place
            for place, (_, origin) in enumerate(self._keys[operator.name])
            if origin is not None
            and self._serves(operator, origin)
            and all(way[stream] == column for stream, column in origin.items())
        )

    def why_none(self, operator: Operator) -> str:
        keys = [name for name, _ in self._keys[operator.name]]
        if not keys:
            return (
                f"{operator.label!r} has no key: all tuples meet in it. Group by a column, or "
                f"leave shards out"
            )
        return (
            f"the keys of {operator.label!r}, {', '.join(keys)}, are no plain columns of what the "
            f"fragment reads, {', '.join(sorted(self._reach[operator.name]))}, or of a type that "
            f"cannot be hashed there. Compute the key in a fragment before this one"
        )

    def _serves(self, operator: Operator, origin: Origin) -> bool:
        return origin.keys() == self._reach[operator.name] and all(
            self._types[item].simpleString() in (*NARROW, *WIDE, *BYTES) for item in origin.items()
        )

    def _traced(self, operator: Operator) -> Iterator[tuple[str, Origin]]:
        """The columns of an operator that are its inputs', and which."""
        match operator:
            case SourceOperator():
                self._reach[operator.name] = frozenset([operator.name])
                for field in operator.schema.fields:
                    self._types[operator.name, field.name] = field.dataType
                    yield field.name, {operator.name: field.name}
            case StatelessOperator():
                frames = self._frames(operator)
                handed = handed_on(operator.apply(frames), frames)
                yield from self._known(operator, handed)
            case StatefulOperator(stateful=Aggregate() as aggregate):
                (frame,) = self._frames(operator)
                chosen = handed_on(frame.select(*aggregate.keys), [frame])
                found = dict(self._known(operator, chosen))
                names = aggregate.key_fields.fieldNames()
                self._keys[operator.name] = [(name, found.get(name)) for name in names]
                yield from found.items()
            case StatefulOperator(stateful=Join() as join):
                yield from self._joined(operator, join)
            case StatefulOperator(stateful=Distinct() as distinct):
                found = self._origins[operator.inputs[0].name]
                self._keys[operator.name] = [(name, found.get(name)) for name in distinct.keys]
                yield from found.items()
            case StatefulOperator(stateful=Process() as process):
                found = self._origins[operator.inputs[0].name]
                self._keys[operator.name] = [(name, found.get(name)) for name in process.keys]
            case _:
                raise AssertionError(f"{operator.name} is of no known kind")

    def _joined(self, operator: Operator, join: Join) -> Iterator[tuple[str, Origin]]:
        """A key that every joined tuple has is that of both sides.

        Where a side may be missing its key is null, unless the other one's stands for it.
        """
        left, right = (self._origins[each.name] for each in operator.inputs)
        keys: dict[tuple[int, str], Origin | None] = {}
        for mine, other in join.keys:
            both = _merged([left.get(mine), right.get(other)])
            self._keys.setdefault(operator.name, []).append((mine, both))
            keys[0, mine] = both if join.how != "full" or mine == other else None
            keys[1, other] = both if join.how == "inner" else None
        for name, side, source in join.columns:
            origin = keys.get((side, source))
            if origin is not None:
                yield name, origin

    def _known(self, operator: Operator, handed: dict[str, Handed]) -> Iterator[tuple[str, Origin]]:
        for name, parts in handed.items():
            above = [self._origins[operator.inputs[at].name].get(one) for at, one in parts]
            origin = _merged(above)
            if origin is not None:
                yield name, origin

    def _frames(self, operator: Operator) -> list[DataFrame]:
        return [self._spark.createDataFrame([], full_schema(each)) for each in operator.inputs]


def _merged(parts: Sequence[Origin | None]) -> Origin | None:
    """One origin of several; None if one is not known, or an input would need two columns."""
    merged: dict[str, str] = {}
    for part in parts:
        if part is None or any(merged.get(stream, one) != one for stream, one in part.items()):
            return None
        merged |= part
    return merged
