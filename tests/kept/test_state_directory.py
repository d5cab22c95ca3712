"""The state directory: what counts is what the manifest names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from holdfast.durable import write_document
from holdfast.errors import StateError
from holdfast.kept import state_directory
from holdfast.kept.state_directory import StateDirectory, keep_newest_aside, put_aside
from holdfast.packed import PackedPart, PackedState


def packed(version: int, since: int | None, rows: int = 3) -> PackedState:
    table = pa.table({"slot": range(rows), "version": [version] * rows})
    return PackedState(version, version * 10, since, [PackedPart("join_1", "left", 1, table)])


def test_whole_and_changed_states_come_back_in_order(tmp_path: Path) -> None:
    directory = StateDirectory(tmp_path / "state")
    assert directory.manifest is None
    assert directory.wants_whole()
    directory.write_state((packed(1, None, 30),), {"load": pa.table({"x": [1]})})
    directory.write_manifest({"finished": None})
    assert not directory.wants_whole()
    directory.write_state((packed(2, 1),), {"load": pa.table({"x": [2]})})
    directory.write_manifest({"finished": None})
    directory.close()

    again = StateDirectory(tmp_path / "state")
    states = again.read_state()
    assert [(each.version, each.boundary, each.since) for each in states] == [
        (1, 10, None),
        (2, 20, 1),
    ]
    assert states[0].parts[0].rows.num_rows == 30
    waiting = again.read_waiting("load")
    assert waiting is not None
    assert waiting["x"].to_pylist() == [2]
    assert again.read_waiting("other") is None
    again.close()


def test_a_checkpoint_without_its_manifest_never_happened(tmp_path: Path) -> None:
    directory = StateDirectory(tmp_path / "state")
    directory.write_state((packed(1, None),), {})
    directory.write_manifest({"finished": None})
    directory.write_state((packed(2, 1),), {})
    directory.close()
    again = StateDirectory(tmp_path / "state")
    assert [each.version for each in again.read_state()] == [1]
    assert [each.name for each in (tmp_path / "state" / "checkpoints").iterdir()] == ["000001"]
    again.close()


def test_a_whole_state_replaces_the_chain(tmp_path: Path) -> None:
    directory = StateDirectory(tmp_path / "state")
    for version in range(1, 20):
        since = None if directory.wants_whole() else version - 1
        directory.write_state((packed(version, since, 1000 if since is None else 1),), {})
        directory.write_manifest({"finished": None})
    kept = len(list((tmp_path / "state" / "checkpoints").iterdir()))
    assert kept == len(directory.read_state()) <= 8
    directory.close()


def test_two_runs_cannot_share_a_directory(tmp_path: Path) -> None:
    directory = StateDirectory(tmp_path / "state")
    with pytest.raises(StateError, match="is in use by process"):
        StateDirectory(tmp_path / "state")
    directory.close()
    StateDirectory(tmp_path / "state").close()


def test_damage_is_noticed(tmp_path: Path) -> None:
    directory = StateDirectory(tmp_path / "state")
    directory.write_state((packed(1, None),), {})
    directory.write_manifest({"finished": None})
    (tmp_path / "state" / "checkpoints" / "000001" / "0.arrow").write_bytes(b"?")
    with pytest.raises(StateError, match="is damaged"):
        directory.read_state()
    directory.close()
    manifest = tmp_path / "state" / "manifest.json"
    manifest.write_text("{")
    with pytest.raises(StateError, match="is damaged"):
        StateDirectory(tmp_path / "state")
    write_document(manifest, {"format": 99})
    with pytest.raises(StateError, match="has format 99"):
        StateDirectory(tmp_path / "state")


def test_what_the_holder_of_the_lock_wrote_last_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It writes a checkpoint and ends just when the next one asks for the lock."""
    holder = StateDirectory(tmp_path / "state")
    holder.write_state((packed(1, None),), {})
    holder.write_manifest({"finished": None})
    take_lock = StateDirectory._take_lock

    def after_a_last_checkpoint(self: StateDirectory) -> int:
        holder.write_state((packed(2, 1),), {})
        holder.write_manifest({"finished": None})
        holder.close()
        return take_lock(self)

    monkeypatch.setattr(StateDirectory, "_take_lock", after_a_last_checkpoint)
    following = StateDirectory(tmp_path / "state")
    assert [each.version for each in following.read_state()] == [1, 2]
    following.close()


def test_a_directory_that_cannot_be_read_is_not_held(tmp_path: Path) -> None:
    StateDirectory(tmp_path / "state").close()
    manifest = tmp_path / "state" / "manifest.json"
    manifest.write_text("{}")
    with pytest.raises(StateError):
        StateDirectory(tmp_path / "state")
    manifest.unlink()
    StateDirectory(tmp_path / "state").close()


def test_of_states_that_were_put_aside_the_newest_stays(tmp_path: Path) -> None:
    path = tmp_path / "state"
    for number in range(1, 13):
        path.mkdir()
        (path / "tried").write_text(f"{number}")
        assert put_aside(path) == tmp_path / f"state.aside-{number}"
    path.mkdir()
    keep_newest_aside(path)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["state", "state.aside-12"]
    assert (tmp_path / "state.aside-12" / "tried").read_text() == "12"
    # The next one is newer than what is left.
    assert put_aside(path) == tmp_path / "state.aside-13"
    keep_newest_aside(path)
    assert [each.name for each in tmp_path.iterdir()] == ["state.aside-13"]
    keep_newest_aside(tmp_path / "nothing" / "state")


def test_links_of_which_the_next_could_not_be_written_never_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = StateDirectory(tmp_path / "state")
    directory.write_state((packed(1, None), packed(2, 1)), {})
    directory.write_manifest({"record": "first"})
    write = StateDirectory._write_link

    def full_after_the_first(self: StateDirectory, link: PackedState, waiting: Any) -> Any:
        if link.version == 4:
            raise OSError("No space left on device")
        return write(self, link, waiting)

    monkeypatch.setattr(StateDirectory, "_write_link", full_after_the_first)
    with pytest.raises(OSError, match="No space"):
        directory.write_state((packed(3, None), packed(4, 3)), {})
    directory.note({"ended": True})
    directory.close()
    again = StateDirectory(tmp_path / "state")
    assert again.manifest is not None
    assert (again.manifest["record"], again.manifest["ended"]) == ("first", True)
    assert [each.version for each in again.read_state()] == [1, 2]
    again.close()


def test_a_state_whose_manifest_could_not_be_written_never_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = StateDirectory(tmp_path / "state")
    directory.write_state((packed(1, None),), {})
    directory.write_manifest({"record": "first"})
    directory.write_state((packed(2, None),), {})

    def full(path: Path, document: object) -> None:
        raise OSError("No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(state_directory, "write_document", full)
        with pytest.raises(OSError, match="No space"):
            directory.write_manifest({"record": "second"})
    directory.note({"ended": True})
    directory.close()
    again = StateDirectory(tmp_path / "state")
    assert again.manifest is not None
    assert (again.manifest["record"], again.manifest["ended"]) == ("first", True)
    assert [each.version for each in again.read_state()] == [1]
    again.close()
