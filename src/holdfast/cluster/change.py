"""What is to be done with what nodes have kept, if their network is another by now."""

from __future__ import annotations

from enum import Enum


class Change(Enum):
    """The option of ``holdfast up`` that says so.

    REFUSE      nothing: what cannot be gone on with is refused (``changed``).
    KEEP_STATE  the state stays, where only stateless parts are others (``keep_state``).
    FROM_NOW    what has changed begins with nothing where it stopped (``from_now``).
    """

    REFUSE = ""
    KEEP_STATE = "--keep-state"
    FROM_NOW = "--from-now"
