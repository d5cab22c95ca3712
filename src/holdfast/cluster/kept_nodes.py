"""What the nodes of a deployment have kept on one machine, and how it is changed while they stand.

Of a replica that has stopped one can ask where (``place``), and have it begin elsewhere or with
nothing (``begin``); what it keeps can be handed to another, on this machine or another one, as a
parcel (``pack``, ``read``, ``write``, ``unpack``). Whatever is replaced goes to ``data/aside``.
Done again after a crash, each comes to the same.

``KeptElsewhere`` asks a server for the same: all public methods, with values that msgspec knows.
"""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from holdfast import disk
from holdfast.core.frame import Kind
from holdfast.core.records import RecoveryRecord, StreamEnd
from holdfast.core.settings import Keeping
from holdfast.durable import make_private
from holdfast.errors import HoldfastError
from holdfast.kept import consumers
from holdfast.kept.packed_codec import decode_record, encode_record
from holdfast.kept.state_directory import Manifest, StateDirectory
from holdfast.log import StreamLog
from holdfast.log.payload import is_window

# What goes over the network at once.
PIECE_BYTES = 1 << 22


@dataclass(frozen=True)
class End:
    """The time up to which a log has results, the id that comes next, and whether it has more.

    bounded  whether a mark in the log says how far it is; its header may know it, too.
    """

    boundary: int
    next_id: int
    torn: bool
    bounded: bool


@dataclass(frozen=True)
class StoppedAt:
    """Where a replica stopped: its record, how its state is kept, and where its results end.

    boundary  up to which its results are in its logs.
    torn      the stream in whose log there is more, of a write that was interrupted; nobody has
              read it, but what comes next would have its ids.
    ended     where its streams ended for their readers; None if it has not ended in order.
    network   what its state is of, line by line.
    flag      the option with which that has replaced another network; None if nothing has.
    """

    node: str
    record: RecoveryRecord
    keeping: Keeping
    ends: Mapping[str, End]
    boundary: int
    torn: str | None
    ended: tuple[StreamEnd, ...] | None = None
    network: tuple[str, ...] = ()
    flag: str | None = None

    def logged(self) -> list[StreamEnd]:
        """Where its logs end."""
        return [StreamEnd(name, end.next_id, end.boundary) for name, end in self.ends.items()]


# Made known by one thread, at import: see flight/wire.py.
_KNOWN = msgspec.json.Decoder(StoppedAt)


