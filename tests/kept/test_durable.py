"""What a process goes on from: a flipped bit is found wherever it is."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.durable import (
    Damaged,
    open_line,
    read_document,
    read_table,
    seal_line,
    write_document,
    write_table,
)
from holdfast.errors import StateError
from holdfast.kept.state_directory import StateDirectory
from holdfast.packed import PackedPart, PackedState

TABLE = pa.table({"number": [500, 501, 502], "text": ["a", None, "c"]})


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 16
    path.write_bytes(data)


def test_a_table_comes_back_and_any_flipped_bit_is_found(tmp_path: Path) -> None:
    path = tmp_path / "0.arrow"
    write_table(path, TABLE)
    assert read_table(path).equals(TABLE)
    for at in range(0, path.stat().st_size, 5):
        flip(path, at)
        with pytest.raises(Damaged, match=f"{path} is damaged"):
            read_table(path)
        flip(path, at)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(Damaged, match="its end is missing"):
        read_table(path)


def test_a_document_comes_back_and_no_flipped_bit_changes_it(tmp_path: Path) -> None:
    path = tmp_path / "position.json"
    content = {"next_id": 500, "position": {"size": 12}, "share": 0.1, "text": "ä\n"}
    write_document(path, content)
    assert read_document(path) == content
    for at in range(path.stat().st_size):
        flip(path, at)
        with contextlib.suppress(Damaged):
            assert read_document(path) == content  # a space became a line's end
        flip(path, at)


@given(st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"])), st.data())
def test_a_line_comes_back_and_any_flipped_bit_is_found(text: str, data: st.DataObject) -> None:
    line = seal_line(text)
    assert open_line(line[:-1]) == text
    bit = data.draw(st.integers(0, 8 * (len(line) - 1) - 1))
    flipped = bytearray(line[:-1])
    flipped[bit // 8] ^= 1 << bit % 8
    assert open_line(bytes(flipped)) is None


def test_a_checkpoint_with_a_flipped_bit_is_refused_by_name(tmp_path: Path) -> None:
    directory = StateDirectory(tmp_path / "state")
    part = PackedPart("sum_1", "sums", 0, TABLE)
    directory.write_state((PackedState(1, 10, None, [part]),), {"load": TABLE})
    directory.write_manifest({"finished": None})
    reads: dict[str, Callable[[], object]] = {
        "0.arrow": directory.read_state,
        "waiting-load.arrow": partial(directory.read_waiting, "load"),
    }
    for name, read in reads.items():
        path = tmp_path / "state" / "checkpoints" / "000001" / name
        place = path.read_bytes().index((500).to_bytes(8, "little"))
        flip(path, place)
        with pytest.raises(StateError, match=f"{path} is damaged.* new state directory"):
            read()
        flip(path, place)
    directory.close()
    flip(tmp_path / "state" / "manifest.json", 20)
    with pytest.raises(StateError, match=r"manifest.json is damaged.* new state directory"):
        StateDirectory(tmp_path / "state")
