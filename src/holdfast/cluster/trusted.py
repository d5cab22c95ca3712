"""A server that takes no code: ``holdfast server --networks DIR``.

Whoever may operate such a server chooses among the files in DIR and says how they are deployed;
nothing else that is sent may become code here. The ways that would be one, and what closes each:

    files that are sent       are those in DIR, byte for byte; what lies around from before, too
    Spark's configuration     a few settings of sizes; Spark runs in the process, on no cluster
    sources and sinks         files below the deployment's directory, and none that is code
    names                     are names, not paths (``deployment_checks.plain_name``)
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from holdfast.connect.specs import places_of
from holdfast.deployment import Deployment
from holdfast.errors import HoldfastError

# What Python or the JVM would take for code, or would look at on the way to it.
_CODE = frozenset(
    [
        ".py",
        ".pyc",
        ".pyo",
        ".pyd",
        ".so",
        ".pth",
        ".zip",
        ".egg",
        ".whl",
        ".jar",
        ".class",
        ".cfg",
        ".ini",
        ".toml",
    ]
)
_OWN = ("deployment.json", "hosted.json")
# What addresses begin with: of files of this machine, and of what is elsewhere.
_FILES = ("file", "sqlite")
_ELSEWHERE = ("http", "https", "s3", "gs", "gcs", "abfs", "abfss")
_MASTER = re.compile(r"local(\[(\*|\d{1,4})\])?")
_SIZE = re.compile(r"\d{1,9}(\.\d{1,9})?[kmgtKMGT]?b?")
_SETTINGS = frozenset(
    {
        "holdfast.lookup_memory_mib",
        "spark.default.parallelism",
        "spark.driver.cores",
        "spark.driver.maxResultSize",
        "spark.driver.memory",
        "spark.memory.fraction",
        "spark.memory.storageFraction",
        "spark.sql.shuffle.partitions",
    }
)


class Trusted:
    """The files that are trusted, and the checks of everything else."""

    def __init__(self, networks: Path) -> None:
        self._networks = networks.resolve()

    def check_files(self, files: Mapping[str, bytes]) -> None:
        """Raise unless every file is the one that is here."""
        for path, sent in files.items():
            file = self._networks / path
            if not file.is_file():
                raise HoldfastError(
                    f"this server runs networks of its own only; it has no {path}. Put it there"
                )
            if file.read_bytes() != sent:
                raise HoldfastError(
                    f"this server runs networks of its own only; its {path} is not the one that "
                    f"was sent. Put the same file there"
                )

    def check_directory(self, directory: Path) -> None:
        """The same for what an earlier server, which took code, may have left."""
        for compiled in list(directory.rglob("__pycache__")):
            shutil.rmtree(compiled)  # it would be taken in place of what is looked at here
        for file in directory.rglob("*"):
            path = file.relative_to(directory)
            if file.is_symlink():
                raise HoldfastError(f"{file} is a link; this server runs networks of its own only")
            if file.is_file() and _is_code(path) and path.parts[0] != "data":
                self.check_files({str(path): file.read_bytes()})

    def check_deployment(self, deployment: Deployment) -> None:
        """Raise if anything in a deployment would become code, or write where it has no place."""
        where = "this server takes no code"
        if not _MASTER.fullmatch(deployment.spark_master):
            raise HoldfastError(
                f"{where}: spark.master is local or local[N] here, got {deployment.spark_master!r}"
            )
        for key, value in deployment.spark_config.items():
            if key not in _SETTINGS or not _SIZE.fullmatch(value):
                raise HoldfastError(
                    f"{where}: of Spark's settings it takes sizes and numbers for "
                    f"{', '.join(sorted(_SETTINGS))}; got {key} = {value!r}"
                )
        places = {
            f"sources.{spec.name}.from": spec.reads for spec in deployment.sources.values()
        } | {f"clients.{spec.name}.sink": spec.sink for spec in deployment.clients.values()}
        for name, text in places.items():
            for place in [] if text is None else places_of(text):
                if not _is_below(place, deployment.path.parent):
                    raise HoldfastError(
                        f"{where}: {name} is a file below the deployment's directory that is no "
                        f"code; got {place!r}"
                    )


def _is_code(path: PurePosixPath | Path) -> bool:
    return bool(_CODE.intersection(each.lower() for each in path.suffixes))


def _is_below(text: str, directory: Path) -> bool:
    """Whether a path stays in a directory, and is none of its own files and no code.

    An address may be of something that is no file of this machine.
    """
    scheme, is_address, place = text.partition("://")
    if is_address:
        if scheme not in _FILES:
            return scheme in _ELSEWHERE
        text = place.removeprefix("/") if scheme == "sqlite" else place
    path = PurePosixPath(text)
    if not path.parts or path.is_absolute() or ".." in path.parts or _is_code(path):
        return False
    first = path.parts[0]
    if first in _OWN or first.startswith(".") or ":" in first:
        return False
    return (directory / path).resolve().is_relative_to(directory.resolve())
