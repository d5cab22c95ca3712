"""Made-up readings of many servers, with trouble now and then.

Everything is a function of a reading's number and time, so a run can be repeated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.connect.generator_source import rate
from holdfast.connect.source import Source
from holdfast.demo.monitoring import REGIONS
from holdfast.frames import TIME
from holdfast.times import SECOND

Int64s = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

LOADS_PER_SECOND = 2
_BASE_MS = np.array([[40.0, 160.0, 95.0], [160.0, 50.0, 140.0], [95.0, 140.0, 30.0]])
# A server is busy for most of every slot, a path between two regions congested for some of it.
_BUSY_SLOT, _BUSY_FOR = 12 * SECOND, 7 * SECOND
_CONGESTED_SLOT, _CONGESTED_FOR = 17 * SECOND, 6 * SECOND


@dataclass(frozen=True)
class Fleet:
    """The servers, spread evenly over the regions, and the times of their trouble."""

    servers: int
    start_us: int

    def region_of(self, server: Int64s) -> Int64s:
        return server % len(REGIONS)

    def of_region(self, region: int) -> Int64s:
        return np.arange(region, self.servers, len(REGIONS))

    def busy(self, server: Int64s, times: Int64s) -> Bools:
        """Whether these servers are overloaded at these times."""
        since = times - self.start_us - 5 * SECOND
        slot = since // _BUSY_SLOT
        chosen = (_uniform(slot, 1) * self.servers).astype(np.int64)
        busy: Bools = (server == chosen) & (since >= 0) & (since % _BUSY_SLOT < _BUSY_FOR)
        return busy

    def congested(self, origin: Int64s, server: Int64s, times: Int64s) -> Bools:
        """Whether the paths between these regions are congested at these times."""
        since = times - self.start_us - 9 * SECOND
        slot = since // _CONGESTED_SLOT
        first = (_uniform(slot, 2) * len(REGIONS)).astype(np.int64)
        second = (first + 1 + (_uniform(slot, 3) * 2).astype(np.int64)) % len(REGIONS)
        pair = ((origin == first) & (server == second)) | ((origin == second) & (server == first))
        active = (since >= 0) & (since % _CONGESTED_SLOT < _CONGESTED_FOR)
        congested: Bools = pair & active
        return congested

    def loads(self, region: int, numbers: Int64s, times: Int64s) -> pa.Table:
        """CPU load readings of a region's servers."""
        mine = self.of_region(region)
        server = mine[numbers % len(mine)]
        quiet = 0.25 + 0.3 * _uniform(numbers, 10 + region)
        cpu = np.where(self.busy(server, times), 0.88 + 0.1 * quiet, quiet)
        return pa.table(
            {
                "at": pa.array(times).cast(TIME),
                "server": _names(server),
                "region": _regions(self.region_of(server)),
                "cpu": cpu,
            }
        )

    def latencies(self, region: int, numbers: Int64s, times: Int64s) -> pa.Table:
        """Latency readings of connections from a region's servers to all others."""
        mine = self.of_region(region)
        pair = numbers % (len(mine) * (self.servers - 1))
        origin = mine[pair // (self.servers - 1)]
        server = (origin + 1 + pair % (self.servers - 1)) % self.servers
        origins, regions = self.region_of(origin), self.region_of(server)
        latency = _BASE_MS[origins, regions] * (0.8 + 0.5 * _uniform(numbers, 20 + region))
        latency += np.where(self.busy(server, times), 260.0, 0.0)
        latency *= np.where(self.congested(origins, regions, times), 2.8, 1.0)
        return pa.table(
            {
                "at": pa.array(times).cast(TIME),
                "origin": _names(origin),
                "origin_region": _regions(origins),
                "server": _names(server),
                "latency_ms": latency,
            }
        )


def readings(fleet: Fleet) -> Mapping[str, Source]:
    """The sources of the network: every server reports its load, and probes every other once
    a second."""
    sources: dict[str, Source] = {}
    for region, name in enumerate(REGIONS):
        mine = len(fleet.of_region(region))
        loads = float(mine * LOADS_PER_SECOND)
        probes = float(mine * (fleet.servers - 1))
        sources[f"load_{name}"] = rate(
            loads,
            partial(fleet.loads, region),
            start_us=fleet.start_us,
        )
        sources[f"latency_{name}"] = rate(
            probes,
            partial(fleet.latencies, region),
            start_us=fleet.start_us,
        )
    return sources


def _uniform(numbers: Int64s, salt: int) -> Floats:
    """Evenly spread values in [0, 1), each a function of its number alone."""
    with np.errstate(over="ignore"):
        value = (numbers.astype(np.uint64) + np.uint64(salt)) * np.uint64(0x9E3779B97F4A7C15)
        value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        value = value ^ (value >> np.uint64(27))
    spread: Floats = (value >> np.uint64(11)).astype(np.float64) / float(1 << 53)
    return spread


def _names(server: Int64s) -> pa.Array:
    known = [
        f"{REGIONS[each % len(REGIONS)][:2]}-{each:02}" for each in range(int(server.max()) + 1)
    ]
    return pa.array(known).take(pa.array(server))


def _regions(region: Int64s) -> pa.Array:
    return pa.array(REGIONS).take(pa.array(region))
