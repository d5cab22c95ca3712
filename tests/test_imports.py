"""What is not used is not loaded: Spark, Arrow and the rest take seconds."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast

_SOURCES = Path(holdfast.__file__).parents[1]
HEAVY = ("pyspark", "pyarrow", "numpy", "pandas", "rich", "matplotlib", "grpc", "py4j")


def loaded(code: str, *heavy: str) -> list[str]:
    """Which of these modules a program has when it ends."""
    program = f"""
import sys
try:
    exec({code!r})
except SystemExit:
    pass
print([name for name in {heavy!r} if name in sys.modules], file=sys.stderr)
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True
    )
    found: list[str] = ast.literal_eval(ran.stderr.splitlines()[-1])
    return found


@pytest.mark.parametrize(
    "code",
    [
        "import holdfast",
        "from holdfast import HoldfastError, InputError",
        "from holdfast.cli import main; main(['--help'])",
        "from holdfast.cli import main; main(['up', '--help'])",
        "from holdfast.cli import main; main(['simulate', '--help'])",
    ],
)
def test_nothing_heavy_is_loaded(code: str) -> None:
    assert loaded(code, *HEAVY) == []


@pytest.mark.parametrize(
    "code",
    [
        "from holdfast import Client, Producer",
        "from holdfast.cli import main; main(['simulate', '--seed', '1'])",
        "from holdfast.cli import main; main(['status', 'nowhere.toml'])",
        "import holdfast.cluster.supervisor, holdfast.plans.topology, holdfast.cluster.chaos",
    ],
)
def test_spark_is_loaded_by_none_that_does_without(code: str) -> None:
    assert loaded(code, "pyspark", "py4j", "matplotlib") == []


@pytest.mark.parametrize("room", ["nodes.entry_node", "nodes.client_node", "cluster.server"])
def test_the_engine_is_loaded_by_replicas_only(room: str) -> None:
    engine = sorted(
        path.relative_to(_SOURCES).with_suffix("").as_posix().replace("/", ".")
        for path in (_SOURCES / "holdfast" / "spark").glob("*.py")
    )
    assert "holdfast.spark.engine" in engine
    code = f"import holdfast.cluster.process_main, holdfast.{room}"
    assert loaded(code, "pyspark", "py4j", "pandas", *engine) == []


def test_every_public_name_can_be_used() -> None:
    assert sorted(holdfast._HOMES) == sorted(holdfast.__all__)
    for name in holdfast.__all__:
        found = getattr(holdfast, name)
        home = importlib.import_module(f"holdfast.{holdfast._HOMES[name]}")
        assert found is getattr(home, name)
        assert name in dir(holdfast)
    with pytest.raises(AttributeError, match="module 'holdfast' has no attribute 'nothing'"):
        getattr(holdfast, "nothing")  # noqa: B009


def test_type_checkers_are_told_the_same() -> None:
    tree = ast.parse(Path(holdfast.__file__).read_text())
    told = {
        name.name: (node.module or "").removeprefix("holdfast.")
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    }
    assert told == holdfast._HOMES
