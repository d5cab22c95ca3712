"""The proven optimum of a placement: the same cost and the same rules as a mixed-integer programme.

x[f, s] says whether fragment f has a replica on server s; z[e, s, t] whether stream e runs from s
to t. Every replica of the producer feeds every one of the consumer, so the z of a stream that leave
s are as many as the consumer has replicas if s has one of the producer, and none otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_matrix

from holdfast.core.placement import Delays, Query, Site


class _Rows:
    """Linear constraints, one after another."""

    def __init__(self) -> None:
        self._entries: list[tuple[int, int, float]] = []
        self.low: list[float] = []
        self.high: list[float] = []

    def add(self, terms: Sequence[tuple[int, float]], low: float, high: float) -> None:
        row = len(self.low)
        self._entries += [(row, column, value) for column, value in terms]
        self.low.append(low)
        self.high.append(high)

    def constraint(self, columns: int) -> LinearConstraint:
        rows, at, values = zip(*self._entries, strict=True)
        matrix = coo_matrix((values, (rows, at)), shape=(len(self.low), columns))
        return LinearConstraint(matrix.tocsr(), self.low, self.high)


def optimum(
    sites: Sequence[Site], delays: Delays, query: Query, replicas: int, seconds: float
) -> float | None:
    """The least cost of so many replicas of each fragment; None if it was not proven in time."""
    servers = [site.name for site in sites]
    count = len(servers)
    at = {name: index * count for index, name in enumerate(query.fragments)}
    width = len(at) * count
    cost = [0.0] * width
    rows = _Rows()
    for name in query.fragments:
        rows.add([(at[name] + s, 1.0) for s in range(count)], replicas, replicas)
        for zone in {site.fails_with for site in sites}:
            inside = [s for s, site in enumerate(sites) if site.fails_with == zone]
            rows.add([(at[name] + s, 1.0) for s in inside], 0, 1)
    for s, site in enumerate(sites):
        if site.room < len(query.fragments):
            rows.add([(at[name] + s, 1.0) for name in query.fragments], 0, site.room)
    for flow in query.flows:
        here, there = query.pinned.get(flow.producer), query.pinned.get(flow.consumer)
        if here is not None and there is not None:
            raise ValueError("a stream from a source to an application needs no placement")
        if here is not None or there is not None:
            for s, server in enumerate(servers):
                delay = delays[here][server] if here is not None else delays[server][there or ""]
                fragment = flow.consumer if here is not None else flow.producer
                cost[at[fragment] + s] += flow.rate * delay
            continue
        first = width
        width += count * count
        cost += [flow.rate * delays[one][other] for one in servers for other in servers]
        for s in range(count):
            out = [(first + s * count + t, 1.0) for t in range(count)]
            rows.add([*out, (at[flow.producer] + s, -float(replicas))], 0, 0)
            into = [(first + t * count + s, 1.0) for t in range(count)]
            rows.add([*into, (at[flow.consumer] + s, -float(replicas))], 0, 0)
    integral = np.zeros(width)
    integral[: len(at) * count] = 1
    found = milp(
        np.array(cost),
        constraints=rows.constraint(width),
        integrality=integral,
        bounds=Bounds(0, 1),
        options={"time_limit": seconds},
    )
    return float(found.fun) if found.status == 0 else None
