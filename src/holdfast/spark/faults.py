"""Why a Spark job failed: what was raised, in a line, and whether the query's own code did."""

from __future__ import annotations

import builtins
import errno
import re
import sysconfig
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, PythonException

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<name>.+)')
_CAUSE = re.compile(r"(?:SparkException|Error|Exception): (?P<what>[^\n]+)")
# Frames of ours and of Spark's; a user's files may lie below a directory "holdfast", too.
_OWN = ("/holdfast/spark/", "/holdfast/disk.py", "/pyspark/", "pyarrow/")
# Frames below which somebody's files may lie, too: those of packages, but not these.
_PYTHON, _PACKAGES = sysconfig.get_path("stdlib") + "/", ("/site-packages/", "/dist-packages/")
_ERRNO = re.compile(r"\[Errno (\d+)\]")
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}
_STATE = re.compile(r"\s*SQLSTATE: \w+\s*$")


def is_user_code(error: BaseException) -> bool:
    """Whether the error belongs to the query and its input, so that it comes again anywhere.

    Spark names such errors: what a Python function raised, a division by zero, a text that is no
    number. A worker that was killed, or a JVM that is gone, has no such name. A disk on which a
    worker has no room for state or results, and memory it does not get, are not the query's either.
    """
    if not isinstance(error, PySparkException) or error.getCondition() is None:
        return False
    return not (isinstance(error, PythonException) and _is_of_the_machine(str(error)))


def is_no_room(error: BaseException) -> bool:
    """Whether a disk is full, here or where a worker is."""
    if isinstance(error, PythonException):
        text = str(error)
        return _is_of_the_machine(text) and int((_ERRNO.findall(text) or "0")[-1]) in _NO_ROOM
    return isinstance(error, OSError) and error.errno in _NO_ROOM


def explain_job(error: BaseException) -> str:
    """The error in a line: what was raised, and where in the user's own files."""
    text = str(error).strip()
    if isinstance(error, PythonException):
        return _explain_python(text)
    if isinstance(error, Py4JJavaError):
        found = _CAUSE.findall(text)
        return found[-1].strip() if found else _first_line(text)
    return f"{type(error).__name__}: {_first_line(text)}"


def _is_of_the_machine(text: str) -> bool:
    """Whether code of ours could not write, read or have memory, with nobody else's in between."""
    lines = _lines(text)
    name = lines[-1].strip().partition(":")[0].rpartition(".")[2] if lines else ""
    kind = getattr(builtins, name, None)
    known = isinstance(kind, type) and issubclass(kind, OSError | MemoryError)
    return (known or name == "ArrowMemoryError") and not _frames_of_others(lines)


def _explain_python(text: str) -> str:
    lines = _lines(text)
    raised = lines[-1].strip() if lines else "a Python function raised"
    theirs = _frames_of_others(lines)
    if not theirs:
        return raised
    last = theirs[-1]
    return f"{raised} ({Path(last['file']).name}, line {last['line']}, in {last['name'].strip()})"


def _lines(text: str) -> list[str]:
    return [line for line in _STATE.sub("", text).splitlines() if line.strip()]


def _frames_of_others(lines: list[str]) -> list[re.Match[str]]:
    """Where an error came through code that is neither ours nor that of what we stand on."""
    frames = [match for match in map(_FRAME.search, lines) if match is not None]
    return [each for each in frames if not _is_below_us(each["file"])]


def _is_below_us(file: str) -> bool:
    packaged = any(each in file for each in _PACKAGES)
    return any(each in file for each in _OWN) or (file.startswith(_PYTHON) and not packaged)


def _first_line(text: str) -> str:
    return text.splitlines()[0] if text else "?"
