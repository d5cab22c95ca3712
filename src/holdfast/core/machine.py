"""What every protocol machine has in common: a table, a story and errors that tell it.

A machine is a state, a literal table of the transitions it may make, and a ``handle`` method
that is the only way to change it. The table maps (state, trigger) to the next state; a
trigger that is not in the table for the present state is a bug in this program and raises
``IllegalTransition`` with the machine's recent past. What a *peer* does wrong is a
``PeerError``: we did nothing illegal, the other side did.

Every transition is counted in ``visits``, which is how the simulator reports transitions
that no run has taken.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from enum import Enum
from typing import ClassVar, Generic, TypeVar

S = TypeVar("S", bound=Enum)
T = TypeVar("T", bound=Enum)


class ProtocolError(Exception):
    """A machine was asked for something its rules forbid: a bug on this side."""


class PeerError(Exception):
    """A peer broke the protocol: what it sent cannot follow what it sent before."""


class IllegalTransition(ProtocolError):
    """A trigger came in a state whose row of the table does not have it."""


class Machine(Generic[S, T]):
    """A named machine with a transition table and the story of how it got where it is."""

    TABLE: ClassVar[Mapping[tuple[Enum, Enum], Enum]]
    STORY_LENGTH = 40

    def __init__(self, name: str, initial: S) -> None:
        self.name = name
        self.state: S = initial
        self.visits: Counter[tuple[str, str]] = Counter()
        self._story: deque[tuple[int, Enum, Enum, Enum, str]] = deque(maxlen=self.STORY_LENGTH)

    def move(self, trigger: T, now: int, detail: str = "") -> S:
        """Take the transition that ``trigger`` names, or raise with the story so far."""
        target = self.TABLE.get((self.state, trigger))
        if target is None:
            raise IllegalTransition(
                f"{self.name}: {trigger.name} has no place in state {self.state.name}"
                f"{f' ({detail})' if detail else ''}\n{self.story()}"
            )
        self.visits[self.state.name, trigger.name] += 1
        self._story.append((now, self.state, trigger, target, detail))
        self.state = target  # type: ignore[assignment]  # a table holds states of its machine
        return self.state

    def can(self, trigger: T) -> bool:
        """Whether the present state's row has this trigger."""
        return (self.state, trigger) in self.TABLE

    def story(self) -> str:
        """The last transitions, one a line, oldest first."""
        if not self._story:
            return f"  {self.name}: no transition yet, in {self.state.name}"
        return "\n".join(
            f"  {now / 1e6:12.6f} s  {self.name}: {before.name} --{trigger.name}--> {after.name}"
            f"{f'  {detail}' if detail else ''}"
            for now, before, trigger, after, detail in self._story
        )

    def require(self, holds: bool, what: str) -> None:
        """An invariant; broken, it raises with the story."""
        if not holds:
            raise ProtocolError(f"{self.name}: {what}\n{self.story()}")
