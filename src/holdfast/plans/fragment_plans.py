"""What is known of a fragment without its operators, and so without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from holdfast.identity import identity_of


@dataclass(frozen=True)
class FragmentStream:
    """A stream a fragment serves."""

    stream: str
    schema: pa.Schema
    reached_by: frozenset[str]


@dataclass(frozen=True)
class FragmentPlan:
    """One fragment: what it reads and what it serves.

    inputs       the streams it reads, with their schemas.
    blocking     whether it holds a join, which says nothing while an input is missing.
    description  what it computes; its state is that of no other description (``identity``).
    """

    name: str
    inputs: Mapping[str, pa.Schema]
    outputs: tuple[FragmentStream, ...]
    blocking: bool
    description: tuple[str, ...]

    @property
    def identity(self) -> str:
        """A digest of the description."""
        return identity_of(self.description)
