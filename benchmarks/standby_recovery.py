"""Recovery: how long until results go on, and what going back costs (Fig. 7, 8, 9, 10).

A machine stands still for a few seconds (SIGSTOP) and comes back (Fig. 9, 10); or one copy after
the other is cut off from everyone for a while, so that each recovers with the cores to itself
(Fig. 7, 8). The recovery time is from then to the first result about an element made after it. Its
parts, from what the copies wrote down: *detect*, until the other copy wakes; *resume* (the paper's
redeployment, for passive), until its first job begins; *resend*, until the client has the result.
The rollback time is from the copy's return until the other sleeps again.
"""

from __future__ import annotations

import signal
import statistics
import time
from collections.abc import Iterable, Sequence

from benchmarks.journals import RUNNING, copy_state_at, recovery_parts_ms
from benchmarks.standby_chain import Chain, now_us
from benchmarks.standby_traffic import sent_by_branch
from holdfast.cluster.supervisor import send_signal

PATIENCE_SECONDS = 60.0
FRESH_US = 4_000_000


def stand_still(
    chain: Chain, machine: str, seconds: float, branches: Iterable[str], copy: int
) -> dict[str, dict[str, float]]:
    """Stop a machine for a while; what became of ``branches``, whose other copy is ``copy``."""
    chain.wait_flowing()
    data = chain.deployment.data
    before = sent_by_branch(chain)
    stopped = now_us()
    send_signal(chain.deployment, machine, signal.SIGSTOP)
    try:
        came = {
            branch: chain.branches[branch].wait_made(stopped, PATIENCE_SECONDS)
            for branch in branches
        }
        time.sleep(max(0.0, stopped / 1e6 + seconds - time.time()))
    finally:
        send_signal(chain.deployment, machine, signal.SIGCONT)
    continued = now_us()
    found: dict[str, dict[str, float]] = {}
    for branch, new in came.items():
        other = f"{branch}-{copy}"
        parts = recovery_parts_ms(data, other, stopped, new)
        found[branch] = {"recovery_ms": (new - stopped) / 1000}
        found[branch] |= {f"{part}_ms": value for part, value in parts.items()}
        if copy_state_at(data, other, {"awake"}, stopped) is not None:
            asleep = _wait_suspended(chain, other, continued)
            if asleep is not None:
                found[branch]["rollback_ms"] = (asleep - continued) / 1000
    chain.wait_flowing()
    after = sent_by_branch(chain)
    lasted = (now_us() - stopped) / 1e6
    for branch, one in found.items():
        one["outage_s"] = (continued - stopped) / 1e6
        one["tuples_sent"] = after[branch].tuples - before[branch].tuples
        one["tuples_sent_s"] = one["tuples_sent"] / lasted
        one["checkpoint_tuples"] = (
            after[branch].checkpoint_tuples - before[branch].checkpoint_tuples
        )
    return found


def cut_off(chain: Chain, branch: str) -> dict[str, float]:
    """Cut the primary of a branch off until the other copy has given results."""
    data = chain.deployment.data
    primary, other = _wait_whole(chain, branch)
    deployed = copy_state_at(data, other, RUNNING, 0) is None
    failed = now_us()
    with chain.cut_off(primary):
        new = chain.branches[branch].wait_made(failed, PATIENCE_SECONDS)
        healed = now_us()  # before it is: the copy may be asleep before we are told
    found = {"recovery_ms": (new - failed) / 1000, "deployed": float(deployed)}
    parts = recovery_parts_ms(data, other, failed, new)
    found |= {f"{part}_ms": value for part, value in parts.items()}
    if copy_state_at(data, other, {"primary"}, failed) is None:
        asleep = _wait_suspended(chain, other, healed)
        if asleep is not None:
            found["rollback_ms"] = (asleep - healed) / 1000
    return found


def _wait_whole(chain: Chain, branch: str) -> tuple[str, str]:
    """The primary of a branch, and the other copy once it sleeps with a recent checkpoint."""
    copies = (f"{branch}-1", f"{branch}-2")
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        status = {node: chain.status_of(node) for node in copies}
        for primary, other in (copies, copies[::-1]):
            fresh = now_us() - int(status[other].get("boundary", 0)) < FRESH_US
            states = (status[primary].get("copy"), status[other].get("copy"))
            if states == ("primary", "suspended") and fresh:
                return primary, other
        time.sleep(0.1)
    raise TimeoutError(f"no copy of {branch} stands by: {status}")


def _wait_suspended(chain: Chain, node: str, since: int) -> int | None:
    """When a copy went to sleep, if it does in time."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        found = copy_state_at(chain.deployment.data, node, {"suspended"}, since)
        if found is not None:
            return found
        time.sleep(0.1)
    return None


def median(rounds: Sequence[dict[str, float]]) -> dict[str, float]:
    """Of several rounds: the median of each figure."""
    keys = dict.fromkeys(key for one in rounds for key in one)
    return {
        key: round(statistics.median(one[key] for one in rounds if key in one), 1) for key in keys
    }
