"""Real servers elect a coordinator; one is killed, another coordinates; no majority, no manager."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.cli import main
from tests.processes.clusters import running


@pytest.mark.thorough
def test_three_servers_elect_and_go_on_without_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["a", "b", "c"]
    with running(tmp_path, names) as cluster:
        first = cluster.wait(lambda: cluster.coordinator(*names), "a coordinator")
        cluster.wait(
            lambda: all(len(cluster.status(name)["servers"]) == 3 for name in names), "all three"
        )
        found = cluster.wait(
            lambda: (
                status
                if len((status := cluster.status("a"))["servers"]["a"].get("delays_ms", {})) == 2
                and None not in status["servers"]["a"]["delays_ms"].values()
                else None
            ),
            "measured delays",
        )
        assert found["unmanaged"] == ""
        assert sorted(found["voters"]) == sorted(cluster.addresses.values())
        term = found["term"]

        arguments = ["cluster", "status", cluster.addresses["b"], "--token-file"]
        assert main([*arguments, str(cluster.token)]) == 0
        said = capsys.readouterr().out
        assert f"{first} coordinates, elected in term" in said

        cluster.kill(first)
        left = [name for name in names if name != first]

        def another() -> str | None:
            who = cluster.coordinator(*left)
            return who if who in left else None

        second = cluster.wait(another, "another coordinator")
        assert cluster.status(second)["term"] > term
        cluster.wait(
            lambda: cluster.addresses[first] in cluster.status(second)["missing"], "one is missing"
        )

        # One of three has no majority: it manages nothing, and says why.
        cluster.kill(second)
        (last,) = (name for name in left if name != second)
        cluster.wait(lambda: "no majority" in cluster.status(last)["unmanaged"], "unmanaged")
        with pytest.raises(Exception, match="nothing is managed now: 1 of 3 servers"):
            cluster.ask(last, "cluster-withdraw", {"name": "anything"})

        # With a second one there is a coordinator again, of a higher term.
        cluster.start(first)
        cluster.wait(lambda: cluster.coordinator(last, first), "a coordinator again")
        record = json.loads((cluster.data(last) / "cluster" / "record.json").read_text())
        assert record["term"] > term


@pytest.mark.thorough
def test_a_server_that_has_lost_its_directory_is_refused(tmp_path: Path) -> None:
    names = ["a", "b", "c"]
    with running(tmp_path, names) as cluster:
        cluster.wait(lambda: cluster.coordinator(*names), "a coordinator")
        known = cluster.wait(
            lambda: (
                life.read_text().strip()
                if (life := cluster.data("a") / "cluster" / "life").exists()
                and all(_has_taken_in(cluster.data(name), 3) for name in names)
                else None
            ),
            "who is who is on every disk",
        )
        cluster.kill("c")
        (cluster.data("c") / "cluster" / "life").unlink()
        (cluster.data("c") / "cluster" / "record.json").unlink()
        cluster.start("c")
        cluster.wait(
            lambda: "has lost what it had on disk" in (tmp_path / "c.txt").read_text(), "refused"
        )
        assert known


def _has_taken_in(data: Path, count: int) -> bool:
    path = data / "cluster" / "record.json"
    if not path.exists():
        return False
    value = json.loads(path.read_text())["value"]
    return bool(value) and len(json.loads(value)["servers"]) == count
