"""Lets calls in: the protocol first, then the caller's name and what it may do under it."""

from __future__ import annotations

from typing import Any

import pyarrow.flight as flight

from holdfast.flight.refusals import Refusals
from holdfast.flight.refused import refused
from holdfast.flight.roles import Role
from holdfast.flight.security import PROCESS_HEADER, PROTOCOL_HEADER, TOKEN_HEADER, Security
from holdfast.flight.wire import PROTOCOL

# Names stand in logs and tables; nobody needs a longer one.
_LONGEST_NAME = 200


class Caller(flight.ServerMiddleware):  # type: ignore[misc]
    """What whoever made a call says of itself, for the methods of the server."""

    def __init__(self, name: str, protocol: str, authorization: str) -> None:
        self.name = name
        self.protocol = protocol
        self.authorization = authorization


class Gatekeeper(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Asks every call who makes it.

    A call that streams to us is refused before anything of it is read, if it has no token and no
    certificate could take its place. Of the others gRPC has read the one message before it asks;
    they are refused by the methods of the server, which know the caller's address and
    certificate (``admit``).
    """

    def __init__(self, process: str, security: Security, refusals: Refusals) -> None:
        super().__init__()
        self._process = process
        self._security = security
        self._refusals = refusals

    def start_call(self, info: Any, headers: dict[str, list[str]]) -> Caller:
        caller = Caller(
            _first(headers, PROCESS_HEADER)[:_LONGEST_NAME] or "an unnamed process",
            _first(headers, PROTOCOL_HEADER),
            _first(headers, TOKEN_HEADER),
        )
        security = self._security.current()
        if info.method not in _READ_ALREADY and not security.is_mutual:
            self._admitted(caller, "", "an unknown address", security)
        return caller

    def admit(self, context: flight.ServerCallContext, what: str, *roles: Role) -> str:
        """The name of whoever calls, if it may do ``what``: any of ``roles`` will do."""
        caller: Caller = context.get_middleware("caller")
        certificate = context.peer_identity().decode(errors="replace")
        address, security = context.peer(), self._security.current()
        found = self._admitted(caller, certificate, address, security)
        if found.isdisjoint(roles):
            has = " and ".join(sorted(role.value for role in found))
            needs = " or ".join(role.value for role in roles)
            raise self._refused(
                caller.name,
                address,
                flight.FlightUnauthorizedError(
                    f"{self._process} refuses {caller.name}: {what} needs the role {needs}; it "
                    f"came with {has}"
                ),
            )
        return caller.name

    def _admitted(
        self, caller: Caller, certificate: str, address: str, security: Security
    ) -> frozenset[Role]:
        """What a caller may do; raises if that is nothing."""
        if caller.protocol != str(PROTOCOL):
            raise self._refused(
                caller.name,
                address,
                refused(
                    f"{self._process} speaks protocol {PROTOCOL}, {caller.name} speaks "
                    f"{caller.protocol or 'none'}; run the same version of holdfast on both"
                ),
            )
        found = security.roles(caller.name, caller.authorization, certificate)
        if not found:
            what = "the wrong token" if caller.authorization else "no token"
            if certificate and not caller.authorization:
                what = f"a certificate for {certificate}, which is not it"
            raise self._refused(
                caller.name,
                address,
                flight.FlightUnauthenticatedError(
                    f"{self._process} refuses {caller.name}: it sent {what}"
                ),
            )
        return found

    def _refused(self, name: str, address: str, error: Exception) -> Exception:
        self._refusals.note(name, address, str(error))
        return error


# gRPC reads the message of these before it calls us.
_READ_ALREADY = (flight.FlightMethod.DO_ACTION, flight.FlightMethod.DO_GET)


def _first(headers: dict[str, list[str]], name: str) -> str:
    for key, values in headers.items():
        if key.lower() == name and values:
            return str(values[0])
    return ""
