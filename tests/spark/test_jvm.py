"""Which compiler a driver's JVM gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.deployment import load_deployment
from holdfast.errors import InputError
from holdfast.spark.jvm import FIRST, FULL, SETTING, VARIABLE, jvm_options


@pytest.fixture(autouse=True)
def _no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


@pytest.mark.parametrize(
    ("drivers", "cores", "options"),
    [(None, 64, FIRST), (1, 4, FULL), (1, 2, FIRST), (2, 4, FIRST), (2, 8, FULL), (3, 8, FIRST)],
)
def test_whoever_lives_long_with_four_cores_gets_the_whole_compiler(
    drivers: int | None, cores: int, options: str
) -> None:
    assert jvm_options({}, drivers, cores) == options


def test_the_setting_overrules_the_rule_and_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "full")
    assert jvm_options({}, None, 1) == FULL
    assert jvm_options({SETTING: "first"}, 1, 64) == FIRST
    assert jvm_options({SETTING: "auto"}, 1, 1) == FIRST


def test_another_word_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"holdfast.jit must be .* it is 'fast'"):
        jvm_options({SETTING: "fast"}, 1, 2)
    monkeypatch.setenv(VARIABLE, "quick")
    with pytest.raises(InputError, match=r"HOLDFAST_JIT must be .* it is 'quick'"):
        jvm_options({}, 1, 2)


def test_replicas_of_a_machine_are_counted(tmp_path: Path) -> None:
    """Processes, not replicas; sources and clients run no Spark."""
    (tmp_path / "query.py").touch()
    (tmp_path / "deployment.toml").write_text(
        """
network = "query.py"
[sources.load]
[fragments.one]
replicas = ["127.0.0.1", "127.0.0.1"]
[fragments.two]
replicas = ["127.0.0.1", "east"]
[clients.out]
output = "out"
sink = "out.jsonl"
[servers.east]
listen = "127.0.0.1:4700"
"""
    )
    deployment = load_deployment(tmp_path / "deployment.toml")
    found = {name: deployment.drivers_beside(name) for name in deployment.processes}
    assert {found[name] for name in ("one-1", "one-2", "two-1")} == {3}
    assert found["two-2"] == 1
