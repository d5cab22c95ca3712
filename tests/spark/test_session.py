"""Nobody else on the machine can use what a Spark session opens."""

from __future__ import annotations

import socket
import stat
import struct
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession

from holdfast.spark import lookup_memory, session, sockets
from holdfast.spark.sockets import socket_directory

# A request as Spark's own processes send it to each other: type 3, number 7, and a body that is
# unpacked as a Java object unless a secret is asked for first.
BODY = b"\x00" * 40
REQUEST = struct.pack(">qbqi", 8 + 1 + 8 + 4 + len(BODY), 3, 7, len(BODY)) + BODY


def processes() -> list[psutil.Process]:
    own = psutil.Process()
    return [own, *own.children(recursive=True)]


def answer(port: int) -> bytes:
    """What comes back from a port to somebody without the secret; nothing is an answer, too."""
    with socket.create_connection(("127.0.0.1", port), timeout=5.0) as connection:
        connection.sendall(REQUEST)
        connection.settimeout(1.0)
        try:
            return connection.recv(4096)
        except TimeoutError:
            return b""


def test_spark_s_ports_ask_for_a_secret(spark: SparkSession) -> None:
    assert spark.sparkContext.getConf().get("spark.authenticate") == "true"
    ports = {
        each.laddr.port
        for process in processes()
        if process.name() == "java"
        for each in process.net_connections(kind="inet")
        if each.status == psutil.CONN_LISTEN
    }
    answers = {port: answer(port) for port in ports}
    # One of them is Py4J's, which has a secret of its own and does not speak to us at all.
    assert sum(b"Expected SaslMessage" in each for each in answers.values()) >= 2, answers
    for each in answers.values():
        assert b"ObjectInputStream" not in each
        assert not each or b"Expected SaslMessage" in each or b"Auth" in each, each


def test_sockets_of_workers_are_in_a_private_directory(spark: SparkSession) -> None:
    assert spark.range(4).rdd.map(lambda row: int(row[0])).sum() == 6  # there are workers now
    directory = spark.sparkContext.getConf().get("spark.python.unix.domain.socket.dir")
    assert directory is not None
    found = {
        Path(str(each.laddr))
        for process in processes()
        for each in process.net_connections(kind="unix")
        if str(each.laddr).endswith(".sock")
    }
    assert found
    assert {path.parent for path in found} == {Path(directory)}
    assert stat.S_IMODE(Path(directory).stat().st_mode) == 0o700


def test_sockets_are_below_the_node_s_directory_if_their_names_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "_LONGEST", 200)
    made = socket_directory(tmp_path / "node")
    assert made == tmp_path / "node" / "sockets"
    (made / ".left.sock").touch()
    assert list(socket_directory(tmp_path / "node").iterdir()) == []

    # Names fit into the temporary directory, and not below a node's of a long name.
    room = len("/holdfast-4294967295-0123456789abcdef")
    monkeypatch.setattr(sockets, "_LONGEST", len(str(tmp_path)) + room)
    node = tmp_path / ("n" * room)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    short = socket_directory(node)
    (short / ".left.sock").touch()
    assert short.parent == tmp_path
    assert socket_directory(node) == short, "killed lives leave one directory only"
    assert list(short.iterdir()) == []
    for each in (made, short):
        assert stat.S_IMODE(each.stat().st_mode) == 0o700


def test_the_bound_for_lookups_reaches_workers(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"spark.executorEnv.{lookup_memory.VARIABLE}"
    most_bytes = lookup_memory.MEMORY.most_bytes
    assert spark.sparkContext.getConf().get(name) == str(most_bytes >> 20)
    monkeypatch.setattr(lookup_memory.MEMORY, "most_bytes", most_bytes)
    assert session._lookup_memory("77") == {name: "77"}
    assert lookup_memory.MEMORY.most_bytes == 77 << 20
