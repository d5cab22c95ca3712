"""Made-up probes: monitors in three regions measure how long each server takes to answer.

Everything is a function of a probe's number, so a run can be repeated.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Int64s = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

REGIONS = ("america", "asia", "europe")
PROBES_PER_SECOND = 500
_BASE_MS = np.array([[40.0, 160.0, 95.0], [160.0, 50.0, 140.0], [95.0, 140.0, 30.0]])
# Every so many probes of a region another server is overloaded, for the first part of them.
_SLOT, _BUSY_SHARE, _BUSY_MS = 12 * PROBES_PER_SECOND, 0.5, 260.0


@dataclass(frozen=True)
class Monitor:
    """Probes all servers, in turn, from one region."""

    region: str
    servers: int

    def rows(self, first: int, count: int) -> pa.Table:
        """The probes from number ``first`` on."""
        numbers: Int64s = np.arange(first, first + count)
        here = REGIONS.index(self.region)
        server = numbers % self.servers
        latency = _BASE_MS[here, server % len(REGIONS)] * (0.8 + 0.5 * _uniform(numbers, here))
        slot = numbers // _SLOT
        chosen = (_uniform(slot, 9) * self.servers).astype(np.int64)
        busy = (server == chosen) & (numbers % _SLOT < _BUSY_SHARE * _SLOT)
        latency += np.where(busy, _BUSY_MS, 0.0)
        return pa.table({"server": _names(self.servers).take(server), "latency_ms": latency})


def _uniform(numbers: Int64s, salt: int) -> Floats:
    """Evenly spread values in [0, 1), each a function of its number alone."""
    with np.errstate(over="ignore"):
        value = (numbers.astype(np.uint64) + np.uint64(salt)) * np.uint64(0x9E3779B97F4A7C15)
        value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        value = value ^ (value >> np.uint64(27))
    spread: Floats = (value >> np.uint64(11)).astype(np.float64) / float(1 << 53)
    return spread


def _names(servers: int) -> pa.Array:
    return pa.array([f"{REGIONS[each % len(REGIONS)][:2]}-{each:02}" for each in range(servers)])
