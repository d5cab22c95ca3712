"""What a killed JVM leaves lies in a directory of its own, which the next life empties."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from holdfast.spark.scratch import java_option, scratch_in

SCRIPT = """
import sys
from pathlib import Path
from holdfast.spark.session import get_session
spark = get_session("local[1]", None, Path(sys.argv[1]))
print(spark.sparkContext.parallelize(range(10), 1).map(lambda each: each + 1).sum(), flush=True)
input()
"""


@pytest.mark.thorough
def test_a_killed_driver_leaves_nothing_in_the_common_directory(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory() as common:
        look_at_what_is_left(Path(common), tmp_path / "own")


def test_what_a_crashing_jvm_writes_stays_in_the_process_s_directory(tmp_path: Path) -> None:
    assert f"-XX:ErrorFile={tmp_path}/java-crash.log" in java_option(tmp_path / "spark")
    spaced = java_option(tmp_path / "a b" / "spark")
    assert f'"-XX:ErrorFile={tmp_path}/a b/java-crash.log"' in spaced


def look_at_what_is_left(common: Path, own: Path) -> None:
    environment = {
        **os.environ,
        "TMPDIR": str(common),
        "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={common}",
    }
    running = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(own)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert running.stdout is not None
    try:
        assert running.stdout.readline() == b"55\n"
    finally:
        os.killpg(running.pid, signal.SIGKILL)
        running.communicate(timeout=30)
    left = [each.name for each in common.iterdir() if not each.name.startswith("holdfast-")]
    assert left == []
    assert any(each.name.startswith("blockmgr-") for each in (own / "spark").iterdir())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(common))
        assert list(scratch_in(own).iterdir()) == []
    tempfile.tempdir = None
