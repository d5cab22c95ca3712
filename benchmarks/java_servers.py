"""Real servers on this machine for tests: an S3 store and a schema registry, each a Java process.

Both listen on loopback only and keep their ports over a kill. The store keeps its objects, too.
"""

from __future__ import annotations

import contextlib
import os
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

_ROOT = Path(__file__).parent.parent
_HOST = "127.0.0.1"
START_SECONDS = 120.0
_JAVA_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class JavaServer(ABC):
    """A server that ``scripts/java-server`` fetches, with its own directory."""

    # What the script calls it.
    kind: str
    # A path that it answers once it is there.
    answers: str

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        with contextlib.ExitStack() as held:
            self.port = free_port(_HOST, held)
        self._jar = _output(str(_ROOT / "scripts" / "java-server"), self.kind)
        home = os.environ.get("JAVA_HOME") or _output(str(_ROOT / "scripts" / "find-java"))
        self._java = f"{home}/bin/java"
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def options(self) -> tuple[list[str], list[str]]:
        """What stands before the jar on its command line, and after it."""

    def start(self) -> Self:
        """Start it, and wait until it answers."""
        before, after = self.options()
        command = [self._java, *_JAVA_OPTIONS, *before, "-jar", self._jar, *after]
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
            urllib.request.urlopen(f"http://{_HOST}:{self.port}{self.answers}", timeout=5.0).close()
        except urllib.error.HTTPError as error:
            error.close()
            return True  # it refuses who does not sign, so it is there
        except OSError:
            return False
        return True


class StoreServer(JavaServer):
    """Answers as S3 does; has one bucket."""

    kind = "s3"
    answers = "/"
    _KEY, _SECRET, _BUCKET = "holdfast", "not-a-secret", "bucket"

    def options(self) -> tuple[list[str], list[str]]:
        properties = self.directory / "s3proxy.conf"
        objects = self.directory / "objects"
        (objects / self._BUCKET).mkdir(parents=True, exist_ok=True)
        properties.write_text(
            f"s3proxy.endpoint=http://{_HOST}:{self.port}\n"
            f"s3proxy.authorization=aws-v2-or-v4\n"
            f"s3proxy.identity={self._KEY}\ns3proxy.credential={self._SECRET}\n"
            f"jclouds.provider=filesystem-nio2\njclouds.filesystem.basedir={objects}\n"
        )
        return [], ["--properties", str(properties)]

    def address(self, path: str) -> str:
        """Of a path in its bucket, with everything that reaching it takes."""
        return (
            f"s3://{self._KEY}:{self._SECRET}@{self._BUCKET}/{path}?scheme=http"
            f"&endpoint_override={_HOST}:{self.port}&region=us-east-1"
        )

    def system(self) -> tuple[fs.FileSystem, str]:
        """Arrow's file system for it, and its bucket."""
        found, _ = fs.FileSystem.from_uri(self.address(""))
        return found, self._BUCKET


class RegistryServer(JavaServer):
    """A schema registry with Confluent's API; forgets everything when it ends."""

    kind = "registry"
    answers = "/apis/ccompat/v7/subjects"

    def options(self) -> tuple[list[str], list[str]]:
        here = ["-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={self.port}"]
        return [*here, f"-Djava.io.tmpdir={self.directory}"], []

    @property
    def address(self) -> str:
        return f"http://{_HOST}:{self.port}/apis/ccompat/v7"


def _output(*command: str) -> str:
    ran = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=600)
    return ran.stdout.strip()
