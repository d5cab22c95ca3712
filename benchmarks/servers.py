"""A real server on this machine for tests: a process that listens on loopback only.

It keeps its port over a kill.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Self

import pyarrow.fs as fs

from holdfast.ports import free_port

ROOT = Path(__file__).parent.parent
HOST = "127.0.0.1"
START_SECONDS = 120.0
FETCH_SECONDS = 600.0


class Server(ABC):
    """A process with its own directory and port."""

    # A path that it answers once it is there.
    answers: str

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        with contextlib.ExitStack() as held:
            self.port = free_port(HOST, held)
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def command(self) -> list[str]:
        """What starts it."""

    def start(self) -> Self:
        """Start it, and wait until it answers."""
        command = self.command()
        with (self.directory / "server.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + START_SECONDS
        while not self._is_there():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"it did not start; see {self.directory}/server.log")
            time.sleep(0.1)
        return self

    def kill(self) -> None:
        """End it as a crash would."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(30.0)
            self._process = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _is_there(self) -> bool:
        try:
            urllib.request.urlopen(f"http://{HOST}:{self.port}{self.answers}", timeout=5.0).close()
        except urllib.error.HTTPError as error:
            error.close()
            return True  # it refuses who does not sign, so it is there
        except OSError:
            return False
        return True


class ObjectStore(Server):
    """A store of objects with one bucket; it keeps them over ``kill``."""

    BUCKET = "bucket"

    @abstractmethod
    def address(self, path: str) -> str:
        """Of a path in its bucket, with everything that reaching it takes."""

    def system(self) -> tuple[fs.FileSystem, str]:
        """Arrow's file system for it, and its bucket."""
        found, _ = fs.FileSystem.from_uri(self.address(""))
        return found, self.BUCKET


def fetched(*command: str) -> str:
    """What a script of this repository prints: where that is which it has fetched."""
    program, *arguments = command
    ran = subprocess.run(
        [str(ROOT / "scripts" / program), *arguments],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=FETCH_SECONDS,
    )
    return ran.stdout.strip()
