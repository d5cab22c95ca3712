"""``holdfast server --networks DIR`` takes no code, by whatever way it is sent."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.cluster.server import Server
from holdfast.deployment import Deployment, SecuritySpec, load_deployment
from holdfast.deployment_checks import plain_name
from holdfast.errors import HoldfastError
from holdfast.flight.peers import call
from holdfast.plans.addresses import Addresses
from holdfast.plans.plan import plan_path, read_plan
from tests.processes.planned import NETWORK, planned

DEPLOYMENT = """
name = "hosting"
network = "network.py"
files = ["names.py"]
[servers.east]
listen = "127.0.0.1:4700"
[sources.load]
listen = "east"
[fragments.main]
[clients.recorder]
output = "out"
sink = "jsonl:out.jsonl"
"""
PROOF = "from pathlib import Path; Path('proof').touch()\n"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("no-code")


@pytest.fixture(scope="module")
def deployment(base: Path) -> Deployment:
    here = base / "here"
    here.mkdir()
    (here / "names.py").write_text("SOURCE = 'load'\n")
    (base / "token").write_text("secret")
    (base / "token").chmod(0o600)
    found = planned(here, DEPLOYMENT)
    ask = {"nodes": {"entry-load": 4711}, "metrics": {"entry-load": 4712}}
    Addresses.choose(found, lambda server, nodes, processes: ask)
    return found


@pytest.fixture(scope="module")
def networks(base: Path) -> Path:
    """The files the server's owner trusts."""
    own = base / "networks"
    own.mkdir()
    (own / "network.py").write_text(NETWORK)
    (own / "names.py").write_text("SOURCE = 'load'\n")
    return own


class Hosting:
    """A server, and somebody who may operate it."""

    def __init__(self, server: Server, deployment: Deployment, data: Path, secret: Path) -> None:
        self._server = server
        self._security = SecuritySpec(token_file=secret).read()
        self.directory = data / "hosting"
        files = {name: (deployment.path.parent / name).read_bytes() for name in FILES}
        self.asked: dict[str, Any] = {
            "deployment": "hosting",
            "tables": {
                "sources": {"load": {"listen": "east"}},
                "servers": {"east": {"listen": "127.0.0.1:4700"}},
                "fragments": {"main": {}},
                "files": ["names.py"],
            },
            "network": "network.py",
            "files": {name: base64.b64encode(data).decode() for name, data in files.items()},
            "plan": plan_path(deployment).read_text(),
            "addresses": (deployment.data / "addresses.json").read_text(),
            "processes": ["entry-load"],
        }

    def deploy(self, tables: dict[str, Any] | None = None, **changed: Any) -> None:
        asked = {**self.asked, **changed}
        asked["tables"] = {**asked["tables"], **(tables or {})}
        place = self._security.location("127.0.0.1", self._server.port)
        call(place, self._security, "holdfast", "deploy", asked, timeout_s=20.0)

    def stop(self) -> None:
        place = self._security.location("127.0.0.1", self._server.port)
        call(place, self._security, "holdfast", "stop", {"deployment": "hosting"}, timeout_s=30.0)


FILES = ("network.py", "names.py")


@pytest.fixture(scope="module")
def server(base: Path, deployment: Deployment, networks: Path) -> Iterator[Server]:
    secret = SecuritySpec(token_file=base / "token")
    server = Server("127.0.0.1", 0, base / "there", secret, networks)
    yield server
    server._listener.close()
    for children in server._hosted.values():
        children.stop()


@pytest.fixture
def hosting(server: Server, deployment: Deployment, base: Path) -> Iterator[Hosting]:
    """The server with nothing in its directory."""
    yield Hosting(server, deployment, base / "there", base / "token")
    shutil.rmtree(base / "there" / "hosting", ignore_errors=True)


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_what_it_has_it_runs(hosting: Hosting) -> None:
    hosting.deploy()
    assert (hosting.directory / "hosted.json").exists()
    hosting.stop()


@pytest.mark.parametrize(
    "path", ["holdfast.py", "pandas.py", "names/__init__.py", "sitecustomize.py", "x.pth", "a.zip"]
)
def test_no_other_file_is_taken(hosting: Hosting, path: str) -> None:
    files = {**hosting.asked["files"], path: encoded(PROOF)}
    with pytest.raises(Exception, match=f"networks of its own only; it has no {path}"):
        hosting.deploy(files=files)
    assert not (hosting.directory / path).exists()
    assert not (hosting.directory / "hosted.json").exists()


@pytest.mark.parametrize("path", FILES)
def test_files_of_its_own_names_are_its_own(hosting: Hosting, path: str) -> None:
    files = {**hosting.asked["files"], path: encoded(PROOF)}
    with pytest.raises(Exception, match=f"its {path} is not the one that was sent"):
        hosting.deploy(files=files)


