"""Two machines: network namespaces joined by a cable where that is allowed, else loopback.

In namespaces they share nothing but the cable. Where the tests may not make namespaces, both are
on loopback. Certificates are made by ``holdfast security init``, as for any two machines.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

ADDRESSES = ("10.77.0.1", "10.77.0.2")


@dataclass(frozen=True)
class Machine:
    """Where commands run: ``inside`` comes before each."""

    host: str
    inside: tuple[str, ...]

    def holdfast(self, *arguments: object) -> list[str]:
        command = [sys.executable, "-m", "holdfast.cli", *(str(each) for each in arguments)]
        return [*self.inside, *command]


@contextmanager
def two_machines() -> Iterator[tuple[Machine, Machine]]:
    """Two machines that reach each other."""
    with ExitStack() as stack:
        if not _may_make_namespaces():
            machine = Machine("127.0.0.1", ())
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
        one, other = (Machine(*each) for each in zip(ADDRESSES, inside, strict=True))
        yield one, other


def _may_make_namespaces() -> bool:
    tools = ("unshare", "nsenter", "ip")
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


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (command, done.stderr)
