"""Traffic: what a protection sends beside the stream itself (Fig. 6, Fig. 11).

Counted is what processes really put on the wire, in tuples as the paper does and in bytes: what
the copies of the last fragment are sent, what they send to the client, and the checkpoints
between them (the rows of their states and the tuples of their output queues).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.journals import entries
from benchmarks.standby_chain import Chain, now_us

Figures = dict[str, float]


@dataclass(frozen=True)
class Counted:
    """What the copies of one branch were sent and have sent so far."""

    tuples: float = 0.0
    bytes: float = 0.0
    checkpoints: float = 0.0
    checkpoint_tuples: float = 0.0
    checkpoint_bytes: float = 0.0
    checkpoint_seconds: float = 0.0


def sent_by_branch(chain: Chain) -> dict[str, Counted]:
    """Branch -> what was sent so far, checkpoints included in tuples and bytes."""
    sent, status = chain.traffic(), chain.status()
    found = {}
    for branch in chain.branches:
        copies = (f"{branch}-1", f"{branch}-2")
        streams = [
            amount for (sender, to, _), amount in sent.items() if sender in copies or to in copies
        ]
        checkpoints = [status.get(copy, {}).get("checkpoints", {}) for copy in copies]

        def total(key: str, of: Sequence[dict[str, float]] = checkpoints) -> float:
            return sum(float(each.get(key, 0.0)) for each in of)

        found[branch] = Counted(
            sum(tuples for tuples, _ in streams) + total("elements"),
            sum(size for _, size in streams) + total("bytes"),
            total("sent"),
            total("elements"),
            total("bytes"),
            total("seconds"),
        )
    return found


def measure(chain: Chain, seconds: float) -> dict[str, Figures]:
    """What each branch sends in a second, undisturbed, and what a checkpoint takes.

    Nothing is under way at the beginning and at the end, so all have sent the same elements.
    """
    chain.settle()
    before, started, since = sent_by_branch(chain), time.monotonic(), now_us()
    time.sleep(seconds)
    chain.settle()
    after, lasted = sent_by_branch(chain), time.monotonic() - started
    found = {name: _rates(before[name], after[name], lasted) for name in chain.branches}
    for each in entries(chain.deployment.data, since):
        name = each.node.rpartition("-")[0]
        if name in found and each.fields.get("copy") == "awake":
            found[name]["false_alarms"] += 1
    return found


def _rates(before: Counted, after: Counted, seconds: float) -> Figures:
    taken = after.checkpoints - before.checkpoints
    spent = after.checkpoint_seconds - before.checkpoint_seconds
    return {
        "tuples_s": round((after.tuples - before.tuples) / seconds, 1),
        "bytes_s": round((after.bytes - before.bytes) / seconds),
        "checkpoints_s": round(taken / seconds, 2),
        "checkpoint_tuples_s": round(
            (after.checkpoint_tuples - before.checkpoint_tuples) / seconds, 1
        ),
        "checkpoint_bytes_s": round((after.checkpoint_bytes - before.checkpoint_bytes) / seconds),
        "checkpoint_ms": round(1000 * spent / taken, 1) if taken else 0.0,
        "false_alarms": 0,
    }


def by_rate(chain: Chain, rates: Sequence[int], seconds: float) -> dict[str, dict[str, Figures]]:
    """Rate -> branch -> what it sends, and how much more than the branch without protection."""
    found: dict[str, dict[str, Figures]] = {}
    for rate in rates:
        chain.elements.rate = rate
        one = measure(chain, seconds)
        for each in one.values():
            for unit in ("tuples_s", "bytes_s"):
                ratio = each[unit] / one["none"][unit]
                each[f"{unit.removesuffix('_s')}_over_none"] = round(ratio, 3)
        found[str(rate)] = one
    return found
