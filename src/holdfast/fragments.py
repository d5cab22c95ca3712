"""Fragments: a network cut into parts that run as units, each with its own engine.

A stream that crosses from one fragment to another is served by the one and read by the other.
A source's stream is named after the source and served by its entry point; a network's output is
named after the output; any other stream between fragments is named ``fragment.operator``. The
names are the same in every process, because operators are named by counting.

A tuple keeps its ``seq`` from fragment to fragment, so what a network computes does not depend on
where it is cut: tuples of one time have the same order everywhere.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable
from graphlib import CycleError, TopologicalSorter

import pyarrow as pa

from holdfast.core.provenance import TIMED, Trail
from holdfast.description import Gained, describe_without
from holdfast.errors import NetworkError
from holdfast.frames import SEQ
from holdfast.gained import without_gained
from holdfast.network import Network
from holdfast.operators import Operator, SourceOperator, StatelessOperator, upstream
from holdfast.plans.fragment_plans import (
    MOST_WAYS,
    FragmentPlan,
    FragmentStream,
    Memory,
    ShardPlan,
    Ways,
)
from holdfast.routes import find_routes
from holdfast.spark.engine import input_schema
from holdfast.spark.join import Join
from holdfast.stream import Stream


def stream_schema_of(operator: Operator) -> pa.Schema:
    """The schema of an operator's tuples on the wire and in logs.

    It is the engine's, but without ``seq`` for a source: that is the tuple id.
    """
    schema = input_schema(operator)
    if isinstance(operator, SourceOperator):
        return pa.schema([field for field in schema if field.name != SEQ.name])
    return schema


def fragment_names(network: Network) -> list[str]:
    """The network's fragments, upstream first; one with nothing but sources is none."""
    above: dict[str, set[str]] = {}
    for operator in network.operators:
        read = above.setdefault(operator.fragment, set())
        read.update(each.fragment for each in operator.inputs if each.fragment != operator.fragment)
    try:
        names = list(TopologicalSorter(above).static_order())
    except CycleError as error:
        around = " reads ".join(repr(name) for name in reversed(error.args[1]))
        raise NetworkError(
            f"network {network.name!r}: fragment {around}: each would wait for the other. Give "
            f"what comes back to a fragment a name of its own, with fragment()"
        ) from None
    return [name for name in names if _outputs(network, name)]


def plan_fragments(network: Network, gained: Gained | None = None) -> list[FragmentPlan]:
    """What every fragment of the network reads and serves.

    ``gained``: what it would be if its sources had not gained these columns.
    """
    network.check()
    # Of streams between fragments: those upstream come first.
    found = dict(gained or {})
    return [_plan(network, name, found) for name in fragment_names(network)]


def fragment_network(network: Network, fragment: str, shard: ShardPlan | None = None) -> Network:
    """The part of ``network`` that is ``fragment``, or a shard of one, as a network of its own."""
    if shard is None:
        return _FragmentNetwork(network, fragment)
    part = _FragmentNetwork(network, shard.fragment)
    part._outputs = {shard.serves(name): stream for name, stream in part._outputs.items()}
    return part


def ways_to(operator: Operator) -> tuple[Ways, Memory, frozenset[Trail]]:
    """How tuples get to a stream: those of inputs that pass stateless operators only, and those
    that an operator with a memory gives, with the trails of those that are pairs. Nothing if there
    are too many ways."""
    if isinstance(operator, SourceOperator):
        return ((operator.name, Trail()),), (), frozenset()
    if not isinstance(operator, StatelessOperator):
        above = list(upstream([operator]))
        reached = frozenset(each.name for each in above if isinstance(each, SourceOperator))
        return (), ((TIMED, reached),), frozenset([TIMED] if _gives_pairs(operator, above) else ())
    ways: list[tuple[str, Trail]] = []
    memory: list[tuple[Trail, frozenset[str]]] = []
    pairs: set[Trail] = set()
    for branch, each in enumerate(operator.inputs):
        way = Trail(operator.branch_bits, branch if operator.branch_bits else 0)
        own_ways, own_memory, own_pairs = ways_to(each)
        ways += [(name, trail.then(way)) for name, trail in own_ways]
        memory += [(trail.then(way), inputs) for trail, inputs in own_memory]
        pairs |= {trail.then(way) for trail in own_pairs}
        if not (own_ways or own_memory) or len(ways) + len(memory) > MOST_WAYS:
            return (), (), frozenset()
    return tuple(ways), tuple(memory), frozenset(pairs)


