"""Real servers on this machine for tests, in Java: an S3 store and a schema registry."""

from __future__ import annotations

import os
from abc import abstractmethod
from pathlib import Path

from benchmarks.servers import HOST, ObjectStore, Server, fetched

_JAVA_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class JavaServer(Server):
    """A server that ``scripts/java-server`` fetches."""

    # What the script calls it.
    kind: str

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._jar = fetched("java-server", self.kind)
        home = os.environ.get("JAVA_HOME") or fetched("find-java")
        self._java = f"{home}/bin/java"

    @abstractmethod
    def options(self) -> tuple[list[str], list[str]]:
        """What stands before the jar on its command line, and after it."""

    def command(self) -> list[str]:
        before, after = self.options()
        return [self._java, *_JAVA_OPTIONS, *before, "-jar", self._jar, *after]


class StoreServer(JavaServer, ObjectStore):
    """Answers as S3 does."""

    kind = "s3"
    answers = "/"
    _KEY, _SECRET = "holdfast", "not-a-secret"

    def options(self) -> tuple[list[str], list[str]]:
        properties = self.directory / "s3proxy.conf"
        objects = self.directory / "objects"
        (objects / self.BUCKET).mkdir(parents=True, exist_ok=True)
        properties.write_text(
            f"s3proxy.endpoint=http://{HOST}:{self.port}\n"
            f"s3proxy.authorization=aws-v2-or-v4\n"
            f"s3proxy.identity={self._KEY}\ns3proxy.credential={self._SECRET}\n"
            f"jclouds.provider=filesystem-nio2\njclouds.filesystem.basedir={objects}\n"
        )
        return [], ["--properties", str(properties)]

    def address(self, path: str) -> str:
        return (
            f"s3://{self._KEY}:{self._SECRET}@{self.BUCKET}/{path}?scheme=http"
            f"&endpoint_override={HOST}:{self.port}&region=us-east-1"
        )


class RegistryServer(JavaServer):
    """A schema registry with Confluent's API; forgets everything when it ends."""

    kind = "registry"
    answers = "/apis/ccompat/v7/subjects"

    def options(self) -> tuple[list[str], list[str]]:
        here = ["-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={self.port}"]
        return [*here, f"-Djava.io.tmpdir={self.directory}"], []

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.port}/apis/ccompat/v7"
