"""How soon the stop of an upstream replica is noticed, over many stops, in any version.

dpc-policies stops a replica twice, and its ``notice_ms`` is the median of the few changes that
follow; a stop is noticed after a few milliseconds, or with the next heartbeat. So a median of a few
says little. ``versions`` runs this beside each version's own benchmark, from that version's root
and with its environment: of it only what dpc-policies has had from the beginning is used.

    python benchmarks/versions_notice.py STOPS
"""

from __future__ import annotations

import json
import statistics
import sys

from benchmarks.dpc_policies import SWITCH, changes_after_stopping
from benchmarks.dpc_world import Hosts, World


def noticed(stops: int) -> list[float]:
    """After how many milliseconds each reader changed to another replica, stop after stop."""
    found: list[float] = []
    with Hosts() as hosts:
        hosts.schemas(SWITCH)
        with World(hosts, SWITCH) as world:
            world.settle(1.0)
            for _ in range(stops):
                (followed,) = hosts.replicas.order("status")["node2-1"]["inputs"].values()
                changes = changes_after_stopping(hosts, world, followed["from"])
                found += [change["after_ms"] for change in changes]
                hosts.replicas.order("start", name=followed["from"])
                world.settle(0.5)
    return found


def main() -> None:
    found = noticed(int(sys.argv[1]))
    told = {
        "stops": {
            "notice_ms": round(statistics.median(found), 1),
            "notice_least_ms": round(min(found), 1),
            "noticed_ms": [round(each, 1) for each in found],
        }
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
