"""How often a fragment's results count, as a deployment file has it (``core.delivery``)."""

from __future__ import annotations

from typing import Any

from holdfast.continuous_knobs import KnobError
from holdfast.core.settings import Delivery, Protection

# What each kind can be combined with: copies that run would lose, or repeat, different tuples.
_WITH = {
    Delivery.AT_MOST_ONCE: (Protection.NONE, Protection.PASSIVE),
    Delivery.AT_LEAST_ONCE: (Protection.NONE, Protection.PASSIVE),
    Delivery.EXACTLY_ONCE: tuple(Protection),
}


def read_delivery(found: dict[str, Any], protection: Protection) -> Delivery:
    """What a fragment's table says of delivery."""
    wanted = found.get("delivery", Delivery.EXACTLY_ONCE.value)
    known = [each.value for each in Delivery]
    if wanted not in known:
        raise KnobError("delivery", f"it is one of {', '.join(known)}; got {wanted!r}")
    delivery = Delivery(wanted)
    allowed = _WITH[delivery]
    if protection not in allowed:
        raise KnobError(
            "delivery",
            f"{wanted} goes with protection {' or '.join(one.value for one in allowed)}, because "
            f"replicas that run side by side would not have the same results; this one is "
            f"{protection.value}. Use another protection, or exactly-once",
        )
    if delivery is not Delivery.EXACTLY_ONCE and found.get("checkpoint") is not None:
        raise KnobError(
            "delivery",
            f"continuous checkpoints are in the log of results, and {wanted} has none; leave "
            f"checkpoint away, or use exactly-once",
        )
    return delivery
