"""The scripts behind the Makefile, run on a machine made of fake executables."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCRIPTS = ROOT / "scripts"


class Machine:
    """A PATH with the few tools the scripts call, and only the Javas and Pythons a test puts in."""

    def __init__(self, root: Path) -> None:
        self.bin = root / "bin"
        self.jvms = root / "jvm"
        self.apt_calls = root / "apt-calls"
        self.bin.mkdir()
        self.jvms.mkdir()
        for tool in (
            "bash",
            "cat",
            "chmod",
            "cp",
            "dirname",
            "env",
            "grep",
            "mkdir",
            "sed",
            "sleep",
            "sort",
        ):
            found = shutil.which(tool)
            assert found, f"{tool} is not on the PATH of this machine"
            (self.bin / tool).symlink_to(found)

    def executable(self, path: Path, body: str) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/bash\n{body}\n")
        path.chmod(0o755)
        return path

    def java(self, version: str, home: Path | None = None) -> Path:
        """Puts a Java into a home of its own and returns that home."""
        home = home or self.jvms / f"java-{version}"
        settings = f"    java.home = {home}\n    java.specification.version = {version}"
        self.executable(home / "bin" / "java", f"cat >&2 <<'END'\n{settings}\nEND")
        return home

    def apt(self, installs: str = "") -> None:
        """Puts in an apt-get that writes down what it is asked for, and a sudo to call it with."""
        on_install = f"case $1 in install) {installs or 'exit 100'};; esac"
        self.executable(self.bin / "apt-get", f'echo "$@" >> {self.apt_calls}\n{on_install}')
        self.executable(self.bin / "sudo", 'shift\nexec "$@"')

    def run(self, script: str, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
        env = {"PATH": str(self.bin), "JVM_DIR": str(self.jvms), **env}
        command = [str(SCRIPTS / script), *args]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=30)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.parametrize(
    ("version", "will_do"), [("1.8", False), ("11", False), ("17", True), ("21", True)]
)
def test_java_17_or_newer_is_taken_from_java_home(
    machine: Machine, tmp_path: Path, version: str, will_do: bool
) -> None:
    home = machine.java(version, tmp_path / "chosen")
    found = machine.run("find-java", JAVA_HOME=str(home))
    assert found.stdout == (f"{home}\n" if will_do else "")
    assert (found.returncode == 0) is will_do
    assert ("Spark needs 17 or newer" in found.stderr) is not will_do


def test_java_on_the_path_serves_when_java_home_is_too_old(
    machine: Machine, tmp_path: Path
) -> None:
    old = machine.java("11", tmp_path / "old")
    home = machine.java("17", tmp_path / "new")
    (machine.bin / "java").symlink_to(home / "bin" / "java")
    found = machine.run("find-java", JAVA_HOME=str(old))
    assert found.stdout == f"{home}\n"
    assert "is Java 11" in found.stderr


def test_a_broken_java_on_the_path_is_passed_over(machine: Machine) -> None:
    machine.executable(machine.bin / "java", "exit 1")
    home = machine.java("17")
    assert machine.run("find-java").stdout == f"{home}\n"


def test_of_the_installed_javas_the_oldest_that_will_do_is_taken(machine: Machine) -> None:
    for version in ("11", "25", "21"):
        machine.java(version)
    assert machine.run("find-java").stdout == f"{machine.jvms / 'java-21'}\n"


def test_without_java_and_apt_a_message_says_what_to_install(machine: Machine) -> None:
    ran = machine.run("run", "bash", "-c", "echo ran")
    assert ran.returncode == 1
    assert ran.stdout == ""
    assert ["sudo", "apt-get", "install", "-y", "openjdk-17-jre-headless"][1:] == (
        re.findall(r"&& sudo (.*)", ran.stderr)[0].split()
    )


def test_when_apt_fails_the_message_comes_all_the_same(machine: Machine) -> None:
    machine.apt()
    ran = machine.run("run", "bash", "-c", "echo ran")
    assert ran.returncode == 1
    assert "install -y openjdk-17-jre-headless" in ran.stderr
    assert "openjdk-21-jre-headless" in machine.apt_calls.read_text()


def test_java_is_installed_through_apt_and_handed_on(machine: Machine, tmp_path: Path) -> None:
    packaged = machine.java("17", tmp_path / "package")
    home = machine.jvms / "java-17"
    machine.apt(
        installs=f"mkdir -p {home}/bin; "
        f"sed 's|{packaged}|{home}|' {packaged}/bin/java > {home}/bin/java; "
        f"chmod +x {home}/bin/java"
    )
    ran = machine.run("run", "bash", "-c", 'echo "$JAVA_HOME $PYSPARK_PYTHON"', SPARK_HOME="x")
    assert ran.stdout == f"{home} {ROOT}/.venv/bin/python\n"
    calls = machine.apt_calls.read_text().splitlines()
    assert calls[0].startswith("update")
    assert calls[1].endswith("openjdk-17-jre-headless")
    assert len(calls) == 2


def test_a_python_older_than_3_11_is_passed_over(machine: Machine) -> None:
    machine.executable(machine.bin / "python3", "exit 1")
    assert machine.run("find-python").returncode == 1
    new = machine.executable(machine.bin / "python3.12", "exit 0")
    assert machine.run("find-python").stdout == f"{new}\n"


def test_an_unknown_benchmark_gets_the_list(machine: Machine) -> None:
    for name in ("", "no-such-benchmark"):
        ran = machine.run("bench", name)
        assert ran.returncode == 2
        assert ran.stdout == ""
        assert "Available:" in ran.stderr


def test_a_command_that_takes_long_is_told_while_it_runs(machine: Machine) -> None:
    ran = machine.run("progress", "Doing it", "sleep", "2", PROGRESS_SECONDS="0.1")
    assert ran.returncode == 0
    assert re.match(r"Doing it\n  Doing it: \d s so far\n", ran.stderr)
    assert machine.run("progress", "It fails", "bash", "-c", "exit 3").returncode == 3


def test_everything_that_sets_up_is_told_while_it_runs() -> None:
    script = (SCRIPTS / "venv").read_text().replace("\\\n", " ")
    steps = [line for line in script.splitlines() if re.search(r"-m (pip .*install|venv) --", line)]
    assert len(steps) == 2
    for line in steps:
        assert "scripts/progress" in line, line


def test_there_is_a_fast_tier_and_one_with_everything() -> None:
    def recipe(target: str) -> str:
        command = ["make", "--dry-run", "--always-make", target]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout

    fast, usual, everything = recipe("test-fast"), recipe("test"), recipe("test-all")
    for part in ("core", "simulation", "log", "connect", "network"):
        assert f"tests/{part}" in fast
        assert list((ROOT / "tests" / part).glob("test_*.py"))
    assert "-m 'not jobs and not slow and not thorough'" in fast
    assert "-m 'not thorough'" in usual
    assert "thorough" not in everything
    assert "holdfast prepare" not in fast
    assert "HOLDFAST_EXAMPLES=25" in everything
    assert "scripts/bench mutations" in everything


FAILS_THEN_WAITS = """
import time
from pathlib import Path

