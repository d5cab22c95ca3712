"""Who may look and who may operate, asked of the deployment's secrets each time."""

from __future__ import annotations

from dataclasses import replace

from holdfast.flight.roles import Role, make_token
from holdfast.flight.security import Security
from holdfast.web.sessions import SESSION_SECONDS, Sessions

SECRETS = {role: f"secret of {role.value}" for role in Role}


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def token(role: Role, name: str) -> str:
    return make_token(role, SECRETS[role], name)


def test_a_token_is_good_for_its_role_and_its_name() -> None:
    sessions = Sessions(lambda: Security(tokens=SECRETS))
    viewer = sessions.sign_in("ada", token(Role.READ, "ada"))
    operator = sessions.sign_in("bob", token(Role.OPERATE, "bob"))
    assert viewer is not None
    assert operator is not None
    assert Role.OPERATE not in sessions.roles(viewer)
    assert Role.OPERATE in sessions.roles(operator)
    assert sessions.find(viewer.key) == viewer
    assert sessions.sign_in("eve", token(Role.READ, "ada")) is None
    assert sessions.sign_in("ada", token(Role.PRODUCE, "ada")) is None
    assert sessions.sign_in("", "") is None
    assert sessions.sign_in("ada", "\ud800") is None
    assert sessions.find("guessed") is None


def test_a_token_that_is_taken_back_ends_its_sessions() -> None:
    security = Security(tokens=SECRETS)
    sessions = Sessions(lambda: security)
    viewer = sessions.sign_in("ada", token(Role.READ, "ada"))
    assert viewer is not None
    security = replace(security, tokens={**SECRETS, Role.READ: "another"})
    assert sessions.find(viewer.key) is None
    security = replace(security, tokens=SECRETS)
    assert sessions.find(viewer.key) is None  # it does not come back either


def test_sessions_end_and_signing_out_ends_them_at_once() -> None:
    clock = Clock()
    sessions = Sessions(lambda: Security(tokens=SECRETS), clock)
    one = sessions.sign_in("ada", token(Role.READ, "ada"))
    other = sessions.sign_in("ada", token(Role.READ, "ada"))
    assert one is not None
    assert other is not None
    assert one.key != other.key
    assert one.csrf != other.csrf
    sessions.end(one.key)
    assert sessions.find(one.key) is None
    clock.now += SESSION_SECONDS
    assert sessions.find(other.key) is None


def test_a_link_signs_in_once_and_not_for_ever() -> None:
    clock = Clock()
    sessions = Sessions(lambda: Security(tokens=SECRETS), clock)
    code, old = sessions.make_link_code(), sessions.make_link_code()
    operator = sessions.sign_in_once(code)
    assert operator is not None
    assert Role.OPERATE in sessions.roles(operator)
    assert sessions.sign_in_once(code) is None
    clock.now += 3600.0
    assert sessions.sign_in_once(old) is None


def test_the_number_of_a_session_is_compared_whole() -> None:
    sessions = Sessions(lambda: Security(tokens=SECRETS))
    viewer = sessions.sign_in("ada", token(Role.READ, "ada"))
    assert viewer is not None
    assert viewer.is_csrf(viewer.csrf)
    assert not viewer.is_csrf(viewer.csrf[:-1])
    assert not viewer.is_csrf("")
    assert not viewer.is_csrf("é")
