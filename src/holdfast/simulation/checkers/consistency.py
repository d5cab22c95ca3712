"""Eventual consistency: after healing a client holds what a failure-free run had produced.

The oracle computes every fragment once, over its whole input at a time, with nothing in
between that could fail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.simulation.checkers import Violation, delivery, early
from holdfast.simulation.executor import Row, Tagged, tagged

if TYPE_CHECKING:
    from holdfast.simulation.world import World


def oracle(world: World, missing: frozenset[str] = frozenset()) -> dict[str, list[Row]]:
    """Every stream as it ought to be, or as it would be if nothing had come from some sources."""
    present = [one.stream for one in world.spec.entries if one.stream not in missing]
    streams: dict[str, list[Row]] = {one.stream: [] for one in world.spec.entries}
    streams |= {name: world.truth.rows.get(name, []) for name in present}
    ahead_us = max(one.ahead_us for one in world.processes.values())
    told = max(one.boundary for one in world.clients.values())
    stop = max(world.clock.now + ahead_us, told) + 1
    for fragment in world.spec.fragments:
        # Without shards, if there are any.
        plan = fragment.whole or fragment.plan
        rows: list[Tagged] = [
            tagged(stream, number, row)
            for stream in plan.inputs
            for number, row in enumerate(streams[stream])
            if row[0] < stop and plan.takes(row[1])
        ]
        _, results, _ = plan.advance(None, rows, 0, stop)
        streams |= results
    return streams


def check(world: World) -> None:
    streams = oracle(world)
    for client in world.clients.values():
        stream = client.driver.stream
        if client.unordered:
            early.check_all(client, streams[stream])
            continue
        if client.settings.input.lossy:
            delivery.check(world, client, streams[stream])
            continue
        expected = [row for row in streams[stream] if row[0] < client.boundary]
        got = [row for row in client.stable if row[0] < client.boundary]
        if got != expected:
            index = next(
                (
                    i
                    for i, pair in enumerate(zip(got, expected, strict=False))
                    if pair[0] != pair[1]
                ),
                min(len(got), len(expected)),
            )
            raise Violation(
                "eventual consistency",
                f"{client.address} holds {len(got)} tuples of {stream}, the oracle "
                f"{len(expected)}; the first difference is at id {index}: "
                f"{got[index : index + 1]}, not {expected[index : index + 1]}",
            )
        if any(row[0] < client.boundary for row in client.tentative):
            raise Violation("eventual consistency", f"{client.address} keeps tentative tuples")
