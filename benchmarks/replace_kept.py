"""What an entry point keeps for a replica that is away, over the bound that it was given.

The entry point is a process of its own. One replica reads everything, played by a client under its
name; the other one never comes. Minutes of tuples are sent faster than real time. With ``retire``
nothing is kept for the second one beyond the bound, and everything goes on; with ``block`` the
source waits. The bytes are those of the stream's directory. Nothing here is about time, so both are
tried side by side.

The bound is reached after 9.5 minutes of tuples. The entry point looks twice a second, and in half
a second half a minute of them comes: so twelve minutes are sent, and once all are, it may take a
while longer to say what it does about it. That it never does is an error.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.replace_lost import PATIENCE_SECONDS, Tell, until
from benchmarks.replace_setting import TUPLES_PER_SECOND, Sales, bounded
from holdfast.client import Client
from holdfast.cluster.children import Children
from holdfast.cluster.starting import plan_network
from holdfast.cluster.status import node_status
from holdfast.deployment import Deployment
from holdfast.errors import HoldfastError
from holdfast.flight.roles import Role
from holdfast.plans.addresses import Addresses
from holdfast.plans.plan import write_plan
from holdfast.producer import Producer

ENTRY = "entry-sales"
BATCH = 2_000
SPEED = 60
# A source that takes nothing for so long waits.
STILL_SECONDS = 3.0
# Once all is sent it may take so long until what becomes of it is said.
SAY_SECONDS = 5.0
ASK_SECONDS = 0.25
PENDING = 32
BATCHES_PER_SECOND = TUPLES_PER_SECOND * SPEED / BATCH


def kept_bytes(deployment: Deployment) -> int:
    """The bytes of the stream's log, as the disk has them."""
    found = 0
    for path in (deployment.data / "processes" / ENTRY / "streams").rglob("*"):
        try:
            found += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:
            continue  # it was trimmed meanwhile
    return found


def keep(
    directory: Path, planned: Deployment, minutes: float, bound_bytes: int, tell: Tell
) -> dict[str, Any]:
    """Both policies; the largest bytes over the bound. ``planned`` is the same network and more."""
    plan = plan_network(planned, tell, lambda: False)
    assert plan is not None
    plan = replace(plan, fragments={"main": plan.fragments["main"]}, outputs=("paid",))

    def keep_with(then: str) -> dict[str, Any]:
        deployment = bounded(directory / then, bound_bytes, then)
        write_plan(deployment, plan)
        ratio, sent, said = _send_much(deployment, minutes, then == "block")
        tell(f"bound with {then}: {ratio:.3f} of it kept, {sent:,} tuples sent: {said}")
        return {"kept_over_bound": round(ratio, 3), "tuples": sent, "said": said}

    policies = ("retire", "block")
    with ThreadPoolExecutor(len(policies)) as pool:
        found = dict(zip(policies, pool.map(keep_with, policies), strict=True))
    return {
        "kept_bytes_max": max(one["kept_over_bound"] for one in found.values()),
        "kept_bound_bytes": bound_bytes,
        "kept_minutes_of_data": minutes,
        "kept": found,
    }


def _send_much(deployment: Deployment, minutes: float, blocks: bool) -> tuple[float, int, str]:
    """How much was kept at most, over the bound; what was sent; what the entry point says."""
    deployment.security.make()
    book = Addresses.choose(deployment).book(deployment.security.read())
    children = Children(deployment, [ENTRY], lambda text: None)
    children.start()
    try:

        def answers() -> bool:
            return "error" not in node_status(deployment, [ENTRY])[ENTRY]

        until("the entry point up", answers)
        security, where = deployment.security.read(), {ENTRY: book[ENTRY]}
        with Client("sales", where, name="main-1", security=security, role=Role.REPLICATE) as there:
            return _measure(deployment, there, minutes, blocks)
    finally:
        children.stop()


def _measure(
    deployment: Deployment, there: Client, minutes: float, blocks: bool
) -> tuple[float, int, str]:
    bound = deployment.bounds[""].size_bytes
    assert bound is not None
    producer = Producer.of(deployment.path, "sales", name="much")
    sales = Sales()
    most, sent, said = 0, 0, ""
    wanted = int(minutes * 60 * TUPLES_PER_SECOND)
    began = moved = asked = time.monotonic()
    while not (blocks and said and time.monotonic() - moved > STILL_SECONDS):
        if sent == wanted:
            if said or time.monotonic() - moved > SAY_SECONDS:
                break
        elif producer.pending < PENDING:
            producer.send(sales.rows(sent, BATCH))
            sent += BATCH
            moved = time.monotonic()
        while there.waiting:
            there.read(0.0)
        most = max(most, kept_bytes(deployment))
        if time.monotonic() - asked > ASK_SECONDS:
            asked = time.monotonic()
            said = "; ".join(node_status(deployment, [ENTRY])[ENTRY].get("problems", ())) or said
        if time.monotonic() - moved > PATIENCE_SECONDS:
            raise TimeoutError(f"{sent:,} of {wanted:,} tuples were taken")
        time.sleep(max(0.005, began + sent / BATCH / BATCHES_PER_SECOND - time.monotonic()))
    if not said:
        raise HoldfastError(
            f"after {sent:,} tuples the entry point kept {most:,} of {bound:,} bytes at most, and "
            f"has said nothing of it for {SAY_SECONDS:g} s"
        )
    return most / bound, sent, said
