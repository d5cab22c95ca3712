"""Who may talk to a process: a token and TLS; and the protocol both sides must speak.

Every call carries three headers: the protocol, the caller's name, and the token if the
deployment has one. The server's middleware looks at them before anything else happens.

Loopback needs neither token nor TLS. Anything else needs both: a token sent in the clear is no
secret, and TLS without a token lets everybody in.
"""

from __future__ import annotations

import hmac
import ipaddress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow.flight as flight

from holdfast.flight.refusals import Refusals
from holdfast.flight.secrets import SecurityError as SecurityError
from holdfast.flight.secrets import read_file, read_secret
from holdfast.flight.wire import PROTOCOL

PROTOCOL_HEADER = "x-holdfast-protocol"
PROCESS_HEADER = "x-holdfast-process"
TOKEN_HEADER = "authorization"


@dataclass(frozen=True)
class Security:
    """What both ends of a connection must have.

    token        the shared secret; not shown when printed.
    certificate  the server's certificate chain, PEM; key its private key.
    authority    the root certificates a client trusts, PEM; the system's if None.
    """

    token: str | None = field(default=None, repr=False)
    certificate: bytes | None = None
    key: bytes | None = field(default=None, repr=False)
    authority: bytes | None = None

    @classmethod
    def read(
        cls,
        token: str | None = None,
        certificate: Path | None = None,
        key: Path | None = None,
        authority: Path | None = None,
    ) -> Security:
        """Read the files; SecurityError if one is missing, or the key is no secret."""
        return cls(
            token,
            None if certificate is None else read_file(certificate),
            None if key is None else read_secret(key),
            None if authority is None else read_file(authority),
        )

    @property
    def has_tls(self) -> bool:
        return self.certificate is not None and self.key is not None

    @property
    def uses_tls(self) -> bool:
        """Whether connections made with this are encrypted."""
        return self.certificate is not None or self.authority is not None

    def check_binding(self, host: str) -> None:
        """SecurityError unless it is safe to listen on ``host``."""
        if is_loopback(host):
            return
        lacking = [
            what for what, there in (("a token", self.token), ("TLS", self.has_tls)) if not there
        ]
        if lacking:
            raise SecurityError(
                f"listening on {host} lets other machines in and needs a token and TLS; "
                f"{' and '.join(lacking)} is missing. Set [security] token_file, certificate and "
                f"key in the deployment, or listen on 127.0.0.1"
            )

    def check_destination(self, location: str) -> None:
        """SecurityError if a call to ``location`` would show the token to whoever listens."""
        where = urlsplit(location)
        if self.token is None or where.scheme == "grpc+tls" or is_loopback(where.hostname or ""):
            return
        raise SecurityError(
            f"a call to {location} would send the token in the clear, for everybody on the way to "
            f"read; set [security] certificate, key and authority, and call grpc+tls://"
        )

    def location(self, host: str, port: int) -> str:
        """The Flight location of a process."""
        scheme = "grpc+tls" if self.uses_tls else "grpc"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"

    def headers(self, process: str) -> list[tuple[bytes, bytes]]:
        """The headers of every call ``process`` makes."""
        found = [
            (PROTOCOL_HEADER.encode(), str(PROTOCOL).encode()),
            (PROCESS_HEADER.encode(), process.encode()),
        ]
        if self.token is not None:
            found.append((TOKEN_HEADER.encode(), f"Bearer {self.token}".encode()))
        return found

    def server_options(self) -> dict[str, Any]:
        """Keyword arguments of a FlightServerBase."""
        if not self.has_tls:
            return {}
        return {"tls_certificates": [(self.certificate, self.key)]}

    def client_options(self) -> dict[str, Any]:
        """Keyword arguments of a FlightClient."""
        return {} if self.authority is None else {"tls_root_certs": self.authority}


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach ``host``."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Caller(flight.ServerMiddleware):  # type: ignore[misc]
    """Whoever made a call, for the methods of the server.

    refusal  why it is not let in; None if it is.
    """

    def __init__(self, name: str, refusal: Exception | None = None) -> None:
        self.name = name
        self.refusal = refusal


class Gatekeeper(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Lets calls in that carry the right protocol and token.

    A call that streams to us is refused here, before anything of it is read. Of the others
    gRPC has read the one message before it asks; they are refused by the methods of the
    server, which know the caller's address (``admit``).
    """

    def __init__(self, process: str, security: Security, refusals: Refusals) -> None:
        super().__init__()
        self._process = process
        self._token = security.token
        self._refusals = refusals

    def start_call(self, info: Any, headers: dict[str, list[str]]) -> Caller:
        name = _first(headers, PROCESS_HEADER) or "an unnamed process"
        refusal = self._refusal(name, headers)
        if refusal is not None and info.method not in _ADMITTED_LATER:
            self._refusals.note(name, "an unknown address", str(refusal))
            raise refusal
        return Caller(name, refusal)

    def _refusal(self, name: str, headers: dict[str, list[str]]) -> Exception | None:
        protocol = _first(headers, PROTOCOL_HEADER)
        if protocol != str(PROTOCOL):
            other: Exception = flight.FlightServerError(
                f"{self._process} speaks protocol {PROTOCOL}, {name} speaks "
                f"{protocol or 'none'}; run the same version of holdfast on both"
            )
            return other
        if self._token is not None:
            given = _first(headers, TOKEN_HEADER) or ""
            if not hmac.compare_digest(given.encode(), f"Bearer {self._token}".encode()):
                wrong = "the wrong token" if given else "no token"
                unknown: Exception = flight.FlightUnauthenticatedError(
                    f"{self._process} refuses {name}: it sent {wrong}"
                )
                return unknown
        return None

    def admit(self, context: flight.ServerCallContext) -> str:
        """The name of whoever calls, if it is let in."""
        caller: Caller = context.get_middleware("caller")
        if caller.refusal is not None:
            self._refusals.note(caller.name, context.peer(), str(caller.refusal))
            raise caller.refusal
        return caller.name


_ADMITTED_LATER = (flight.FlightMethod.DO_ACTION, flight.FlightMethod.DO_GET)


def _first(headers: dict[str, list[str]], name: str) -> str | None:
    for key, values in headers.items():
        if key.lower() == name and values:
            return str(values[0])
    return None
