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
# What drivers and machines call others that they have, with an underscore or without.
MACHINES = {
    *("replica", "consumer", "sunion", "manager", "versions", "appender", "provider", "keeper"),
    *("consumers", "acknowledgements", "detector", "switch", "benchmark", "checkpointer"),
    *("served", "stream", "output", "ahead", "pairs", "copy", "copies", "upstream", "upstreams"),
    *("joining", "progress", "patience", "soutput", "soutputs", "bounds", "revival"),
}
# What changes a list, a set or a dictionary.
CHANGES = {
    *("append", "appendleft", "extend", "extendleft", "insert", "add", "update", "setdefault"),
    *("remove", "discard", "pop", "popleft", "popitem", "clear", "sort", "reverse"),
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


def names_in(node: ast.expr) -> set[str]:
    """What a thing is reached by: ``consumer`` and ``acks`` of ``self._consumer.acks[name]``."""
    found = set()
    while isinstance(node, ast.Attribute | ast.Subscript):
        if isinstance(node, ast.Attribute):
            found.add(node.attr.lstrip("_"))
        node = node.value
    if isinstance(node, ast.Name):
        found.add(node.id)
    return found


def fields_set(tree: ast.AST) -> list[ast.Attribute]:
    """The fields that are set, in whole or in part, or changed where they are."""
    found: list[ast.expr] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            found.append(node)
        elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            found.append(node.value)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            one = node.func.value
            is_machine = isinstance(one, ast.Attribute) and one.attr.lstrip("_") in MACHINES
            if node.func.attr in CHANGES and not is_machine:
                found.append(one)
    return [one for one in found if isinstance(one, ast.Attribute)]


def of_others(tree: ast.AST) -> list[ast.Attribute]:
    """The fields of other machines among them."""
    return [one for one in fields_set(tree) if names_in(one.value) & MACHINES]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_driver_sets_a_field_of_another(path: Path) -> None:
    """A copy makes its replica, and then tells it what it has to know."""
    found = [f"{path.name}:{one.lineno} {ast.unparse(one)}" for one in of_others_in(path)]
    assert not found, "set where it is not its own"


def of_others_in(path: Path) -> list[ast.Attribute]:
    return of_others(ast.parse(path.read_text()))


@pytest.mark.parametrize(
    "line",
    [
        "self.copy.cut = 1",
        "self.consumer.acks[stream] = 1",
        "del self.replica.copies[stream]",
        "self._consumer.acks.update(acks)",
        "self.copy.stable.clear()",
        "served.acknowledgements.lapsed.add(consumer)",
        "self.copies[stream].boundary = 1",
    ],
)
def test_every_way_to_set_a_field_of_another_is_seen(line: str) -> None:
    assert of_others(ast.parse(line))


@pytest.mark.parametrize(
    "line",
    ["self.acks[stream] = 1", "self.copies[stream] = copy", "self._held.clear()",
     "replica.appender.add(stream, frames)", "self.served[stream].extend(queue)"],
)  # fmt: skip
def test_what_is_ones_own_may_be_set_and_others_told(line: str) -> None:
    assert not of_others(ast.parse(line))
