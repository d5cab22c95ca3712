"""Finds hashes among many: where they are, and soon that they are not there.

Hashes are spread evenly, so their first bits tell almost everything. A binary search waits for
memory at every step, each time after the step before. Here a table says where the hashes with the
same first bits begin, of which there is about one, and these are looked at one after the other,
for all that is wanted at once: each look waits for memory once, and few are left after it.

First bits are taken with their sign, and numpy counts negative places from the end of a table.
"""

from __future__ import annotations

import numpy as np

from holdfast.spark.runs import Bools, Int64s

# A sieve has so many holes for each hash, or up to twice as many.
_HOLES_A_HASH = 8
# How many hashes are looked at before what is left is searched for in steps.
_MOST_LOOKS = 4


class Sieve:
    """Holds back most hashes that are not among the given ones."""

    def __init__(self, hashes: Int64s) -> None:
        bits = self._bits(len(hashes))
        self._shift = 64 - bits
        self._is_there: Bools = np.zeros(1 << bits, np.bool_)
        self._is_there[hashes >> self._shift] = True

    @staticmethod
    def _bits(count: int) -> int:
        return (count * _HOLES_A_HASH).bit_length()

    @staticmethod
    def bytes(count: int) -> int:
        """What one for so many hashes takes."""
        return 1 << Sieve._bits(count)

    def sifted(self, wanted: Int64s) -> Int64s:
        """Which of these may be among them."""
        found: Int64s = self._is_there.take(wanted >> self._shift).nonzero()[0]
        return found


class Directory:
    """Of ascending hashes, where those with the same first bits begin: about one."""

    @staticmethod
    def _bits(count: int) -> int:
        # Of evenly spread hashes at most one in two hundred is left for a search in steps. With
        # half as many beginnings it is up to one in thirty, and a lookup takes a third longer.
        return max(1, count.bit_length())

    @staticmethod
    def bytes(count: int) -> int:
        """What one for so many hashes takes."""
        return (4 if count < 2**31 else 8) << Directory._bits(count)

    def __init__(self, hashes: Int64s) -> None:
        bits = self._bits(len(hashes))
        self._shift, half = 64 - bits, 1 << (bits - 1)
        counts = np.bincount((hashes >> self._shift) + half, minlength=2 * half)
        starts = np.cumsum(counts) - counts
        starts = starts.astype(np.int32 if len(hashes) < 2**31 else np.int64)
        self._starts = np.concatenate([starts[half:], starts[:half]])

    def search(self, hashes: Int64s, wanted: Int64s) -> Int64s:
        """As ``searchsorted``: for each wanted hash the first place whose hash is not smaller."""
        at: Int64s = self._starts.take(wanted >> self._shift).astype(np.int64)
        smaller = (hashes.take(at, mode="clip") < wanted).nonzero()[0]
        for _ in range(_MOST_LOOKS - 1):
            if not len(smaller):
                return at
            # What begins with later bits is larger, so nobody is led beyond the right place.
            here = at.take(smaller) + 1
            at[smaller] = here
            still = hashes.take(here, mode="clip") < wanted.take(smaller)
            smaller = smaller.take(still.nonzero()[0])
        if len(smaller):
            at[smaller] = hashes.searchsorted(wanted.take(smaller))
        return at
