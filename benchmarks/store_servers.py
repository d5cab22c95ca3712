"""Stores of objects on this machine that answer as Google's and Microsoft's do, for tests."""

from __future__ import annotations

import base64
import hashlib
import hmac
import urllib.parse
from pathlib import Path

from benchmarks.servers import HOST, ObjectStore, fetched

# For so long the library tries again what is not answered.
_TRIES_SECONDS = 3


class GoogleStore(ObjectStore):
    """Answers as Google Cloud Storage does, for anybody."""

    answers = "/storage/v1/b"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._program = fetched("store-server", "google")

    def command(self) -> list[str]:
        where = ["--host", HOST, "--port", str(self.port)]
        kept = ["--data-dir", str(self.directory / "objects")]
        return [self._program, *kept, "start", *where, "--default-bucket", self.BUCKET]

    def address(self, path: str) -> str:
        return (
            f"gs://anonymous@{self.BUCKET}/{path}?scheme=http&endpoint_override={HOST}:{self.port}"
            f"&retry_limit_seconds={_TRIES_SECONDS}"
        )


class AzureStore(ObjectStore):
    """Answers as Azure's blob storage does."""

    answers = "/"
    _ACCOUNT, _KEY = "holdfast", base64.b64encode(b"not a secret").decode()

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._program = fetched("store-server", "azure")

    def command(self) -> list[str]:
        where = ["--blobHost", HOST, "--blobPort", str(self.port)]
        kept = ["--location", str(self.directory / "objects")]
        quiet = ["--silent", "--disableTelemetry", "--skipApiVersionCheck"]
        account = ["env", f"AZURITE_ACCOUNTS={self._ACCOUNT}:{self._KEY}"]
        return [*account, "node", self._program, *where, *kept, *quiet]

    def kill(self) -> None:
        """Ask it to end: one that is killed forgets what came in the last seconds."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(30.0)
            self._process = None

    def start(self) -> AzureStore:
        super().start()
        system, bucket = self.system()
        system.create_dir(bucket)
        return self

    def address(self, path: str) -> str:
        return (
            f"abfs://{self._ACCOUNT}@{HOST}:{self.port}/{self.BUCKET}/{path}"
            f"?enable_tls=false&{self._signed()}"
        )

    def _signed(self) -> str:
        """What an address has that gives access, signed with the account's key."""
        given = {"sp": "rwdlacup", "ss": "b", "srt": "sco", "se": "2099-01-01T00:00:00Z"}
        version = "2019-12-12"
        rights = [self._ACCOUNT, given["sp"], given["ss"], given["srt"], "", given["se"]]
        text = "\n".join([*rights, "", "", version, ""])
        signed = hmac.new(base64.b64decode(self._KEY), text.encode(), hashlib.sha256).digest()
        return urllib.parse.urlencode(
            {"sv": version, **given, "sig": base64.b64encode(signed).decode()}
        )
