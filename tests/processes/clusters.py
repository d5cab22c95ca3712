"""Clusters of real ``holdfast server`` processes on loopback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdfast.flight.credentials import SecuritySpec
from holdfast.flight.peers import call
from holdfast.plans.addresses import free_ports

TOKEN = "a secret of the test"


class TestCluster:
    """Some servers that know one another; each is a process."""

    __test__ = False

    def __init__(self, directory: Path, names: list[str], *options: str) -> None:
        self.directory = directory
        self.token = directory / "token"
        self.token.write_text(f"{TOKEN}\n")
        self.token.chmod(0o600)
        hosts = {name: f"127.0.0.{number}" for number, name in enumerate(names, 1)}
        ports = free_ports(hosts, [])["nodes"]
        self.addresses = {name: f"{hosts[name]}:{ports[name]}" for name in names}
        self.seeds = ",".join(self.addresses.values())
        self._options = options
        self._security = SecuritySpec(self.token).read()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        command = [sys.executable, "-m", "holdfast.cli", "server", "--name", name]
        command += ["--listen", self.addresses[name], "--data", str(self.data(name))]
        command += ["--token-file", str(self.token), "--seeds", self.seeds, *self._options]
        with (self.directory / f"{name}.txt").open("ab") as said:
            self.processes[name] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=said, stderr=said
            )

    def data(self, name: str) -> Path:
        return self.directory / name

    def kill(self, name: str) -> None:
        """kill -9; what it ran is ended by its guardian."""
        process = self.processes.pop(name)
        process.kill()
        process.wait(30.0)

    def pause(self, name: str) -> None:
        os.kill(self.processes[name].pid, signal.SIGSTOP)

    def go_on(self, name: str) -> None:
        os.kill(self.processes[name].pid, signal.SIGCONT)

    def ask(self, name: str, action: str, options: dict[str, Any] | None = None) -> dict[str, Any]:
        host, _, port = self.addresses[name].rpartition(":")
        location = self._security.location(host, int(port))
        return call(location, self._security, "holdfast", action, options or {}, 60.0)

    def status(self, name: str) -> dict[str, Any]:
        try:
            return self.ask(name, "cluster-status")
        except Exception as error:
            return {"coordinator": "", "error": str(error), "servers": {}, "submissions": {}}

    def coordinator(self, *asked: str) -> str | None:
        """Whom all of these servers obey, by name; None if they do not agree."""
        found = {self.status(name)["coordinator"] for name in asked}
        names = {address: name for name, address in self.addresses.items()}
        return names.get(found.pop()) if len(found) == 1 else None

    def is_taken_in(self) -> bool:
        """Whether all servers have written down who is who."""
        records = [self.data(name) / "cluster" / "record.json" for name in self.addresses]
        return all(
            record.exists()
            and all(f'\\"{name}\\"' in record.read_text() for name in self.addresses)
            for record in records
        )

    def wait(self, until: Callable[[], Any], what: str, seconds: float = 90.0) -> Any:
        deadline = time.monotonic() + seconds
        while not (found := until()):
            assert time.monotonic() < deadline, f"waited for: {what}\n{self.story()}"
            time.sleep(0.1)
        return found

    def story(self) -> str:
        """What the servers and their processes have said."""
        files = [*self.directory.glob("*.txt"), *self.directory.glob("*/*/data/logs/*.log")]
        texts = [f"{file}:\n{file.read_text(errors='replace')[-3000:]}" for file in sorted(files)]
        states = {name: self.status(name) for name in self.processes}
        return "\n".join([*texts, json.dumps(states, default=str)])

    def close(self) -> None:
        for process in self.processes.values():
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(30.0)
            except subprocess.TimeoutExpired:
                process.kill()


@contextmanager
def running(directory: Path, names: list[str], *options: str) -> Iterator[TestCluster]:
    cluster = TestCluster(directory, names, *options)
    try:
        for name in names:
            cluster.start(name)
        yield cluster
    finally:
        cluster.close()
