"""Frames and blocks as tests make them and look at them."""

from __future__ import annotations

from holdfast.blocks import Block
from holdfast.core.frame import Header, Kind
from holdfast.frames import Frame


def boundary_frame(next_id: int, stime: int) -> Frame:
    """A promise that no tuple older than ``stime`` follows."""
    return Frame(Header(Kind.BOUNDARY, next_id, 0, stime, stime))


def in_memory(block: Block) -> bool:
    """Whether the tuples are here, and not only in the log."""
    return block._batch is not None
