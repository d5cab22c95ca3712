"""The files of secrets and certificates: where they are, read, made, and read again.

    [security]
    directory = "security/here"      # made by holdfast security; or one by one:
    tokens = "tokens"                # a directory: produce, read, replicate, operate
    certificate = "certificate.pem"
    key = "key.pem"
    authority = "authority.pem"

Without a word about it, a deployment has tokens in its data directory, made when it first
starts. Files that change are read again, without a restart: tokens with the next call,
certificates with the next connection.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from holdfast.errors import InputError
from holdfast.flight.roles import Machines, Role
from holdfast.flight.secrets import SecurityError, make_secret, read_file, read_secret, read_token
from holdfast.flight.security import Security

# How long what counted before a change still does: others may not have read it yet.
GRACE_SECONDS = 10.0

Stamp = tuple[tuple[int, int, int] | None, ...]


@dataclass(frozen=True)
class SecuritySpec:
    """Files of secrets and certificates.

    token_file  one secret for every role.
    tokens      a directory with a secret for each role; own_tokens: made when it is missing.
    mutual      callers must show a certificate of the authority, if there is one.
    machines    the nodes of each machine.
    """

    token_file: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    authority: Path | None = None
    tokens: Path | None = None
    mutual: bool = True
    own_tokens: bool = False
    machines: Machines = field(default_factory=dict)

    @classmethod
    def at(cls, directory: Path) -> SecuritySpec:
        """The files of a directory that ``holdfast security`` made."""
        tokens = directory / "tokens"
        return cls(
            certificate=directory / "certificate.pem",
            key=directory / "key.pem",
            authority=directory / "authority.pem",
            tokens=tokens if tokens.is_dir() else None,
        )

    def read(self) -> Security:
        """What the files hold; it notices when they change."""
        return _Files(self).current()

    def make(self) -> None:
        """Make the tokens of a deployment that says nothing about them, if it has none yet."""
        if self.own_tokens and self.tokens is not None:
            self.tokens.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.tokens.chmod(0o700)
            for role in Role:
                if not (self.tokens / role.value).exists():
                    make_secret(self.tokens / role.value)

    @classmethod
    def given(
        cls, directory: Path | None, token_file: Path | None, tokens: Path | None
    ) -> SecuritySpec:
        """Who one is to a cluster: the one of these that a command was told."""
        if sum(each is not None for each in (directory, token_file, tokens)) != 1:
            raise InputError("say who you are: --security DIR, --token-file FILE or --tokens DIR")
        return cls(token_file, tokens=tokens) if directory is None else cls.at(directory)

    def table(self) -> dict[str, Any]:
        """As a deployment file has it, with paths from the root."""
        paths = {
            "token_file": self.token_file,
            "certificate": self.certificate,
            "key": self.key,
            "authority": self.authority,
            "tokens": self.tokens,
        }
        found: dict[str, Any] = {
            name: str(path.resolve()) for name, path in paths.items() if path is not None
        }
        return found if self.mutual else {**found, "mutual": False}

    @property
    def files(self) -> list[Path]:
        """Every file that may be there."""
        roles = [] if self.tokens is None else [self.tokens / role.value for role in Role]
        named = (self.token_file, self.certificate, self.key, self.authority)
        return [*(path for path in named if path is not None), *roles]


class _Files:
    """Reads the files of a spec again when they change."""

    def __init__(self, spec: SecuritySpec) -> None:
        self._spec = spec
        self._lock = threading.Lock()
        self._stamp = self._look()
        self._found: Security = replace(self._read(), renewed=self.current)
        self._former_until = 0.0

    def current(self) -> Security:
        with self._lock:
            stamp = self._look()
            if stamp != self._stamp:
                self._renew(stamp)
            elif self._found.problem is not None:
                self._found = replace(self._found, problem=None)
            if self._found.former is not None and time.monotonic() >= self._former_until:
                self._found = replace(self._found, former=None)
            return self._found

    def _renew(self, stamp: Stamp) -> None:
        try:
            made = self._read()
        except SecurityError as error:
            # Half of it may be written; what was read before counts until the rest is there.
            self._found = replace(self._found, problem=str(error))
            return
        if self._found.has_token and not made.has_token:
            gone = f"{self._spec.tokens}: the tokens are gone; the former count until a restart"
            self._found = replace(self._found, problem=gone)
            return
        before = replace(self._found, former=None, renewed=None)
        self._found = replace(made, renewed=self.current, former=before)
        self._former_until = time.monotonic() + GRACE_SECONDS
        self._stamp = stamp

    def _look(self) -> Stamp:
        return tuple(_stamp_of(path) for path in self._spec.files)

    def _read(self) -> Security:
        spec = self._spec
        tokens = {} if spec.tokens is None else _read_tokens(spec.tokens)
        if spec.tokens is not None and not tokens and not spec.own_tokens:
            listed = ", ".join(role.value for role in Role)
            raise SecurityError(f"{spec.tokens}: there is no token; its files are {listed}")
        return Security(
            None if spec.token_file is None else read_token(spec.token_file),
            None if spec.certificate is None else _read_certificate(spec.certificate),
            None if spec.key is None else read_secret(spec.key),
            None if spec.authority is None else _read_certificate(spec.authority),
            tokens,
            spec.mutual,
            spec.machines,
        )


def _read_certificate(path: Path) -> bytes:
    try:
        return read_file(path)
    except SecurityError as error:
        raise SecurityError(
            f"{error}; holdfast security init DEPLOYMENT.toml makes certificates"
        ) from None


def _stamp_of(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size


def _read_tokens(directory: Path) -> Mapping[Role, str]:
    """The secrets of the roles that are there: who was given one of them has that role."""
    try:
        there = [role for role in Role if (directory / role.value).exists()]
    except OSError as error:
        raise SecurityError(
            f"{directory}: cannot be read: {error.strerror}; the tokens are those of the user who "
            f"runs the deployment, who can give you one for a name: holdfast security token"
        ) from None
    return {role: read_token(directory / role.value) for role in there}
