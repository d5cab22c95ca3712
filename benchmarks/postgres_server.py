"""A real PostgreSQL server on this machine, for tests and benchmarks: from the system's packages.

It listens on a socket in its own directory only, keeps its data over a kill, and runs as another
user where this one is root, because it refuses to be. Its directory is one that such a user comes
to: each run of pytest closes the directories of all others to everybody else.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import psycopg

from holdfast.ports import free_port

_ROOT = Path(__file__).parent.parent
START_SECONDS = 60.0


class PostgresServer:
    """One server with a directory of its own, which is gone when the server ends."""

    def __init__(self) -> None:
        self._programs = _programs()
        self._held = contextlib.ExitStack()
        # Not where TMPDIR says: that may be closed to others as well.
        made = tempfile.TemporaryDirectory(prefix="holdfast-postgres-", dir="/tmp")
        directory = Path(self._held.enter_context(made))
        self._data = directory / "data"
        self._sockets = directory / "sockets"
        self._log = directory / "server.log"
        self._as = _other_user()
        self._sockets.mkdir()
        self._process: subprocess.Popen[bytes] | None = None
        with contextlib.ExitStack() as held:
            self._port = free_port("127.0.0.1", held)
        if self._as is not None:
            shutil.chown(directory, self._as)
            shutil.chown(self._sockets, self._as)
        self._run("initdb", "-D", str(self._data), "-U", "holdfast", "-A", "trust", "--no-sync")
        self.connection = f"host={self._sockets} port={self._port} user=holdfast dbname=postgres"

    def start(self) -> PostgresServer:
        """Start it, and wait until it answers."""
        options = ["-c", "listen_addresses=", "-c", f"unix_socket_directories={self._sockets}"]
        options += ["-c", f"port={self._port}", "-c", "shared_buffers=16MB"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(self._programs / "postgres"), "-D", str(self._data), *options],
                stdout=log,
                stderr=log,
                user=self._as,
            )
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                psycopg.connect(self.connection, connect_timeout=2).close()
                return self
            except psycopg.OperationalError:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    raise
                time.sleep(0.05)

    def kill(self) -> None:
        """End it as a crash would; it recovers when it is started."""
        if self._process is not None:
            # Its own word for it: kill alone would leave children that hold the directory.
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(START_SECONDS)
            self._process = None

    def __enter__(self) -> PostgresServer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._held.close()

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [str(self._programs / program), *arguments],
            check=True,
            timeout=START_SECONDS,
            stdout=subprocess.DEVNULL,
            user=self._as,
        )


def _other_user() -> str | None:
    if os.getuid() != 0:
        return None
    return pwd.getpwnam("postgres").pw_name


def _programs() -> Path:
    """Where the server's programs are; installed through apt where they are missing."""
    for _ in range(2):
        found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
        if found:
            return found[-1].parent
        subprocess.run([str(_ROOT / "scripts" / "apt-install"), "postgresql"], check=True)
    raise RuntimeError("PostgreSQL was not found; install it: apt-get install postgresql")
