"""Who may say what to a process, decided before its driver hears of it.

Anyone may read, except the other copies, which have nothing to read here: ask for heartbeats,
subscribe, unsubscribe. Replicas of a fragment make out among themselves who reconciles first; the
copies of a fragment speak to each other about terms and checkpoints. Both lend their state to one
that joins. Answers and feeds come on calls that this process made, never by a call to it. What
does not fit is an error to the sender and nothing to the driver.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.core.messages import (
    CheckpointRefused,
    CheckpointTaken,
    CopyRequest,
    HeartbeatRequest,
    JoinReply,
    JoinRequest,
    Message,
    PostponeRelease,
    PostponeReply,
    PostponeRequest,
    StateRequest,
    Subscribe,
    Unsubscribe,
)

FROM_ANYONE = (HeartbeatRequest, Subscribe, Unsubscribe)
BETWEEN_REPLICAS = (PostponeRequest, PostponeReply, PostponeRelease)
BETWEEN_COPIES = (CopyRequest, StateRequest)
OF_STATES = (JoinRequest, JoinReply, CheckpointTaken, CheckpointRefused)


@dataclass(frozen=True, slots=True)
class Admission:
    """Whom one process listens to.

    partners  the other replicas of its fragment, if it has any.
    copies    the other copies of its fragment, if they stand by for one another.
    """

    owner: str
    partners: tuple[str, ...] = ()
    copies: tuple[str, ...] = ()

    def refusal(self, sender: str, message: Message) -> str | None:
        """Why a message is not for the driver; None if it is."""
        what = type(message).__name__
        if isinstance(message, FROM_ANYONE):
            if sender not in self.copies:
                return None
            return f"{self.owner} is read by others; another copy of it, {sender}, sent {what}"
        if isinstance(message, OF_STATES):
            if self.takes_states_of(sender):
                return None
            others = _listed((*self.partners, *self.copies))
            return f"{self.owner} takes {what} from {others}; got one of {sender!r}"
        if isinstance(message, BETWEEN_REPLICAS):
            if sender in self.partners:
                return None
            return f"{self.owner} takes {what} from {_listed(self.partners)}; got one of {sender!r}"
        if isinstance(message, BETWEEN_COPIES):
            if sender in self.copies:
                return None
            return f"{self.owner} takes {what} from {_listed(self.copies)}; got one of {sender!r}"
        return f"{what} is an answer; {self.owner} has asked {sender!r} nothing on this call"

    def takes_states_of(self, sender: str) -> bool:
        """Whether a state may come from there."""
        return sender in (*self.partners, *self.copies)


def _listed(names: tuple[str, ...]) -> str:
    return " and ".join(names) or "nobody"
