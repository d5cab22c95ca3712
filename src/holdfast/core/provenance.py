"""Where a tuple comes from: what names a result before its place in the stream is known.

A tuple of a source has its id as ``seq``. Operators that look at one tuple at a time hand ``seq``
on; a union makes room for a few bits below it and writes there which of its inputs a tuple came by.
So behind any number of such operators, fragments between them or not, ``seq`` is still the id at
the source, and below it a *trail*: by which of the ways that lead here the tuple came. The trails
of a stream are a prefix code, as the branches of a tree are: each ``seq`` has one.

Trail and id are dense numbers. Whoever sends results before their order is known says which tuples
of the source they are all the results of: a *claim*. It holds also for those of which a filter left
nothing, and is what makes a set of results a few intervals.

Behind an operator that remembers tuples (a window, a join) ``seq`` is a hash, and ids cannot be
claimed. But its results are complete up to a time once the boundaries of its own inputs have passed
it. So such an operator is a source of its own for what follows, whose tuples are known by their
*times*: its trails are ``timed``, and what is claimed of them is all results from one time up to
another. The same holds for a stream that is only ever taken in order.

A pair of a join is known earlier than that: once its second half is there (pairs.py). Its ``seq``
is a hash of those of both halves, the same on every replica. So a pair is claimed *alone*: by
its ``seq`` and its time. Such a claim says nothing about other results, and claims of times hold
what was claimed alone, too: whoever reads leaves out what has passed.

This is the one place where a hash stands for a tuple: two pairs of one time whose 62 bits are equal
would be taken for one by a reader without order, if one passed early and the other did not. Of
10,000 pairs that wait and a million of the same microsecond that is a chance of 2 in a billion.
Everywhere else tuples that share time and ``seq`` are ordered by their columns and none is lost
(tests/spark/test_shared_keys.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.core.machine import PeerError


@dataclass(frozen=True, slots=True)
class Trail:
    """Tuples whose ``seq`` ends in ``suffix``, which has ``bits``; before it is the source's id.

    timed  they are claimed by their times.
    alone  each is claimed by itself. They are of a trail that is timed.
    """

    bits: int = 0
    suffix: int = 0
    timed: bool = False
    alone: bool = False

    def then(self, branch: Trail) -> Trail:
        """The trail of tuples that came by this one, and then by a branch."""
        bits, suffix = self.bits + branch.bits, self.suffix << branch.bits | branch.suffix
        return Trail(bits, suffix, self.timed, self.alone)

    @property
    def singly(self) -> Trail:
        """The same tuples, each claimed alone."""
        return Trail(self.bits, self.suffix, alone=True)

    def seq(self, tuple_id: int) -> int:
        """What a tuple of a source has as ``seq`` at the end of the trail."""
        return tuple_id << self.bits | self.suffix

    def id_of(self, seq: int) -> int | None:
        """The id at the source; None if the tuple came by another trail."""
        return seq >> self.bits if seq & ((1 << self.bits) - 1) == self.suffix else None

    def place_of(self, seq: int, stime: int) -> int | None:
        """By what a tuple is claimed; None if it came by another trail."""
        found = self.id_of(seq)
        if self.alone and found is not None:
            return seq & ALONE
        return stime if self.timed and found is not None else found


# A tuple that is claimed alone is named by so many bits of its ``seq``, and by its time.
ALONE = (1 << 62) - 1
# Of an operator with a memory, and of a stream that is only ever taken in order.
TIMED = Trail(timed=True)


@dataclass(frozen=True, slots=True)
class Claim:
    """All results, by a trail, of a source's tuples from ``first_id`` up to ``next_id``.

    Of a trail that is timed these are times, and what is claimed is all results between them. Of
    one that is alone it is a name, and what is claimed all that one pair became, at ``stime_max``.

    stime_max  none of those tuples, and so none of their results, is newer.
    """

    trail: Trail
    first_id: int
    next_id: int
    stime_max: int

    def check(self, sender: str) -> None:
        """PeerError if nobody can mean it."""
        trail = self.trail
        in_bits = 0 <= trail.bits < 63 and 0 <= trail.suffix < 1 << trail.bits
        one = self.next_id == self.first_id + 1 and not trail.timed and self.first_id <= ALONE
        if not in_bits or not 0 <= self.first_id < self.next_id or (trail.alone and not one):
            raise PeerError(f"{sender} cannot have the results of {self}")

    def names(self, seq: int, stime: int) -> bool:
        """Whether a tuple is one of the results."""
        place = self.trail.place_of(seq, stime)
        within = place is not None and self.first_id <= place < self.next_id
        return within and (not self.trail.alone or stime == self.stime_max)

    def then(self, branch: Trail) -> Claim:
        """The same of what became of these results behind a branch."""
        trail, first_id, next_id = self.trail.then(branch), self.first_id, self.next_id
        if trail.alone:
            first_id = branch.seq(first_id) & ALONE
            next_id = first_id + 1
        return Claim(trail, first_id, next_id, self.stime_max)


@dataclass(frozen=True, slots=True)
class Choice:
    """Some tuples of a block: those that rest on what ``claims`` name, or those that do not.

    but  also not those that these claims name.
    """

    claims: tuple[Claim, ...]
    inside: bool
    but: tuple[Claim, ...] = ()

    def takes(self, seq: int, stime: int) -> bool:
        """Whether a tuple is one of them; whoever has columns asks for all at once."""
        named = any(one.names(seq, stime) for one in self.claims)
        return named is self.inside and not any(one.names(seq, stime) for one in self.but)
