"""What is known of a fragment without its operators, and so without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True)
class FragmentStream:
    """A stream a fragment serves."""

    stream: str
    schema: pa.Schema
    reached_by: frozenset[str]


@dataclass(frozen=True)
class FragmentPlan:
    """One fragment: what it reads and what it serves.

    inputs    the streams it reads, with their schemas.
    blocking  whether it holds a join, which says nothing while an input is missing.
    """

    name: str
    inputs: Mapping[str, pa.Schema]
    outputs: tuple[FragmentStream, ...]
    blocking: bool