def test_fails():
    assert 1 == 2

def test_waits():
    while not Path(__file__).with_name("told").exists():
        time.sleep(0.05)
"""


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("processes", ["-n0", "-n2"])
def test_a_failure_has_its_name_before_the_run_has_ended(tmp_path: Path, processes: str) -> None:
    test = tmp_path / "test_it.py"
    test.write_text(FAILS_THEN_WAITS)
    command = [sys.executable, "-m", "pytest", "-q", processes, "--dist=loadfile", str(test)]
    command += ["-p", "tests.conftest", "-p", "no:cacheprovider", "-c", "pyproject.toml"]
    command += [f"--rootdir={tmp_path}", f"--basetemp={tmp_path / 'base'}"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        try:
            told = next(line for line in run.stdout if line.startswith("FAILED"))
        finally:
            (tmp_path / "told").touch()  # else it would wait for ever
        assert "1 failed, 1 passed" in run.stdout.read()
    assert told == "FAILED test_it.py::test_fails (call): assert 1 == 2\n"


@pytest.mark.parametrize(
    "name",
    [
        "requirements-build.txt",
        "requirements.txt",
        "requirements-dev.txt",
        "requirements-flink.txt",
    ],
)
def test_every_requirement_is_pinned_with_hashes_and_names_no_address(name: str) -> None:
    text = (ROOT / name).read_text()
    requirements = text.replace("\\\n", "").splitlines()
    for line in requirements:
        if line.strip() and not line.lstrip().startswith("#"):
            assert re.match(r"[a-z0-9.-]+==\S+ .*--hash=sha256:[0-9a-f]{64}", line), line
    assert "://" not in text
    assert "--index-url" not in text
    assert "--find-links" not in text


def test_what_runs_holdfast_is_pinned_alike_for_users_and_developers() -> None:
    def pins(name: str) -> set[str]:
        return set(re.findall(r"^\S+==\S+", (ROOT / name).read_text(), flags=re.MULTILINE))

    assert pins("requirements.txt") <= pins("requirements-dev.txt")
