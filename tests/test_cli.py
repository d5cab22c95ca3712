"""The command line, as far as it needs no Spark, and the commands that do."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.cli import main

NETWORK = """
import holdfast

network = holdfast.Network("numbers", bucket="1 second")
numbers = network.source("numbers", "at timestamp, value bigint", stime="at")
numbers.filter("value % 2 = 0").output("even")
sources = {"numbers": holdfast.read_csv("numbers.csv")}
"""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "nowhere.py"], "there is no file 'nowhere.py'; name the Python file with the"),
        (["run", "x.py", "--source", "load"], "write it as NAME=KIND:WHERE"),
        (["run", "x.py", "--source", "load=foo:x"], "there is no kind 'foo'"),
        (["run", "x.py", "--output", "busy=foo:x"], "there is no kind 'foo'"),
        (["run", "x.py", "--bucket", "soon"], "expected a duration such as '10 seconds'"),
        (["run", "x.py", "--checkpoint-interval", "-1 s"], "expected a duration"),
    ],
)
def test_mistakes_are_told_in_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 1
    said = capsys.readouterr().err
    assert said.startswith("holdfast: ")
    assert message in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize("arguments", [[], ["fly"], ["run"], ["demo", "--seconds", "long"]])
def test_wrong_usage_has_exit_code_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert "usage: holdfast" in capsys.readouterr().err


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> Path:
    """An own directory; what ``load`` does to the paths of this process is undone."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", "")
    (tmp_path / "net.py").write_text(NETWORK)
    return tmp_path


def test_run_prints_to_the_console(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = "".join(f"2024-01-01 00:00:0{i},{i}\n" for i in range(5))
    (here / "numbers.csv").write_text("at,value\n" + rows + "never,6\n")
    assert main(["run", "net.py"]) == 0
    said = capsys.readouterr()
    assert said.out.splitlines() == [
        "2024-01-01 00:00:00.000 even  at=00:00:00  value=0",
        "2024-01-01 00:00:02.000 even  at=00:00:02  value=2",
        "2024-01-01 00:00:04.000 even  at=00:00:04  value=4",
    ]
    assert "5 tuples in, 3 even out; 1 dead letters in dead-letters/numbers.jsonl" in said.err


def test_options_come_before_what_the_file_binds(here: Path) -> None:
    (here / "other.csv").write_text("2024-01-01,8\n")
    source, output = "numbers=csv:other.csv,header=false", "even=jsonl:even.jsonl"
    arguments = ["run", "net.py", "--source", source, "--output", output, "--quiet"]
    assert main([*arguments, "--bucket", "5 s", "--state", "state"]) == 0
    assert '"value": 8' in (here / "even.jsonl").read_text()


def test_describe_prints_and_draws(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["describe", "net.py", "--draw", "net.svg"]) == 0
    assert "network numbers" in capsys.readouterr().out
    assert (here / "net.svg").read_text().startswith("<svg")


def test_describe_shows_how_x_is_divided(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "deployment.toml").write_text(
        'network = "net.py"\n[sources.numbers]\n[fragments.main]\n[outputs.even]\ndelay = "4 s"\n'
    )
    assert main(["describe", "deployment.toml"]) == 0
    said = capsys.readouterr().out
    assert "output even: X = 4 s from the sources, as asked" in said
    assert "fragment main: 4 s (1 on its longest path)" in said


def test_a_file_without_a_network(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "empty.py").write_text("")
    assert main(["describe", "empty.py"]) == 1
    assert "'empty.py' defines no network; it needs a variable" in capsys.readouterr().err


def test_simulate_has_options_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--seeds", "2", "--workers", "1"]) == 0
    assert "2 seeds" in capsys.readouterr().out
