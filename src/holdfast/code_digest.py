"""A digest of Python code as it will run: a function, a class, an object, and all they use.

What counts is what is computed. Bytecode, constants, names, defaults, closures, the globals a
function reads, the classes it makes and the modules it imports are in it, as far as they are the
user's own; what is installed counts by its name. Comments, docstrings, line numbers and the names
of local variables are not in it. Nothing depends on the process: no addresses, no order of sets.
"""

from __future__ import annotations

import contextlib
import copyreg
import dis
import functools
import hashlib
import importlib.util
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    MappingProxyType,
    MethodType,
    ModuleType,
)
from typing import Any

_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis))
# What a class has that says nothing about what it does.
_UNTOLD = frozenset(
    (
        "__doc__",
        "__module__",
        "__qualname__",
        "__dict__",
        "__weakref__",
        "__firstlineno__",
        "__static_attributes__",
        "_abc_impl",
    )
)
# Instructions whose argument is best told by what it stands for: a name, where a jump goes.
_RESOLVED = frozenset((*dis.hasname, *dis.hasjrel, *dis.hasjabs))
# Objects that stand for a JVM's or for the network itself; plans tell what they are.
_OPAQUE = ("py4j.", "pyspark.core.", "pyspark.sql.session", "pyspark.sql.classic.")


def code_digest(value: object) -> str:
    """Sixteen digits that differ when what ``value`` computes does."""
    walk = _Walk()
    walk.value(value)
    return walk.digest.hexdigest()[:16]


def is_installed(module: str | None) -> bool:
    """Whether a module is a library's: the user's own are those that stand elsewhere."""
    top = (module or "builtins").partition(".")[0]
    if top == "holdfast" or top in sys.stdlib_module_names:
        return True
    file = getattr(sys.modules.get(module or ""), "__file__", None)
    return file is not None and is_library(Path(file))


def is_library(file: Path) -> bool:
    """Whether a file belongs to what is installed."""
    found = {"site-packages", "dist-packages"} & set(file.parts)
    return bool(found) or any(file.is_relative_to(each) for each in _library_paths())


@functools.cache
def _library_paths() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    return tuple(paths[each] for each in ("stdlib", "platstdlib", "purelib", "platlib"))