class KeptNodes:
    """What nodes have kept in a data directory of this machine."""

    def __init__(self, data: Path) -> None:
        self._data = data

    # -- where they stopped -----------------------------------------------------------------

    def place(self, node: str, streams: Sequence[str]) -> StoppedAt | None:
        """Where a replica that serves these streams stopped; None if it has kept nothing."""
        manifest = _manifest(self._directory(node) / "state")
        if manifest is None:
            return None
        record = decode_record(manifest["record"])
        ends = {stream: _end_of(self._log(node, stream)) for stream in streams}
        boundary = max((end.boundary for end in ends.values()), default=record.boundary)
        torn = [name for name, end in ends.items() if end.torn or end.boundary != boundary]
        keeping = Keeping(manifest["kept"])
        ended = msgspec.convert(manifest.get("ended"), tuple[StreamEnd, ...] | None)
        network, flag = tuple(manifest["network"]), manifest.get("flag")
        interrupted = torn[0] if torn else None
        return StoppedAt(node, record, keeping, ends, boundary, interrupted, ended, network, flag)

    def log_end(self, node: str, stream: str) -> int | None:
        """The last boundary in a node's log of a stream; None if it has no such log."""
        path = self._log(node, stream)
        if not path.is_dir():
            return None
        with StreamLog.open(path, read_only=True) as log:
            return log.last_boundary or 0

    def first_id(self, node: str, stream: str, boundary: int) -> int:
        """The id from which on a log has, and will have, everything at or after a time."""
        with StreamLog.open(self._log(node, stream), read_only=True) as log:
            newer = (
                header.first_id
                for header, _ in log.headers()
                if header.kind.is_data and header.stime_max >= boundary
            )
            return min(newer, default=log.next_id)

    # -- how they begin ---------------------------------------------------------------------

    def begin(
        self, node: str, network: Sequence[str], record: RecoveryRecord, keeps: bool, flag: str
    ) -> None:
        """Have a replica begin at a record with another network; ``keeps``: with its state.

        ``flag``: the option that asked for it, for whoever finds that it was interrupted.
        """
        directory = self._directory(node) / "state"
        shutil.copytree(directory, self._aside(f"{node}-state"))
        with closing(StateDirectory(directory)) as state:
            assert state.manifest is not None, "it was read before"
            manifest = {**state.manifest, "network": list(network), "flag": flag}
            if not keeps:
                state.forget()
            state.write_manifest({**manifest, "record": encode_record(record)})

    def begin_new(
        self, node: str, network: Sequence[str], record: RecoveryRecord, keeping: Keeping
    ) -> None:
        """Have a replica of a new fragment begin at a record, with nothing."""
        if self._directory(node).exists():
            disk.rename(self._directory(node), self._aside(node))
        with closing(StateDirectory(self._directory(node) / "state")) as state:
            state.write_manifest(
                {
                    "network": list(network),
                    "kept": keeping.value,
                    "record": encode_record(record),
                    "ended": [],  # nobody has read anything of it
                }
            )

    # -- one as another ---------------------------------------------------------------------

    def pack(self, node: str) -> None:
        """Make a parcel of what a replica provides and where it begins."""
        with tarfile.open(self._parcel(node), "w") as parcel:
            for part in ("streams", "state"):
                parcel.add(self._directory(node) / part, part)

    def read(self, node: str, offset: int) -> bytes:
        """A piece of a parcel; none after the last, and the parcel is gone."""
        path = self._parcel(node)
        with path.open("rb") as parcel:
            parcel.seek(offset)
            piece = parcel.read(PIECE_BYTES)
        if not piece:
            path.unlink()
        return piece

    def write(self, node: str, offset: int, piece: bytes) -> None:
        """Take a piece of the parcel that a node is to begin with."""
        make_private(self._parcel(node).parent)
        with self._parcel(node).open("r+b" if offset else "wb") as parcel:
            parcel.seek(offset)
            parcel.write(piece)

    def unpack(self, node: str) -> None:
        """Have a replica begin with what is in its parcel.

        Whom it provides for, which of their lives count and which life it is itself stay its own.
        """
        directory, aside = self._directory(node), self._aside(node)
        before = _manifest(directory / "state")
        incarnation = 0 if before is None else decode_record(before["record"]).incarnation
        made = directory.parent / f"{node}.part"
        shutil.rmtree(made, ignore_errors=True)
        make_private(made)
        with tarfile.open(self._parcel(node)) as parcel:
            parcel.extractall(made, filter="data")
        if (directory / consumers.FILE).exists():
            shutil.copy(directory / consumers.FILE, made / consumers.FILE)
        with closing(StateDirectory(made / "state")) as state:
            assert state.manifest is not None, "it was packed with it"
            record = replace(decode_record(state.manifest["record"]), incarnation=incarnation)
            state.write_manifest({**state.manifest, "record": encode_record(record)})
        if directory.exists():
            disk.rename(directory, aside)
        disk.rename(made, directory)
        disk.sync_directory(directory.parent)
        self._parcel(node).unlink()

    # -- where it all is --------------------------------------------------------------------

    def _directory(self, node: str) -> Path:
        return self._data / "processes" / _plain(node)

    def _log(self, node: str, stream: str) -> Path:
        return self._directory(node) / "streams" / _plain(stream)

    def _parcel(self, node: str) -> Path:
        return self._data / "processes" / f"{_plain(node)}.parcel"

    def _aside(self, name: str) -> Path:
        """A place in ``data/aside`` that nothing has yet."""
        aside = self._data / "aside"
        make_private(aside)
        number = 1
        while (path := aside / f"{name}-{number}").exists():
            number += 1
        return path


def _end_of(directory: Path) -> End:
    with StreamLog.open(directory, read_only=True) as log:
        kinds = [header.kind for header, _ in log.headers() if not is_window(header.kind)]
        torn = bool(kinds) and kinds[-1] is not Kind.BOUNDARY
        bounded = Kind.BOUNDARY in kinds
        return End(log.last_boundary or 0, log.next_id, torn, bounded)


def _manifest(path: Path) -> Manifest | None:
    """What is kept in a replica's state directory; None if there is none."""
    if not (path / "manifest.json").exists():
        return None
    with closing(StateDirectory(path)) as state:
        return state.manifest


def _plain(name: str) -> str:
    """The name of a node or a stream, which is that of a directory; others have sent it."""
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise HoldfastError(f"the name of a node or a stream was expected, got {name!r}")
    return name
