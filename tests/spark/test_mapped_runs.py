"""Large runs stay mapped in a worker, and only while their files are there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from holdfast.spark import runs
from holdfast.spark.runs import mapped_run, numbers, write_run


@pytest.fixture(autouse=True)
def _none_mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "_mapped", {})


def test_a_large_run_is_mapped_once_and_let_go_with_its_file(tmp_path: Path) -> None:
    large, other, small = (str(tmp_path / name) for name in ("large", "other", "small"))
    for path, rows in ((large, 1 << 18), (other, 1 << 18), (small, 10)):
        write_run(path, pa.table({"slot": np.arange(rows)}))
    first = mapped_run(large)
    assert mapped_run(large) is first
    assert mapped_run(small) is not mapped_run(small)
    Path(large).unlink()
    assert mapped_run(other)["slot"][-1].as_py() == (1 << 18) - 1
    assert list(runs._mapped) == [other]
    with pytest.raises(FileNotFoundError):
        mapped_run(large)


def test_a_column_of_a_run_is_looked_at_where_it_is_mapped_not_copied(tmp_path: Path) -> None:
    """A copy of each column with every look made a bucket dearer the more windows were open."""
    path = str(tmp_path / "run")
    write_run(path, pa.table({"slot": np.arange(1000)}))
    column = mapped_run(path)["slot"]
    (_, mapped) = column.chunk(0).buffers()
    assert numbers(column).__array_interface__["data"][0] == mapped.address
    pieces = pa.chunked_array([column.chunk(0), column.chunk(0)])
    assert numbers(pieces).tolist() == [*range(1000), *range(1000)]