@pytest.mark.parametrize(
    "spark",
    [
        {"config": {"spark.driver.extraJavaOptions": "-javaagent:/evil.jar"}},
        {"config": {"spark.jars": "http://evil/x.jar"}},
        {"config": {"spark.pyspark.python": "/evil"}},
        {"config": {"spark.sql.extensions": "evil.Class"}},
        {"config": {"spark.driver.memory": "1g -XX:OnError=evil"}},
        {"config": {"spark.authenticate": "false"}},
        {"master": "spark://evil:7077"},
    ],
)
def test_spark_is_told_no_code(hosting: Hosting, spark: dict[str, Any]) -> None:
    with pytest.raises(Exception, match="this server takes no code"):
        hosting.deploy({"spark": spark})
    assert not (hosting.directory / "hosted.json").exists()


def test_no_code_is_in_the_name_of_a_master(hosting: Hosting) -> None:
    with pytest.raises(Exception, match=r"spark\.master: .* got 'local\[2\]; evil'"):
        hosting.deploy({"spark": {"master": "local[2]; evil"}})
    assert not (hosting.directory / "hosted.json").exists()


def test_spark_is_told_sizes(hosting: Hosting) -> None:
    hosting.deploy({"spark": {"config": {"spark.driver.memory": "2g"}, "master": "local[4]"}})
    hosting.stop()


@pytest.mark.parametrize(
    "sink",
    [
        "jsonl:/etc/profile",
        "jsonl:../../networks/network.py",
        "jsonl:../x.jsonl",
        "jsonl:network.py",
        "jsonl:pandas.PY",
        "jsonl:evil.pth",
        "jsonl:deployment.json",
        "jsonl:hosted.json",
        "parquet:/tmp/x",
        "parquet:file:///tmp/x",
        "delta:file:/tmp/x",
        "iceberg:shop.busy,catalog=sqlite:////tmp/x.db,warehouse=w",
        "sqlite:../../x.db",
        "jsonl:.profile",
        "jsonl:",
    ],
)
def test_sinks_write_below_the_deployment_and_no_code(hosting: Hosting, sink: str) -> None:
    clients = {"recorder": {"output": "out", "sink": sink}}
    with pytest.raises(Exception, match=r"clients\.recorder\.sink is a file below"):
        hosting.deploy({"clients": clients})


def test_sources_read_below_the_deployment(hosting: Hosting) -> None:
    sources = {"load": {"listen": "east", "from": "csv:/etc/passwd"}}
    with pytest.raises(Exception, match=r"sources\.load\.from is a file below"):
        hosting.deploy({"sources": sources})


@pytest.mark.parametrize("name", ["../../x", "a/b", ".x", "", "x=y", "a\nb", "a" * 200])
def test_names_are_no_paths(hosting: Hosting, name: str) -> None:
    assert not plain_name(name)
    for tables in (
        {"sources": {name: {"listen": "east"}}},
        {"fragments": {"main": {"colocate": name}}},
        {"clients": {name: {"output": "out"}}},
    ):
        with pytest.raises(Exception, match="files are named after it"):
            hosting.deploy(tables)
    with pytest.raises(Exception, match="has no process"):
        hosting.deploy(processes=[name])


def test_streams_are_no_paths(tmp_path: Path) -> None:
    (tmp_path / "names.py").write_text("")
    deployment = planned(tmp_path, DEPLOYMENT)
    found = json.loads(plan_path(deployment).read_text())
    found["fragments"]["main"]["outputs"][0]["stream"] = "../../../out"
    plan_path(deployment).write_text(json.dumps(found))
    with pytest.raises(HoldfastError, match="cannot be a stream"):
        read_plan(deployment)


@pytest.mark.parametrize("path", ["pandas.py", "names/__init__.py"])
def test_what_an_earlier_server_took_is_not_run(hosting: Hosting, path: str) -> None:
    hosting.deploy()
    hosting.stop()
    left = hosting.directory / path
    left.parent.mkdir(exist_ok=True)
    left.write_text(PROOF)
    with pytest.raises(Exception, match=f"it has no {path}"):
        hosting.deploy()


def test_what_python_compiled_is_not_believed(hosting: Hosting) -> None:
    hosting.deploy()
    hosting.stop()
    compiled = hosting.directory / "__pycache__"
    compiled.mkdir(exist_ok=True)
    (compiled / "names.cpython-311.pyc").write_bytes(b"anything")
    hosting.deploy()
    hosting.stop()
    assert not compiled.exists()


def test_existing_names_go_on_to_be_right() -> None:
    for name in ("load", "entry-load", "main-1", "main.out", "Server 7", "übersicht", "a_b"):
        assert plain_name(name)
    example = Path(__file__).parents[2] / "examples" / "deployment" / "two-machines.toml"
    assert load_deployment(example).processes