class _Walk:
    """One way through everything a value reaches, into one digest."""

    def __init__(self) -> None:
        self.digest = hashlib.sha256()
        self._seen: dict[int, int] = {}
        self._kept: list[object] = []  # so that no id is given to another object meanwhile
        self._modules: set[str] = set()

    def value(self, value: Any) -> None:
        kind = type(value)
        if kind in _PLAIN:
            self._put(kind.__name__, repr(value))
        elif kind is tuple:
            self._values("tuple", value)
        elif kind in (set, frozenset):
            self._put(kind.__name__, *sorted(code_digest(each) for each in value))
        elif isinstance(value, CodeType):
            self._code(value, "")
        elif isinstance(value, ModuleType):
            self._module(value.__name__)
        elif self._is_new(value):
            self._object(value)

    def _object(self, value: Any) -> None:
        match value:
            case list():
                self._values("list", value)
            case dict() | MappingProxyType():
                self._values("dict", [part for item in value.items() for part in item])
            case FunctionType():
                self._function(value)
            case MethodType():
                self._values("method", [value.__func__, value.__self__])
            case BuiltinFunctionType() if isinstance(value.__self__, ModuleType | type(None)):
                self._put("built in", str(value.__module__), value.__qualname__)
            case staticmethod() | classmethod():
                self._values(type(value).__name__, [value.__func__])
            case property():
                self._values("property", [value.fget, value.fset, value.fdel])
            case type():
                self._class(value)
            case _:
                self._instance(value)
        if type(value) not in (list, dict) and isinstance(value, list | dict):
            self.value(type(value))

    def _is_new(self, value: object) -> bool:
        """Note a value; one that was met before is told by when that was."""
        if id(value) in self._seen:
            self._put("again", str(self._seen[id(value)]))
            return False
        self._seen[id(value)] = len(self._seen)
        self._kept.append(value)
        return True

    def _put(self, *parts: str) -> None:
        for part in parts:
            data = part.encode("utf-8", "surrogatepass")
            self.digest.update(len(data).to_bytes(8, "big") + data)

    def _values(self, kind: str, values: Any) -> None:
        self._put(kind, str(len(values)))
        for each in values:
            self.value(each)

    def _function(self, function: FunctionType) -> None:
        if is_installed(function.__module__) and "<" not in function.__qualname__:
            self._put("function", str(function.__module__), function.__qualname__)
            return
        self._put("function")
        known = function.__globals__
        self._code(function.__code__, str(known.get("__package__") or ""))
        self.value(function.__defaults__)
        self.value(function.__kwdefaults__)
        for cell in function.__closure__ or ():
            with contextlib.suppress(ValueError):  # an empty cell
                self.value(cell.cell_contents)
        for name in sorted(set(_global_names(function.__code__)) & known.keys()):
            self._put(name)
            self.value(known[name])
        self._named(function.__dict__)

    def _named(self, values: Any) -> None:
        for name in sorted(values.keys() - _UNTOLD):
            self._put(name)
            self.value(values[name])

    def _class(self, kind: type) -> None:
        if is_installed(kind.__module__) and "<" not in kind.__qualname__:
            self._put("class", kind.__module__, kind.__qualname__)
            return
        self._values("class", kind.__bases__)
        self._named(vars(kind))

    def _instance(self, value: object) -> None:
        """By what pickling would keep of it."""
        kind = type(value)
        self._put("object")
        where = f"{kind.__module__}.{kind.__qualname__}"
        parts: Any = where
        if not where.startswith((*_OPAQUE, "holdfast.network.", "holdfast.stream.")):
            # What cannot be pickled, a lock for example, is told by its class.
            with contextlib.suppress(Exception):
                reduce = copyreg.dispatch_table.get(kind)
                parts = reduce(value) if reduce else value.__reduce_ex__(4)
        if isinstance(parts, str):
            self._put(where)
            self._class(kind)
            return
        for index, part in enumerate(parts):
            self.value(list(part) if index in (3, 4) and part is not None else part)

    # -- code ---------------------------------------------------------------------------

    def _code(self, code: CodeType, package: str) -> None:
        arguments = code.co_argcount + code.co_kwonlyargcount
        arguments += bool(code.co_flags & 4) + bool(code.co_flags & 8)  # *args, **kwargs
        self._put("code", str(code.co_argcount), str(code.co_posonlyargcount), str(code.co_flags))
        self._put(*code.co_varnames[:arguments], code.co_exceptiontable.hex())
        steps = list(_steps(code))
        for index, step in enumerate(steps):
            self._put(step.opname)
            if step.opcode in dis.hasconst:
                nested = isinstance(step.argval, CodeType)
                self._code(step.argval, package) if nested else self.value(step.argval)
            else:
                self._put(str(step.argval if step.opcode in _RESOLVED else step.arg))
            if step.opname == "IMPORT_NAME":
                level, names = (each.argval for each in steps[index - 2 : index])
                self._import(str(step.argval), int(level), names or (), package)

    def _import(self, name: str, level: int, names: tuple[str, ...], package: str) -> None:
        if level:
            name = importlib.util.resolve_name("." * level + name, package or "?")
        parents = [name[:at] for at, letter in enumerate(name) if letter == "."]
        for each in (*parents, name, *(f"{name}.{inner}" for inner in names if inner != "*")):
            self._module(each)

    def _module(self, name: str) -> None:
        """A module of the user's own: all its code, and that of the modules it imports."""
        if name in self._modules:
            return
        self._modules.add(name)
        if is_installed(name) or name == "__main__":
            self._put("module", name)
            return
        file = _file_of(name)
        if file is None:  # no module: a value of one, for example
            return
        self._put("module", name)
        if file.suffix != ".py":
            self._put(hashlib.sha256(file.read_bytes()).hexdigest())
            return
        is_package = file.name == "__init__.py"
        package = name if is_package else name.rpartition(".")[0]
        self._code(compile(file.read_bytes(), str(file), "exec", dont_inherit=True), package)


def _steps(code: CodeType) -> Iterator[dis.Instruction]:
    """The instructions of a code without those that only store a docstring or a line."""
    found = [each for each in dis.get_instructions(code) if each.opname != "EXTENDED_ARG"]
    untold = {
        at + before
        for at, each in enumerate(found)
        if each.opname == "STORE_NAME" and each.argval in _UNTOLD
        for before in (0, -1)
    }
    return (each for at, each in enumerate(found) if at not in untold)


def _global_names(code: CodeType) -> Iterator[str]:
    """The global names that a code and those within it read."""
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield str(step.argval)
        elif isinstance(step.argval, CodeType):
            yield from _global_names(step.argval)


def _file_of(name: str) -> Path | None:
    """The file of a module that is loaded or could be."""
    spec = getattr(sys.modules.get(name), "__spec__", None)
    if spec is None:
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError, AttributeError):
            return None
    if spec is None or spec.origin is None or not Path(spec.origin).is_file():
        return None
    file = Path(spec.origin)
    return None if is_library(file) else file
