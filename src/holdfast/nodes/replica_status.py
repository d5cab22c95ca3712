"""What ``holdfast status`` is told of a replica, beside what every node says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from holdfast.blocks import Block
from holdfast.core.copy import Copy
from holdfast.core.copy_view import CopyView, InputView, Neighbours
from holdfast.core.protected import ProtectedReplica
from holdfast.core.ranks import shares
from holdfast.core.settings import StandbySettings
from holdfast.plans.fragment_plans import ShardPlan
from holdfast.slots import shard_name
from holdfast.why_words import plain_why

if TYPE_CHECKING:
    from holdfast.kept.shipper import Shipped


def streams_status(view: CopyView) -> dict[str, Any]:
    """How far inputs and outputs are, and from whom the inputs come."""
    return {
        "inputs": inputs_status(view.inputs),
        "outputs": {one.stream: one.next_id for one in view.outputs},
        "trimmed_below": {one.stream: one.first_id for one in view.outputs},
        "tentative": {stream: plain_why(why) for stream, why in view.tentative},
        "tentative_dropped": {one.stream: one.dropped for one in view.outputs if one.dropped},
    }


def tentative_bytes(copy: Copy) -> dict[str, int]:
    """How much is kept of the tentative tuples of each output, in memory or on disk."""
    sizes: Counter[str] = Counter()
    for stream, block in copy.tentative_blocks():
        assert isinstance(block, Block)
        sizes[stream] += block.nbytes
    return dict(sizes)


def inputs_status(inputs: Iterable[InputView]) -> dict[str, Any]:
    """From whom each input comes, and how early everybody is who sends it."""
    return {
        one.stream: {
            "from": one.producer,
            "next_id": one.next_id,
            "boundary": one.boundary,
            "shares": {name: round(share, 4) for name, share in shares(dict(one.weights)).items()},
            "weights": {name: round(weight, 3) for name, weight in one.weights},
            "collected": list(one.spared),
            "revived": list(one.revived),
        }
        for one in inputs
    }


def shard_status(shard: ShardPlan | None, known: Neighbours) -> dict[str, Any]:
    """What a shard takes, and whom it knows: above, beside and below it.

    Beside it are numbers of the ring: who does the work of those shards is theirs to know, and
    ``holdfast status`` puts together what all of them say (commands/shard_lines.py).
    """
    if shard is None:
        return {}
    before, after = (shard.number - 2) % shard.shards, shard.number % shard.shards
    return {
        "shard": {
            "of": shard.fragment,
            "number": shard.number,
            "shards": shard.shards,
            "generation": shard.generation,
            "slots": list(shard.slots),
            "routing": {stream: list(columns) for stream, columns in shard.columns.items()},
            "above": {stream: list(names) for stream, names in known.above},
            "beside": [
                shard_name(shard.fragment, shard.generation, each + 1) for each in (before, after)
            ],
            **({"heirs": list(shard.heirs)} if shard.heirs else {}),
            **({} if shard.parts == 1 else {"part": shard.part, "parts": shard.parts}),
            "below": {stream: list(names) for stream, names in known.below},
        }
    }


def lent_status(total: Shipped) -> dict[str, Any]:
    """What those that joined were sent, and how long that took beside the jobs."""
    if not total.checkpoints:
        return {}
    return {
        "lent": {
            "sent": total.checkpoints,
            "bytes": total.bytes,
            "seconds": round(total.seconds, 3),
            "beside_jobs_s": round(total.beside_seconds, 3),
        }
    }


def copy_status(
    copy: Copy, settings: StandbySettings | None, shipped: Shipped, awake: bool, taken: int
) -> dict[str, Any]:
    """What there is to say of one of several copies."""
    if settings is None or not isinstance(copy, ProtectedReplica):
        return {}
    pair = copy.pair_view()
    return {
        "protection": settings.protection.value,
        "copy": pair.state.value,
        "holds": pair.holds,
        "awake": awake,
        "term": pair.term,
        "primary": settings.primary_of(pair.term),
        "why": pair.reason,
        "overloaded": pair.overloaded,
        **({"load": pair.load / 1000} if settings.by_load else {}),
        "changes": {f"{state}: {why}": n for (state, why), n in pair.changes},
        "benchmark": dict(Counter({why: n for (_, why), n in pair.benchmark})),
        "queued": {one.stream: one.kept for one in copy.view().outputs},
        "checkpoints": {
            "sent": shipped.checkpoints,
            "whole": shipped.whole,
            "elements": shipped.elements,
            "bytes": shipped.bytes,
            "seconds": round(shipped.seconds, 3),
            "beside_jobs_s": round(shipped.beside_seconds, 3),
            "taken": taken,
            "confirmed": min((reached for _, reached in pair.confirmed), default=-1),
            "held": dict(pair.confirmed),
        },
    }
