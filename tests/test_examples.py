"""Every example runs and prints what it is about; the README shows the first of them."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PRINTED = {
    "monitoring": "busy  window=12:00:00–12:00:10  server=berlin",
    "joining": "blame=unknown",
    "windows": "every_20_readings  server=quito",
    "own_state": "high=True",
    "own_aggregate": "spread=",
    "generated": "server 2 had",
    "going_on": "run 2: 180 tuples so far",
    "dead_letters": "'high' is not of type double",
    "drawing": "network.png",
    "tcp": "berlin",
}


def test_every_example_is_expected_to_print_something() -> None:
    assert sorted(PRINTED) == [path.stem for path in EXAMPLES]
    assert all(PRINTED.values())


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(
    path: Path,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(path), run_name="__main__")
    assert PRINTED[path.stem] in capsys.readouterr().out
    assert len(path.read_text().splitlines()) < 100


def test_the_readme_shows_the_first_example() -> None:
    example = (ROOT / "examples" / "monitoring.py").read_text().split('"""\n\n')[1]
    assert f"```python\n{example}```" in (ROOT / "README.md").read_text()
