"""What both ends of a connection must have: roles, tokens and TLS.

Every call carries three headers: the protocol, the caller's name, and a token. The server looks at
them before anything else happens (gate.py); what each role may do stands in roles.py.

Between machines TLS is needed, and each side shows a certificate of the deployment's authority:
a stranger's connection ends with the handshake, before any message of it is read. On loopback a
token is enough.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from holdfast.flight.roles import (
    ALL_ROLES,
    NO_ROLES,
    Machines,
    Role,
    make_token,
    roles_of_identity,
    roles_of_token,
    without_foreign_names,
)
from holdfast.flight.secrets import SecurityError as SecurityError
from holdfast.flight.secrets import is_same, read_file, read_secret
from holdfast.flight.wire import PROTOCOL

PROTOCOL_HEADER = "x-holdfast-protocol"
PROCESS_HEADER = "x-holdfast-process"
TOKEN_HEADER = "authorization"
_BEARER = "Bearer "


@dataclass(frozen=True)
class Security:
    """What both ends of a connection must have. Secrets are not shown when printed.

    token        one secret for every role; or, for whoever was given one, a token for a name.
    certificate  the certificate chain, PEM; key its private key.
    authority    the root certificates that are trusted, PEM; the system's if None.
    tokens       the secrets of the roles.
    mutual       callers must show a certificate of the authority, if there is one.
    machines     the nodes of each machine: nobody else goes by their names.
    renewed      gives this anew if its files have changed.
    problem      why files that have changed are not taken; None if there is nothing wrong.
    """

    token: str | None = field(default=None, repr=False)
    certificate: bytes | None = None
    key: bytes | None = field(default=None, repr=False)
    authority: bytes | None = None
    tokens: Mapping[Role, str] = field(default_factory=dict, repr=False)
    mutual: bool = True
    machines: Machines = field(default_factory=dict, repr=False)
    renewed: Callable[[], Security] | None = field(default=None, repr=False, compare=False)
    problem: str | None = field(default=None, repr=False, compare=False)
    # What counted until a moment ago: whoever has not yet read the new files is still let in.
    former: Security | None = field(default=None, repr=False, compare=False)

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

    @classmethod
    def of(cls, directory: str | os.PathLike[str]) -> Security:
        """The certificate in a directory that ``holdfast security issue`` made."""
        from holdfast.flight.credentials import SecuritySpec

        return SecuritySpec.at(Path(directory)).read()

    def current(self) -> Security:
        """The same with its files as they are now."""
        return self if self.renewed is None else self.renewed()

    @property
    def has_tls(self) -> bool:
        return self.certificate is not None and self.key is not None

    @property
    def uses_tls(self) -> bool:
        """Whether connections made with this are encrypted."""
        return self.certificate is not None or self.authority is not None

    @property
    def is_mutual(self) -> bool:
        """Whether only those with a certificate of the authority get through at all."""
        return self.mutual and self.has_tls and self.authority is not None

    @property
    def has_token(self) -> bool:
        return self.token is not None or bool(self.tokens)

    def check_binding(self, host: str) -> None:
        """SecurityError unless it is safe to listen on ``host``."""
        if is_loopback(host):
            return
        lacking = [
            what
            for what, there in (
                ("a token", self.has_token or self.is_mutual),
                ("TLS", self.has_tls),
            )
            if not there
        ]
        if lacking:
            raise SecurityError(
                f"listening on {host} lets other machines in and needs a token and TLS; "
                f"{' and '.join(lacking)} is missing. Set [security] certificate, key and "
                f"authority in the deployment (holdfast security init makes them), or listen on "
                f"127.0.0.1"
            )

    def check_destination(self, location: str) -> None:
        """SecurityError if a call to ``location`` would show the token to whoever listens."""
        where = urlsplit(location)
        if not self.has_token or where.scheme == "grpc+tls" or is_loopback(where.hostname or ""):
            return
        raise SecurityError(
            f"a call to {location} would send the token in the clear, for everybody on the way to "
            f"read; set [security] certificate, key and authority, and call grpc+tls://"
        )

    def location(self, host: str, port: int) -> str:
        """The Flight location of a process."""
        scheme = "grpc+tls" if self.uses_tls else "grpc"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"

    # -- the caller's side --------------------------------------------------------------

    def headers(self, process: str, role: Role = Role.READ) -> list[tuple[bytes, bytes]]:
        """The headers of a call that ``process`` makes, and for which it needs ``role``."""
        found = [
            (PROTOCOL_HEADER.encode(), str(PROTOCOL).encode()),
            (PROCESS_HEADER.encode(), process.encode()),
        ]
        token = self.current()._token_for(process, role)
        if token is not None:
            found.append((TOKEN_HEADER.encode(), f"{_BEARER}{token}".encode()))
        return found

    def _token_for(self, process: str, role: Role) -> str | None:
        if self.token is not None:
            return self.token
        for each in (role, Role.OPERATE, *Role):
            if each in self.tokens:
                return make_token(each, self.tokens[each], process)
        return None

    def client_options(self) -> dict[str, Any]:
        """Keyword arguments of a FlightClient."""
        if self.authority is None:
            return {}
        options: dict[str, Any] = {"tls_root_certs": self.authority}
        if self.is_mutual:
            options |= {"cert_chain": self.certificate, "private_key": self.key}
        return options

    # -- the server's side --------------------------------------------------------------

    def server_options(self) -> dict[str, Any]:
        """Keyword arguments of a FlightServerBase."""
        if not self.has_tls:
            return {}
        options: dict[str, Any] = {"tls_certificates": [(self.certificate, self.key)]}
        if self.is_mutual:
            options |= {"verify_client": True, "root_certificates": self.authority}
        return options

    def roles(self, name: str, authorization: str, certificate: str) -> frozenset[Role]:
        """What a caller may do under a name: by its token, and by its certificate's name."""
        if not self.has_token and not self.is_mutual:
            return ALL_ROLES  # a process that asks for nothing, on loopback
        found = roles_of_identity(certificate, name, self.machines) if self.is_mutual else NO_ROLES
        if authorization.startswith(_BEARER):
            token = authorization.removeprefix(_BEARER)
            if self.token is not None and is_same(token, self.token):
                found = ALL_ROLES
            found |= roles_of_token(token, name, self.tokens)
        found = without_foreign_names(found, name, self.machines)
        if not found and self.former is not None:
            return self.former.roles(name, authorization, certificate)
        return found


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach ``host``."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
