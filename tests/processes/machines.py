"""Two machines: network namespaces joined by a cable where that is allowed, else loopback.

In namespaces they share nothing but the cable: other addresses, TLS and a token needed. Where
the tests may not make namespaces, both are on loopback, with the token alone.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

ADDRESSES = ("10.77.0.1", "10.77.0.2")


@dataclass(frozen=True)
class Machine:
    """Where commands run: ``inside`` comes before each."""

    host: str
    inside: tuple[str, ...]
    security: dict[str, Path]

    def holdfast(self, *arguments: object) -> list[str]:
        command = [sys.executable, "-m", "holdfast.cli", *(str(each) for each in arguments)]
        return [*self.inside, *command]

    @property
    def security_options(self) -> list[str]:
        return [
            each
            for name, path in self.security.items()
            for each in (f"--{name.replace('_', '-')}", str(path))
        ]

    @property
    def security_table(self) -> str:
        lines = [f'{name} = "{path}"' for name, path in self.security.items()]
        return "\n".join(["[security]", *lines])


@contextmanager
def two_machines(directory: Path) -> Iterator[tuple[Machine, Machine]]:
    """Two machines that reach each other."""
    token = directory / "token"
    token.write_text("a secret of the test\n")
    token.chmod(0o600)
    with ExitStack() as stack:
        if not _may_make_namespaces():
            machine = Machine("127.0.0.1", (), {"token_file": token})
            yield machine, machine
            return
        holders = [stack.enter_context(_holder()) for _ in ADDRESSES]
        inside = [("nsenter", "-t", str(each.pid), "-n") for each in holders]
        ends = ("hf-a", "hf-b")
        cable = ["ip", "link", "add", ends[0], "type", "veth", "peer", "name", ends[1]]
        _run(*inside[0], *cable, "netns", str(holders[1].pid))
        for end, into, address in zip(ends, inside, ADDRESSES, strict=True):
            _run(*into, "ip", "address", "add", f"{address}/24", "dev", end)
            _run(*into, "ip", "link", "set", end, "up")
            _run(*into, "ip", "link", "set", "lo", "up")
        made = [
            Machine(address, into, {"token_file": token, **_certificate(directory, address)})
            for address, into in zip(ADDRESSES, inside, strict=True)
        ]
        yield made[0], made[1]


def _may_make_namespaces() -> bool:
    tools = ("unshare", "nsenter", "ip", "openssl")
    if os.geteuid() != 0 or any(shutil.which(each) is None for each in tools):
        return False
    check = "ip link add hf-a type veth peer name hf-b"
    return subprocess.run(["unshare", "-n", "sh", "-c", check], capture_output=True).returncode == 0


@contextmanager
def _holder() -> Iterator[subprocess.Popen[str]]:
    """A process in a network of its own, which lives as long as it does."""
    command = ["unshare", "-n", "sh", "-c", "echo ready; exec sleep 600"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "ready\n"
            yield holder
        finally:
            holder.kill()


def _certificate(directory: Path, address: str) -> dict[str, Path]:
    """A certificate for an address, signed by the authority of the test."""
    authority, authority_key = directory / "authority.pem", directory / "authority-key.pem"
    new = ["openssl", "req", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    if not authority.exists():
        files = ["-keyout", str(authority_key), "-out", str(authority)]
        _run(*new, "-x509", "-subj", "/CN=test authority", *files)
    certificate, key = directory / f"{address}.pem", directory / f"{address}-key.pem"
    signed_by = ["-CA", str(authority), "-CAkey", str(authority_key)]
    names = ["-subj", f"/CN={address}", "-addext", f"subjectAltName=IP:{address}"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    _run(*new, "-x509", *names, *signed_by, *files)
    return {"certificate": certificate, "key": key, "authority": authority}


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (command, done.stderr)