def _gives_pairs(operator: Operator, above: Iterable[Operator]) -> bool:
    """Whether it is a join whose pairs are there once both halves are: what comes later takes no
    pair back, and nothing before it waits for anything."""
    join = getattr(operator, "stateful", None)
    others = (each for each in above if each is not operator)
    alone = all(isinstance(each, SourceOperator | StatelessOperator) for each in others)
    return isinstance(join, Join) and alone


def _stream_name(operator: Operator) -> str:
    if isinstance(operator, SourceOperator):
        return operator.name
    return f"{operator.fragment}.{operator.name}"


def _inputs(network: Network, fragment: str) -> dict[str, Operator]:
    """The operators outside whose tuples the fragment reads, and sources of its own."""
    found: dict[str, Operator] = {}
    for operator in network.operators:
        if operator.fragment != fragment:
            continue
        if isinstance(operator, SourceOperator):
            found[_stream_name(operator)] = operator
        for each in operator.inputs:
            if each.fragment != fragment:
                found[_stream_name(each)] = each
    return found


def _outputs(network: Network, fragment: str) -> dict[str, Operator]:
    """The streams of the fragment that clients or other fragments read."""
    found = {
        name: stream.operator
        for name, stream in network.outputs.items()
        if stream.operator.fragment == fragment
    }
    for operator in network.operators:
        for each in operator.inputs:
            crosses = each.fragment == fragment and operator.fragment != fragment
            if crosses and not isinstance(each, SourceOperator):
                found[_stream_name(each)] = each
    return found


class _FragmentNetwork(Network):
    """A network whose sources are the fragment's inputs."""

    def __init__(self, network: Network, fragment: str) -> None:
        inputs = _inputs(network, fragment)
        outputs = _outputs(network, fragment)
        if not outputs:
            raise NetworkError(
                f"network {network.name!r} has no fragment {fragment!r} that anybody reads; it "
                f"has {fragment_names(network)}"
            )
        self.name = f"{network.name}-{fragment}"
        self.bucket = network.bucket
        self.partitions = network.partitions
        self.spark = network.spark
        outside = {id(operator): name for name, operator in inputs.items()}
        copies: dict[int, Operator] = {}
        for operator in upstream(list(outputs.values())):
            if id(operator) in outside:
                name = outside[id(operator)]
                copies[id(operator)] = SourceOperator(
                    name, f"stream {name!r}", (), operator.schema, fragment, None, ()
                )
            elif operator.fragment == fragment:
                into = tuple(copies[id(each)] for each in operator.inputs)
                copies[id(operator)] = dataclasses.replace(operator, inputs=into)
        self._sources = {
            name: copies[id(operator)]  # type: ignore[misc]
            for name, operator in inputs.items()
            if id(operator) in copies
        }
        self._outputs = {
            name: Stream(self, copies[id(operator)], network.outputs[name].template)
            if name in network.outputs
            else Stream(self, copies[id(operator)], self.spark.createDataFrame([], operator.schema))
            for name, operator in outputs.items()
        }
        self._counts = {}


def _plan(network: Network, fragment: str, gained: dict[str, Collection[str]]) -> FragmentPlan:
    part = _FragmentNetwork(network, fragment)
    read = _inputs(network, fragment)
    described = describe_without(part, gained)
    outputs = []
    for name, stream in part.outputs.items():
        above = upstream([stream.operator])
        reached = frozenset(each.name for each in above if isinstance(each, SourceOperator))
        gained[name] = described.gained[stream.operator.name]
        schema = without_gained(stream_schema_of(stream.operator), gained[name])
        outputs.append(FragmentStream(name, schema, reached, *ways_to(stream.operator)))
    inputs = {
        name: without_gained(stream_schema_of(read[name]), gained.get(name, ()))
        for name in part.sources
    }
    blocking = any(
        getattr(getattr(each, "stateful", None), "blocks", False) for each in part.operators
    )
    return FragmentPlan(
        fragment,
        inputs,
        tuple(outputs),
        blocking,
        described.lines,
        find_routes(part),
        operators=described.operators,
    )
