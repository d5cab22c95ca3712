"""Who takes part: which life of each consumer counts at a provider, and who is gone; durably.

Theory of operation. A consumer is a name and an *incarnation*: a number for one life of its
directory. A process that starts again with its directory is the same one. A process that has lost
it must take a place in the stream from somebody else (``core.joining``), and what its earlier life
acknowledged says nothing about it: that life was further, perhaps, than the one it takes the place
from. So it comes with a greater number, and the rule is that of every fence (``core.fence``): who
is told a higher number obeys it, writes it down before it answers under it, and refuses lower ones.

To obey is to *hold*: nothing more is trimmed until the new life itself acknowledges it. Heartbeats
of an earlier life that are still on their way, or of a machine that was thought lost and returns,
acknowledge nothing, and are told the number that counts.

A name that never lost anything has incarnation 0, and nothing is written for it.

Who takes part at all may change, too: a client is retired, a replica removed. One place decides
that and numbers what it has decided (``Membership``); the rule is the same. Who hears of a greater
*epoch* writes it down and only then obeys it: nothing is kept any more for those who are gone,
nothing is read from them, and nobody who starts again forgets it. It need not be told to everybody:
heartbeats carry the epoch both ways, and whoever is behind is sent the newest. So one who was away
learns of it with the first word, from anybody, and one who is gone and comes back is told so. Until
a provider obeys what its reader obeys, that reader acknowledges nothing there: all who were there
before may have what one who was added since needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from holdfast.core.effects import Effect, KeepConsumers, Send
from holdfast.core.events import (
    ConsumersKept,
    ConsumersNotKept,
    Event,
    MembershipTold,
    MessageArrived,
)
from holdfast.core.machine import ProtocolError
from holdfast.core.messages import HeartbeatReply, HeartbeatRequest
from holdfast.core.records import ConsumersRecord, Membership


class Consumers:
    """Who reads from one provider, in which life, and who takes part."""

    def __init__(self, kept: ConsumersRecord | None = None) -> None:
        kept = kept or ConsumersRecord()
        self._number = kept.number
        self._kept = dict(kept.lives)
        self._newest = dict(kept.lives)
        # What is obeyed is on disk; what was heard may be newer.
        self.membership = self._heard = kept.membership
        self._writing: ConsumersRecord | None = None

    @property
    def lives(self) -> Mapping[str, int]:
        """What is obeyed: the newest incarnation of each name."""
        return self._newest

    def told(self, name: str) -> int:
        """The incarnation that ``name`` is told: the newest that is on disk."""
        return self._kept.get(name, 0)

    def counts(self, name: str, incarnation: int) -> bool:
        """Whether what this life acknowledges counts."""
        return incarnation == self._newest.get(name, 0)

    def is_newer(self, name: str, incarnation: int) -> bool:
        """Whether this life has not been heard of: a hold is due."""
        return incarnation > self._newest.get(name, 0)

    def hear(self, name: str, incarnation: int) -> list[Effect]:
        """Obey a newer life; order what is not on disk to be written."""
        if self.is_newer(name, incarnation):
            self._newest[name] = incarnation
        return self._write()

    def tell(self, membership: Membership | None) -> list[Effect]:
        """Take a newer membership, which is obeyed once it is on disk."""
        if membership is not None and membership.epoch > self._heard.epoch:
            self._heard = membership
        return self._write()

    def handle(self, event: ConsumersKept | ConsumersNotKept) -> list[Effect]:
        """What came of writing. What failed is tried again with the next heartbeat."""
        writing = self._writing
        if writing is None or event.number != writing.number:
            return []
        self._writing = None
        if isinstance(event, ConsumersNotKept):
            return []
        self._kept = dict(writing.lives)
        self.membership = writing.membership
        return self._write()

    def _write(self) -> list[Effect]:
        if self._writing is not None:
            return []
        # With every event: what is on disk is nearly always the very thing that was heard.
        known = self._heard is self.membership or self._heard == self.membership
        if known and self._newest == self._kept:
            return []
        self._number += 1
        lives = tuple(sorted(self._newest.items()))
        self._writing = ConsumersRecord(self._number, lives, self._heard)
        return [KeepConsumers(self._writing)]

    def validate(self) -> None:
        for name, incarnation in self._kept.items():
            if self._newest.get(name, 0) < incarnation:
                raise ProtocolError(f"{name}: incarnation {incarnation} is on disk and not obeyed")
        if self._heard.epoch < self.membership.epoch:
            raise ProtocolError(f"epoch {self.membership.epoch} is on disk and not obeyed")


class Word:
    """What one process hears of who takes part, and what it tells with its heartbeats."""

    def __init__(self) -> None:
        # The epoch that each peer obeyed when it was heard last.
        self._epochs: dict[str, int] = {}

    def heard(self, event: Event) -> Membership | None:
        """The membership that comes with an event, if one does."""
        if not isinstance(event, MessageArrived):
            return event.membership if isinstance(event, MembershipTold) else None
        message = event.message
        if isinstance(message, HeartbeatReply):
            self._epochs[event.sender] = message.epoch
            return message.membership
        return message.membership if isinstance(message, HeartbeatRequest) else None

    def stamped(self, effects: list[Effect], membership: Membership) -> list[Effect]:
        """Orders, with the epoch in every heartbeat, and all of it for who is behind."""
        if not membership.epoch:
            return effects
        return [self._stamp(effect, membership) for effect in effects]

    def _stamp(self, effect: Effect, membership: Membership) -> Effect:
        if not (isinstance(effect, Send) and isinstance(effect.message, HeartbeatRequest)):
            return effect
        epoch = membership.epoch
        behind = self._epochs.get(effect.to, epoch) < epoch
        message = replace(effect.message, epoch=epoch, membership=membership if behind else None)
        return replace(effect, message=message)


def told_to_go(name: str, membership: Membership) -> str | None:
    """What one that is gone is told; None if it takes part."""
    epoch = membership.gone_since(name)
    if epoch is None:
        return None
    return (
        f"{name} was retired or removed (epoch {epoch} of the deployment's membership): nothing is "
        f"kept for it any more, and it must end. To take part again, use a new name: another "
        f"client in the deployment file, or holdfast replica add"
    )


def replaced(name: str, incarnation: int, newest: int) -> str:
    """What a replica is told of whose name another one lives."""
    return (
        f"{name} of incarnation {incarnation} was replaced: another one of this name has joined "
        f"since and has incarnation {newest}. End this one, or remove its directory to let it join "
        f"anew"
    )
