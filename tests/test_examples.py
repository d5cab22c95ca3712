"""Every example runs and prints what it is about; the README shows the first of them."""

from __future__ import annotations

import runpy
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from holdfast import Boundary, Tuples, Undo, Unordered
from holdfast.cluster.networks import load_network
from holdfast.cluster.planning import plan_of
from holdfast.deployment import load_deployment
from holdfast.frames import TIME
from holdfast.plans.topology import Topology

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
    "dashboard": "\033[33m  quito     88.0  without load, on 60%\033[0m",
    "dead_letters": "'high' is not of type double",
    "drawing": "network.png",
    "tcp": "berlin",
    "own_time": "is too far ahead of the clock (future_limit 1 min)",
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


@pytest.mark.parametrize("name", ["passive", "hybrid"])
def test_the_deployments_of_protection_fit_their_network(
    name: str, spark: SparkSession, tmp_path: Path
) -> None:
    for file in (ROOT / "examples" / "protection").iterdir():
        if file.is_file():
            shutil.copy(file, tmp_path / file.name)
    deployment = load_deployment(tmp_path / f"{name}.toml")
    network = load_network(deployment.network, "local[2]", {})
    topology = Topology(deployment, plan_of(network))
    for copy in ("main-1", "busiest-2"):
        standby = topology.standby(copy)
        assert standby is not None
        assert standby.protection.value == name
    assert set(deployment.processes) == {"entry-load", "primaries", "secondaries"}


def test_the_deployment_between_two_topics_fits_its_network(
    spark: SparkSession, tmp_path: Path
) -> None:
    shutil.copytree(ROOT / "examples" / "kafka", tmp_path, dirs_exist_ok=True)
    deployment = load_deployment(tmp_path / "deployment.toml")
    network = load_network(deployment.network, "local[2]", {})
    Topology(deployment, plan_of(network))
    assert set(deployment.processes) == {"entry-orders", "main-1", "main-2", "topic"}


def test_a_deployment_that_races_can_be_read_without_an_order(
    spark: SparkSession, tmp_path: Path
) -> None:
    shutil.copytree(ROOT / "examples" / "race", tmp_path, dirs_exist_ok=True)
    deployment = load_deployment(tmp_path / "deployment.toml")
    network = load_network(deployment.network, "local[2]", {})
    assert Topology(deployment, plan_of(network)).early == {"busy"}
    told = runpy.run_path(str(tmp_path / "watch.py"))["told"]
    row = {"server": ["quito"], "cpu": [0.95], "place": ["west"]}
    late, early = (pa.array([second * 1_000_000]).cast(TIME) for second in (5, 3))
    events = [
        Unordered(pa.table({"stime": late, **row})),
        Unordered(pa.table({"stime": early, **row})),
        Boundary(6_000_000),
    ]
    assert list(told(events)) == [
        "00:00:05 west quito 0.95",
        "00:00:03 west quito 0.95",
        "00:00:06 of both places all has come until here",
    ]


def test_the_deployment_in_shards_fits_its_network(spark: SparkSession, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples" / "shards", tmp_path, dirs_exist_ok=True)
    deployment = load_deployment(tmp_path / "deployment.toml")
    network = load_network(deployment.network, "local[2]", {})
    topology = Topology(deployment, plan_of(network))
    for shard in (1, 2):
        (read,) = topology.replica(f"sensors.{shard}-1").inputs
        assert read.part is not None
        assert read.part.columns == ("sensor",)
    names = {"entry-readings", "sensors.1", "sensors.2", "sensors-1", "sensors-2", "recorder"}
    assert set(deployment.processes) == names


def test_a_client_tells_what_is_tentative_and_what_becomes_of_it() -> None:
    told = runpy.run_path(str(ROOT / "examples" / "protection" / "watch.py"))["told"]

    def rows(stable: bool, second: int, cpu: float) -> Tuples:
        at = pa.array([second * 1_000_000]).cast(TIME)
        answer = [[{"cpu": cpu, "server": "quito"}]]
        return Tuples(stable, 0, pa.table({"stime": at, "tmax": at, "busiest": answer}))

    events = [
        rows(True, 1, 5.0),
        Boundary(1_000_001),
        rows(False, 3, 4.0),
        rows(False, 5, 6.0),
        Undo(6_000_000),
        rows(True, 3, 7.0),
        rows(True, 5, 6.0),
    ]
    assert list(told(events)) == [
        "00:00:01 stable    quito 5.0",
        "00:00:03 tentative quito 4.0",
        "00:00:05 tentative quito 6.0",
        "taken back: what was tentative before 00:00:06",
        "00:00:03 corrected quito 7.0",
        "00:00:05 confirmed",
    ]
