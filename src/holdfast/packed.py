"""Packed states, as they lie on disk and travel: Arrow, and who reads them needs no engine.

A *chain* is a whole packed state followed by changes. How a state becomes one, and one a state,
says ``spark.packing``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa


@dataclass(frozen=True)
class PackedPart:
    """The rows of one operator's state family in one partition."""

    operator: str
    family: str
    partition: int
    rows: pa.Table


@dataclass(frozen=True)
class PackedState:
    """A whole state, or what changed since version ``since``.

    ``partitions`` is how many its network has, where that is known: keys live by it.
    """

    version: int
    boundary: int
    since: int | None
    parts: Sequence[PackedPart]
    partitions: int | None = None

    @property
    def nbytes(self) -> int:
        return sum(part.rows.nbytes for part in self.parts)


Chain: TypeAlias = tuple[PackedState, ...]


def chain_bytes(chain: Chain) -> int:
    return sum(packed.nbytes for packed in chain)


def chain_rows(chain: Chain) -> int:
    """How many rows of state travel."""
    return sum(part.rows.num_rows for packed in chain for part in packed.parts)
