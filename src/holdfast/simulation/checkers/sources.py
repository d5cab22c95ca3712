"""Every tuple of a source is in its entry point's stream once, in the order it was made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.simulation.checkers import Violation

if TYPE_CHECKING:
    from holdfast.simulation.world import World


def check(world: World) -> None:
    for entry in world.entries.values():
        stream = entry.settings.stream
        taken = [(key, value) for _, key, value in world.truth.rows.get(stream, [])]
        made = entry.source.made[: len(taken)]
        if taken != made:
            differs = (
                i for i, pair in enumerate(zip(taken, made, strict=False)) if pair[0] != pair[1]
            )
            index = next(differs, len(made))
            raise Violation(
                "no loss, no duplicate",
                f"{stream} has {taken[index]} as tuple {index}, its source made "
                f"{made[index : index + 1]}",
            )
