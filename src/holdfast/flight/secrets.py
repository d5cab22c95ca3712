"""Files with secrets in them: read only if they are nobody else's to read."""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
import stat
from pathlib import Path

from holdfast.errors import HoldfastError


class SecurityError(HoldfastError):
    """A secret that is none, or a connection on which anybody could listen or talk."""


def is_same(one: str, other: str) -> bool:
    """Whether two secrets are the same, in a time that says nothing about them."""
    return hmac.compare_digest(one.encode(), other.encode())


def read_file(path: Path) -> bytes:
    """The bytes of a file; SecurityError if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise SecurityError(f"{path}: cannot be read: {error.strerror}") from None


def read_secret(path: Path) -> bytes:
    """The bytes of a file that only this user may read; SecurityError if others may."""
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            data = file.read()
    except OSError as error:
        raise SecurityError(f"{path}: cannot be read: {error.strerror}") from None
    if found.st_mode & 0o077:
        raise SecurityError(
            f"{path}: others than its owner may read or write it ({stat.filemode(found.st_mode)}), "
            f"so it is no secret; make it private, chmod 600 {path.name}, and put a new secret in "
            f"it if others may have read the old one"
        )
    if found.st_uid not in (os.geteuid(), 0):
        raise SecurityError(
            f"{path}: it belongs to another user (number {found.st_uid}), who may change it; make "
            f"it your own"
        )
    return data


def read_token(path: Path) -> str:
    """The token in a file; SecurityError if there is none, or others may read it."""
    try:
        token = read_secret(path).decode().strip()
    except UnicodeDecodeError:
        raise SecurityError(f"{path}: a token is text; this is not") from None
    if not token:
        raise SecurityError(f"{path}: the token is empty")
    if not token.isascii() or not token.isprintable():
        raise SecurityError(f"{path}: a token is one line of plain characters")
    return token


def make_secret(path: Path) -> None:
    """Write a new random secret, for this user only, unless there is one."""
    hidden = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(descriptor, f"{secrets.token_hex(32)}\n".encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    with contextlib.suppress(FileExistsError):
        os.link(hidden, path)  # whole or not at all; who comes second takes the first one's
    hidden.unlink()
