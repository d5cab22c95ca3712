"""Ports to listen on: which may be chosen, and whether one is free.

A port that is kept for a process while it is down must not be one that the kernel gives to
outgoing connections, or a connection of anybody's may hold it when the process comes back.
"""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Iterator
from pathlib import Path

from holdfast.errors import HoldfastError, InputError

# Below are the ports that well-known services listen on.
_LOWEST, _HIGHEST = 10_000, 65_535
_EPHEMERAL_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_USUAL_EPHEMERAL = (32_768, 60_999)
_DRAWN = 100
# Two deployments that choose at the same moment must not choose alike.
_random = random.SystemRandom()


class PortTaken(HoldfastError):
    """Somebody else listens on a port, or a connection holds it."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(
            f"port {port} of {host} is in use by another program; end that program, or give "
            f"another port"
        )


class NotOwnHost(HoldfastError):
    """Nobody on this machine can listen on a host, whatever the port."""

    def __init__(self, host: str, why: str) -> None:
        super().__init__(
            f"{host!r} is no address of this machine, and nobody can listen there ({why}); give an "
            f"address of this machine, or a server that [servers] of the deployment file names"
        )


def host_and_port(text: str, what: str = "a server") -> tuple[str, int]:
    """The two of ``host:port``; InputError, which says ``what`` it is, if that is not given."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit():
        raise InputError(f"{what} is host:port, got {text!r}")
    return host, int(port)


def ephemeral_ports() -> range:
    """The ports that the kernel gives to outgoing connections."""
    first, last = _USUAL_EPHEMERAL
    with contextlib.suppress(OSError, ValueError):
        first, last = map(int, _EPHEMERAL_FILE.read_text().split())
    return range(first, last + 1)


def is_free(host: str, port: int) -> bool:
    """Whether a server could listen there now."""
    try:
        _bound(host, port).close()
    except OSError:
        return False
    return True


def check_own(host: str) -> None:
    """Raise NotOwnHost unless this machine has that address."""
    try:
        _bound(host, 0).close()
    except OSError as error:
        raise NotOwnHost(host, error.strerror or str(error)) from None


def check_free(host: str, port: int) -> None:
    """Raise if nobody could listen there now."""
    if port and not is_free(host, port):
        check_own(host)
        raise PortTaken(host, port)


def free_port(host: str, held: contextlib.ExitStack) -> int:
    """A free port outside the kernel's range, held until ``held`` is closed."""
    check_own(host)  # or every port would be tried
    for port in _candidates():
        with contextlib.suppress(OSError):
            made = held.enter_context(_bound(host, port))
            made.listen(1)  # so that nobody else who chooses now gets it, too
            return int(made.getsockname()[1])
    raise HoldfastError(f"there is no free port on {host}")


def _candidates() -> Iterator[int]:
    ephemeral = ephemeral_ports()
    others = [port for port in range(_LOWEST, _HIGHEST + 1) if port not in ephemeral]
    # A few by chance, which are enough nearly always: shuffling all of them takes a tenth of a
    # second for each port that is wanted. Then every one.
    for _ in range(_DRAWN if others else 0):
        yield _random.choice(others)
    yield from others
    yield 0  # whatever the kernel gives, where it has all of them


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family)
    try:
        # As servers do it: what a closed connection left behind is nobody's.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
    except BaseException:
        made.close()
        raise
    return made
