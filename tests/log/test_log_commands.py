"""``holdfast log``: what is in a log, and what to do about a damaged one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.cli import main
from holdfast.frames import boundary_frame
from holdfast.log import StreamLog
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
