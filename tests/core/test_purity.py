"""core/ stays pure and its files readable."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import holdfast.core

CORE = Path(holdfast.core.__file__).parent
FILES = sorted(CORE.glob("*.py"))
ALLOWED = {
    "__future__",
    "abc",
    "bisect",
    "collections",
    "dataclasses",
    "enum",
    "heapq",
    "itertools",
    "math",
    "typing",
}
LONGEST_FILE_LINES = 500
NODES = [
    *(path for room in ("nodes", "cluster") for path in sorted((CORE.parent / room).glob("*.py"))),
    CORE.parent / "client.py",
]
# What nodes call their drivers.
DRIVERS = {"copy", "entry", "driver", "_driver", "seat", "_seat"}
# What drivers and machines call others that they have.
MACHINES = {
    *("replica", "consumer", "sunion", "manager", "versions", "appender", "provider", "_provider"),
    *("consumers", "acknowledgements", "detector", "switch", "benchmark", "checkpointer"),
    *("served", "stream", "output", "ahead", "pairs"),
}
# Names that reach the world, or the time, without an import.
FORBIDDEN_NAMES = {"open", "print", "input", "exec", "eval", "globals", "id", "hash"}


def imported_modules(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "core/ uses absolute imports"
            names.add(node.module or "")
    return names


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_core_imports_nothing_that_touches_the_world(path: Path) -> None:
    tree = ast.parse(path.read_text())
    for name in imported_modules(tree):
        top = name.split(".")[0]
        inside = name == "holdfast.core" or name.startswith("holdfast.core.")
        assert inside or top in ALLOWED, f"{path.name} imports {name}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_core_calls_nothing_that_touches_the_world(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in FORBIDDEN_NAMES, f"{path.name} calls {node.func.id}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_files_stay_readable(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert len(lines) <= LONGEST_FILE_LINES, f"{path.name} has {len(lines)} lines"
    assert lines[0].startswith('"""'), f"{path.name} begins with what it is for"


def fields_of(tree: ast.Module, names: set[str]) -> list[ast.Attribute]:
    """What is named of things with these names: ``self.copy.boundary``, ``copy.view``."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            owner = node.value
            name = owner.attr if isinstance(owner, ast.Attribute) else ast.unparse(owner)
            if name in names:
                found.append(node)
    return found


@pytest.mark.parametrize("path", NODES, ids=lambda path: path.name)
def test_nodes_ask_drivers_and_read_no_field_of_them(path: Path) -> None:
    """What a node must know to carry an order out is in the order; ``view`` tells the rest."""
    tree = ast.parse(path.read_text())
    called = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    for field in fields_of(tree, DRIVERS):
        assert field in called, f"{path.name}:{field.lineno} reads {ast.unparse(field)}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_driver_sets_a_field_of_another(path: Path) -> None:
    """A copy makes its replica, and then tells it what it has to know."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            owner = ast.unparse(node.value).removeprefix("self.").split(".")[0]
            assert owner not in MACHINES, f"{path.name}:{node.lineno} sets {ast.unparse(node)}"
