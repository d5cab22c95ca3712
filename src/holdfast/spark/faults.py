"""Why a Spark job failed: what was raised, in a line, and whether the query's own code did."""

from __future__ import annotations

import re
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, PythonException

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<name>.+)')
_CAUSE = re.compile(r"(?:SparkException|Error|Exception): (?P<what>[^\n]+)")
# Frames of ours and of Spark's; a user's files may lie below a directory "holdfast", too.
_OWN = ("/holdfast/spark/", "/pyspark/")
_STATE = re.compile(r"\s*SQLSTATE: \w+\s*$")


def is_user_code(error: BaseException) -> bool:
    """Whether the error belongs to the query and its input, so that it comes again anywhere.

    Spark names such errors: what a Python function raised, a division by zero, a text that is no
    number. A worker that was killed, or a JVM that is gone, has no such name.
    """
    return isinstance(error, PySparkException) and error.getCondition() is not None


def explain_job(error: BaseException) -> str:
    """The error in a line: what was raised, and where in the user's own files."""
    text = str(error).strip()
    if isinstance(error, PythonException):
        return _explain_python(text)
    if isinstance(error, Py4JJavaError):
        found = _CAUSE.findall(text)
        return found[-1].strip() if found else _first_line(text)
    return f"{type(error).__name__}: {_first_line(text)}"


def _explain_python(text: str) -> str:
    lines = [line for line in _STATE.sub("", text).splitlines() if line.strip()]
    raised = lines[-1].strip() if lines else "a Python function raised"
    frames = [match for match in map(_FRAME.search, lines) if match is not None]
    theirs = [each for each in frames if not any(own in each["file"] for own in _OWN)]
    if not theirs:
        return raised
    last = theirs[-1]
    return f"{raised} ({Path(last['file']).name}, line {last['line']}, in {last['name'].strip()})"


def _first_line(text: str) -> str:
    return text.splitlines()[0] if text else "?"
