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
    "bisect",
    "collections",
    "dataclasses",
    "enum",
    "heapq",
    "typing",
}
LONGEST_FILE_LINES = 500
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
