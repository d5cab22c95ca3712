"""``holdfast log``: what is in a log, and what to do about a damaged one."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.cli import main
from holdfast.core.frame import Header, Kind
from holdfast.frames import Frame
from holdfast.log import StreamLog
from tests.blocks_for_tests import boundary_frame
from tests.log.helpers import SCHEMA, stable

TEN = 10


@pytest.fixture
def log(tmp_path: Path) -> Path:
    directory = tmp_path / "streams" / "load"
    with StreamLog.open(directory, SCHEMA) as opened:
        for first in range(0, 100, TEN):
            opened.append([stable(first, TEN), boundary_frame(first + TEN, first + TEN)])
    return directory


def damage(log: Path) -> None:
    (segment,) = log.glob("*.seg")
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)


def test_a_log_is_told(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "inspect", str(log)]) == 0
    told = capsys.readouterr().out
    assert f"{log}: intact" in told
    assert "100 tuples in 10 frames" in told
    # A directory above it finds it, too.
    assert main(["log", "inspect", "--json", str(log.parent.parent)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["log"], found["next_id"], found["damage"]) == (str(log), 100, [])
    assert found["kinds"]["STABLE"]["tuples"] == 100
    assert found["kinds"]["BOUNDARY"]["frames"] == 10


def test_window_states_tell_what_a_recovery_would_cost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = {"open_windows": 6, "extent_from": 20, "replay_from": 20, "replay": 33, "recovery_us": 9}
    states = pa.record_batch({"slot": pa.array(range(4))}).replace_schema_metadata(
        {key: str(value) for key, value in told.items()}
    )
    with StreamLog.open(tmp_path, SCHEMA) as opened:
        for first in range(0, 30, TEN):
            time = first + TEN
            window = Header(Kind.WINDOW_OPEN, time, 4, time, time, time)
            marks = [boundary_frame(time, time), Frame(window, states)]
            opened.append([stable(first, TEN), *marks])
    assert main(["log", "inspect", "--json", str(tmp_path)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {key: found[key] for key in ("open_windows", "replay", "window_states")} == {
        "open_windows": 6,
        "replay": 33,
        "window_states": 12,
    }
    # The states of 20 and 30, and the ten results between them.
    assert found["extent"] == 4 + TEN + 4
    assert found["kinds"]["WINDOW_OPEN"]["frames"] == 3
    assert main(["log", "inspect", str(tmp_path)]) == 0
    assert "extent from          1970-01-01 00:00:00.000020 UTC" in capsys.readouterr().out


def test_damage_is_found_and_cut_only_when_told_so(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(log)
    assert main(["log", "inspect", str(log)]) == 1
    assert "DAMAGED" in capsys.readouterr().out
    before = {path: path.read_bytes() for path in log.iterdir()}
    assert main(["log", "repair", str(log)]) == 1
    assert "would be cut there" in capsys.readouterr().out
    assert {path: path.read_bytes() for path in log.iterdir()} == before
    assert main(["log", "repair", "--yes", str(log)]) == 0
    assert ".damaged" in capsys.readouterr().out
    assert main(["log", "repair", str(log)]) == 0
    assert "nothing to repair" in capsys.readouterr().out
    with StreamLog.open(log) as opened:
        assert 0 < opened.next_id < 100


def test_no_log_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "inspect", str(tmp_path / "none")]) == 1
    assert "there is no log here" in capsys.readouterr().err
