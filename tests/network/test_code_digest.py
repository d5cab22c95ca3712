"""The digest of Python code: what changes it and what does not."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from holdfast.code_digest import code_digest

QUERY = '''"""A query."""
import functools
import re
from dataclasses import dataclass
from enum import Enum

import helpers
import numpy as np
from factors import factor

KINDS = {"a", "b", "c", "d", "e"}
WEIGHTS = np.array([1.0, 2.0])
PATTERN = re.compile("x+")


class Level(Enum):
    LOW = 1
    HIGH = 2


@dataclass(frozen=True)
class Scale:
    """How much."""

    by: float
    level: Level = Level.LOW

    def __call__(self, value, *, shift=0.5):
        """Scale it."""
        total = value * self.by  # as agreed
        if value in KINDS or value in (1, 2):
            return helpers.shift(total) + WEIGHTS.sum()
        return total * factor() + shift


def late(value):
    import deeper
    from inner import parts

    return [deeper.STEP + parts.PART + each for each in value if PATTERN.match(each)]


def folded(value, times=3):
    def again(inner):
        return folded(inner, times - 1) if times else inner

    return again(value)


def caught(value):
    try:
        return 1 / value
    except ZeroDivisionError:
        return None


query = [Scale(2.5), late, folded, caught, functools.partial(folded, times=2), Scale(1.0).__call__]
'''
FILES = {
    "query.py": QUERY,
    "helpers.py": "from inner.parts import PART\n\n\ndef shift(x):\n    return x + PART\n",
    "factors.py": "BASE = 2\n\n\ndef factor():\n    return BASE * 1.5\n",
    "deeper.py": "STEP = 1.0\n",
    "inner/__init__.py": "",
    "inner/parts.py": "from . import rest\n\nPART = 1 + rest.REST\n",
    "inner/rest.py": '"""The rest."""\n\nREST = 0\n',
}
CHANGED = {
    "a value": ("query.py", "Scale(2.5)", "Scale(2.6)"),
    "a set": ("query.py", '"e"}', '"f"}'),
    "a constant": ("query.py", "(1, 2)", "(1, 3)"),
    "an operation": ("query.py", "value * self", "value + self"),
    "a default": ("query.py", "times=3", "times=4"),
    "a default of a name": ("query.py", "shift=0.5", "shift=0.6"),
    "an argument's name": ("query.py", "shift=0.5", "moved=0.5"),
    "an array": ("query.py", "[1.0, 2.0]", "[1.0, 3.0]"),
    "a pattern": ("query.py", "x+", "x*"),
    "a member": ("query.py", "Level.LOW", "Level.HIGH"),
    "an attribute": ("query.py", ".match", ".search"),
    "an exception": ("query.py", "ZeroDivisionError", "ArithmeticError"),
    "a bound argument": ("query.py", "times=2", "times=1"),
    "a bound object": ("query.py", "Scale(1.0)", "Scale(1.5)"),
    "an inner function": ("query.py", "times - 1", "times - 2"),
    "an imported module": ("helpers.py", "x + PART", "x - PART"),
    "an imported function": ("factors.py", "1.5", "1.6"),
    "its global": ("factors.py", "BASE = 2", "BASE = 3"),
    "what is imported later": ("deeper.py", "1.0", "2.0"),
    "what a module imports": ("inner/parts.py", "1 +", "2 +"),
    "what that imports": ("inner/rest.py", "0", "7"),
}
UNCHANGED = {
    "nothing": ("query.py", "", ""),
    "a comment": ("query.py", "# as agreed", "# as agreed upon, in\n        # the end"),
    "docstrings": ("query.py", '"""How much."""', '"""How\n    little."""'),
    "a method's docstring": ("query.py", '"""Scale it."""', ""),
    "a local variable": ("query.py", "total", "product"),
    "what nobody reads": ("query.py", "def caught", "UNUSED = 1\n\n\ndef caught"),
    "a module's comment": ("helpers.py", "def shift", "# Move it.\ndef shift"),
    "a module's docstring": ("inner/rest.py", "The rest", "All the rest"),
}


def write(directory: Path, file: str, old: str, new: str) -> None:
    for name, text in FILES.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        assert name != file or old in text
        (directory / name).write_text(text.replace(old, new) if name == file else text)


def digest_in(directory: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    with monkeypatch.context() as patch:
        patch.syspath_prepend(directory)
        patch.setattr(sys, "modules", dict(sys.modules))
        importlib.invalidate_caches()
        return code_digest(importlib.import_module("query").query)


def test_what_runs_counts_and_how_it_is_written_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {}
    for index, (name, change) in enumerate({**CHANGED, **UNCHANGED}.items()):
        write(tmp_path / str(index), *change)
        found[name] = digest_in(tmp_path / str(index), monkeypatch)
    plain = found["nothing"]
    assert {name: found[name] for name in UNCHANGED} == dict.fromkeys(UNCHANGED, plain)
    assert [name for name in CHANGED if found[name] == plain] == []
    assert len(set(found.values())) == 1 + len(CHANGED)


def test_every_process_has_the_same_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With other hashes, and from compiled files."""
    write(tmp_path, "query.py", "", "")
    here = digest_in(tmp_path, monkeypatch)
    asked = "import query, holdfast.code_digest as made; print(made.code_digest(query.query))"
    done = subprocess.run(
        [sys.executable, "-c", asked],
        env={**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": str(tmp_path)},
        stdout=subprocess.PIPE,
        timeout=120,
        check=True,
        text=True,
    )
    assert done.stdout.strip() == here


def test_loops_and_what_cannot_be_packed_end_well() -> None:
    loop: list[object] = [threading.Lock(), sys, len, "abc".join]
    loop.append(loop)
    assert code_digest(loop) == code_digest(loop)
    other: list[object] = [threading.Lock(), sys, len, "abd".join]
    other.append(other)
    assert code_digest(loop) != code_digest(other)
