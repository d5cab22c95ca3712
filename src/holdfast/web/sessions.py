"""Who looks at the page: a name and a token of the deployment, kept here, and a cookie there.

The cookie is a random number that says nothing. What its owner may do is asked of the deployment's
secrets at every request, so a token that is taken back ends the sessions made with it. Whoever
starts the server gets a link that signs in once; who can start it operates the deployment anyway.
"""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from holdfast.flight.roles import ALL_ROLES, NO_ROLES, Role
from holdfast.flight.security import Security

SESSION_SECONDS = 12 * 3600.0
_ONCE_SECONDS = 600.0
_MOST_SESSIONS = 1_000
_LONGEST = 300


@dataclass(frozen=True)
class Session:
    """Somebody who has signed in; ``csrf`` must come back with everything that changes anything.

    token  None for whoever came with the link of the server's own terminal.
    """

    key: str
    name: str
    token: str | None
    csrf: str
    until: float

    def is_csrf(self, given: str) -> bool:
        return hmac.compare_digest(self.csrf.encode(), given.encode())


class Sessions:
    """Everybody who has signed in."""

    def __init__(
        self, security: Callable[[], Security], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._security = security
        self._clock = clock
        self._lock = threading.Lock()
        self._sessions: dict[str, Session] = {}
        self._once: dict[str, float] = {}

    def make_link_code(self) -> str:
        """Signs in once, within ten minutes."""
        code = secrets.token_urlsafe(24)
        with self._lock:
            self._once[code] = self._clock() + _ONCE_SECONDS
        return code

    def sign_in_once(self, code: str) -> Session | None:
        """With the code of a link."""
        with self._lock:
            until = self._once.pop(code, 0.0)
        return self._made("operator", None) if self._clock() < until else None

    def sign_in(self, name: str, token: str) -> Session | None:
        """With a name and its token; None unless it may read."""
        if not name or max(len(name), len(token)) > _LONGEST:
            return None
        session = self._made(name, token)
        if not self.roles(session) & {Role.READ, Role.OPERATE}:
            self.end(session.key)
            return None
        return session

    def find(self, key: str) -> Session | None:
        """Whose cookie this is, if its owner still may look."""
        with self._lock:
            found = self._sessions.get(key)
        if found is None:
            return None
        if self._clock() >= found.until or Role.READ not in self.roles(found):
            self.end(key)
            return None
        return found

    def end(self, key: str) -> None:
        with self._lock:
            self._sessions.pop(key, None)

    def roles(self, session: Session) -> frozenset[Role]:
        """What it may do now."""
        if session.token is None:
            return ALL_ROLES
        try:
            return self._security().roles(session.name, f"Bearer {session.token}", "")
        except UnicodeError:
            return NO_ROLES

    def _made(self, name: str, token: str | None) -> Session:
        key, csrf = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        session = Session(key, name, token, csrf, self._clock() + SESSION_SECONDS)
        with self._lock:
            while len(self._sessions) >= _MOST_SESSIONS:
                del self._sessions[next(iter(self._sessions))]
            self._sessions[key] = session
        return session
