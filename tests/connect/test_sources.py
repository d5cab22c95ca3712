"""Every source reads its rows, and a second reader goes on where the first stopped."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.connect.csv_source import read_csv
from holdfast.connect.directory_source import read_directory
from holdfast.connect.generator_source import generate, rate
from holdfast.connect.jsonl_source import read_jsonl
from holdfast.connect.parquet_source import read_parquet
from holdfast.connect.socket_source import read_socket
from holdfast.errors import InputError
from tests.connect.support import COLUMNS, read_all, read_in_two, values

SERVERS = [f"s{i}" for i in range(40)]


def csv_text(servers: list[str] = SERVERS) -> str:
    rows = [f"2024-01-01 00:00:{i:02},{name},0.5" for i, name in enumerate(servers)]
    return "\n".join(["at,server,cpu", *rows, ""])


def json_text(servers: list[str] = SERVERS) -> str:
    return "".join(
        f'{{"at": "2024-01-01 00:00:{i:02}", "server": "{name}", "cpu": 1}}\n'
        for i, name in enumerate(servers)
    )


def table(servers: list[str] = SERVERS) -> pa.Table:
    return pa.table(
        {
            "at": pa.array(np.arange(len(servers)) * 1_000_000).cast(pa.timestamp("us", "UTC")),
            "server": servers,
            "cpu": [0.5] * len(servers),
        }
    )


@pytest.mark.parametrize("stop_after", [1, 3])
def test_csv_goes_on_where_it_stopped(tmp_path: Path, stop_after: int) -> None:
    (tmp_path / "load.csv").write_text(csv_text())
    source = read_csv(tmp_path / "load.csv", block_bytes=100)
    first, rest = read_in_two(source, COLUMNS, stop_after)
    assert len(first) == stop_after
    assert values(first + rest, "server") == SERVERS
    assert values(rest, "server")[0] != "s0"


def test_csv_finds_columns_by_name_and_keeps_line_breaks_in_quotes(tmp_path: Path) -> None:
    text = 'cpu,other,server,at\n1,x,"two\nlines, ""quoted""",2024-01-01\n2,x,b,2024-01-02'
    (tmp_path / "load.csv").write_text(text)
    for block_bytes in (10, 50, 1000):
        reader = read_csv(tmp_path / "load.csv", block_bytes=block_bytes).open(COLUMNS, None, None)
        assert values(read_all(reader), "server") == ['two\nlines, "quoted"', "b"]


def test_csv_without_a_header_with_another_delimiter(tmp_path: Path) -> None:
    (tmp_path / "load.csv").write_text("2024-01-01;a;1\n")
    source = read_csv(tmp_path / "load.csv", header=False, delimiter=";")
    assert values(read_all(source.open(COLUMNS, None, None)), "server") == ["a"]


def test_csv_says_which_column_is_missing(tmp_path: Path) -> None:
    (tmp_path / "load.csv").write_text("at,host,cpu\n")
    with pytest.raises(InputError, match="has no column 'server'; its header names"):
        read_csv(tmp_path / "load.csv").open(COLUMNS, None, None)


def test_csv_that_shrank_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "load.csv").write_text(csv_text(["a"]))
    with pytest.raises(InputError, match="was replaced or cut"):
        read_csv(tmp_path / "load.csv").open(COLUMNS, {"offset": 5000}, None)


def test_a_followed_file_waits_for_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "load.jsonl"
    path.write_text('{"server": "a"}\n{"serv')
    reader = read_jsonl(path, follow=True).open(COLUMNS, None, None)
    chunk = reader.read()
    assert chunk is not None
    assert chunk.table["server"].to_pylist() == ["a"]
    assert reader.read() is None
    assert not reader.ended
    with path.open("a") as file:
        file.write('er": "b"}\n')
    chunk = reader.read()
    assert chunk is not None
    assert chunk.table["server"].to_pylist() == ["b"]
    reader.close()


@pytest.mark.parametrize("stop_after", [1, 5])
def test_json_lines_go_on_where_they_stopped(tmp_path: Path, stop_after: int) -> None:
    (tmp_path / "load.jsonl").write_text(json_text())
    source = read_jsonl(tmp_path / "load.jsonl", block_bytes=150)
    first, rest = read_in_two(source, COLUMNS, stop_after)
    assert values(first + rest, "server") == SERVERS


@pytest.mark.parametrize("stop_after", [1, 2, 5])
def test_parquet_goes_on_where_it_stopped(tmp_path: Path, stop_after: int) -> None:
    pq.write_table(table(), tmp_path / "load.parquet", row_group_size=15)
    source = read_parquet(tmp_path / "load.parquet", block_rows=6)
    first, rest = read_in_two(source, COLUMNS, stop_after)
    assert values(first + rest, "server") == SERVERS
    assert all(chunk.table.num_rows <= 6 for chunk in first + rest)


def test_parquet_says_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "load.parquet").write_text("no Parquet at all")
    with pytest.raises(InputError, match="is not a Parquet file"):
        read_parquet(tmp_path / "load.parquet").open(COLUMNS, None, None)
    pq.write_table(table().drop_columns(["cpu"]), tmp_path / "other.parquet")
    with pytest.raises(InputError, match="has no column 'cpu'"):
        read_parquet(tmp_path / "other.parquet").open(COLUMNS, None, None)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    for source in (read_csv("nowhere.csv"), read_jsonl("nowhere.csv"), read_parquet("nowhere.csv")):
        with pytest.raises(InputError, match=r"there is no file 'nowhere\.csv'"):
            source.open(COLUMNS, None, None)
    with pytest.raises(InputError, match="is not a file; for a directory use read_directory"):
        read_csv(tmp_path).open(COLUMNS, None, None)
    with pytest.raises(InputError, match="there is no directory"):
        read_directory(tmp_path / "none").open(COLUMNS, None, None)


def test_a_directory_is_read_by_name_each_file_once(tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_text(csv_text(["b1", "b2"]))
    (tmp_path / "a.jsonl").write_text(json_text(["a1"]))
    pq.write_table(table(["c1"]), tmp_path / "c.parquet")
    (tmp_path / ".hidden.csv").write_text(csv_text(["no"]))
    (tmp_path / "_temporary.csv").write_text(csv_text(["no"]))
    (tmp_path / "d.csv.tmp").write_text(csv_text(["no"]))
    reader = read_directory(tmp_path, follow=False).open(COLUMNS, None, None)
    assert values(read_all(reader), "server") == ["a1", "b1", "b2", "c1"]


def test_a_directory_that_grows_is_followed_across_restarts(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text(csv_text())
    source = read_directory(tmp_path, block_bytes=200)
    reader = source.open(COLUMNS, None, None)
    chunk = reader.read()
    assert chunk is not None
    first = [chunk]
    reader.close()
    (tmp_path / "0.csv").write_text(csv_text(["late"]))
    (tmp_path / "2.csv").write_text(csv_text(["new"]))
    reader = source.open(COLUMNS, reader.position, None)
    while (chunk := reader.read()) is not None:
        first.append(chunk)
    assert values(first, "server") == [*SERVERS, "late", "new"]
    assert not reader.ended
    again = source.open(COLUMNS, reader.position, None)
    assert again.read() is None


def test_a_broken_file_in_a_directory_is_one_dead_letter(tmp_path: Path) -> None:
    (tmp_path / "1.parquet").write_text("broken")
    (tmp_path / "2.csv").write_text(csv_text(["fine"]))
    chunks = read_all(read_directory(tmp_path, follow=False).open(COLUMNS, None, None))
    assert values(chunks, "server") == ["fine"]
    assert [reject.row for chunk in chunks for reject in chunk.rejects] == ["1.parquet"]


@pytest.mark.parametrize("kind", ["function", "list"])
def test_a_generator_goes_on_where_it_stopped(kind: str) -> None:
    tables = [table([name]) for name in SERVERS]

    def from_number(start: int) -> Iterator[pa.RecordBatch]:
        return (each.to_batches()[0] for each in tables[start:])

    source = generate(from_number if kind == "function" else tables)
    first, rest = read_in_two(source, COLUMNS, 7)
    assert values(first, "server") == SERVERS[:7]
    assert values(rest, "server") == SERVERS[7:]


def test_a_generator_that_fails_says_so() -> None:
    def broken(_: int) -> Iterator[pa.Table]:
        yield table(["a"])
        raise ZeroDivisionError("oh")

    with pytest.raises(InputError, match="the generator failed: ZeroDivisionError"):
        read_all(generate(broken).open(COLUMNS, None, None))
    with pytest.raises(InputError, match="expected an Arrow table or record batch, got dict"):
        read_all(generate([{}]).open(COLUMNS, None, None))


def test_a_rate_numbers_its_tuples_without_a_gap() -> None:
    columns = pa.schema([pa.field("at", pa.timestamp("us", "UTC")), pa.field("value", pa.int64())])
    source = rate(20_000, count=3000, start_us=0)
    first, rest = read_in_two(source, columns, 2)
    assert values(first + rest, "value") == list(range(3000))
    times = pa.concat_tables([chunk.table for chunk in first + rest])["at"].cast(pa.int64())
    assert times.to_pylist() == [i * 50 for i in range(3000)]


class Server:
    """Sends bytes to whoever connects, one connection after the other."""

    def __init__(self, *sends: bytes) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._sends = sends
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with self._listener:
            for data in self._sends:
                connection, _ = self._listener.accept()
                with connection:
                    connection.sendall(data)


def test_a_socket_is_read_to_its_end() -> None:
    server = Server(json_text().encode()[:-1])
    reader = read_socket("127.0.0.1", server.port).open(COLUMNS, None, None)
    assert values(read_all(reader), "server") == SERVERS


def test_what_a_socket_brought_survives_a_crash(tmp_path: Path) -> None:
    server = Server(json_text(["a", "b"]).encode(), json_text(["c"]).encode())
    source = read_socket("127.0.0.1", server.port)
    position = {"offset": 0}
    reader = source.open(COLUMNS, position, tmp_path)
    assert values(read_all(reader), "server") == ["a", "b"]
    # The process dies here, before a checkpoint that knows of these rows.
    again = source.open(COLUMNS, position, tmp_path)
    assert values(read_all(again), "server") == ["a", "b", "c"]


def test_a_socket_goes_on_in_its_journal(tmp_path: Path) -> None:
    server = Server(json_text(["a", "b"]).encode(), json_text(["c"]).encode())
    source = read_socket("127.0.0.1", server.port)
    reader = source.open(COLUMNS, None, tmp_path)
    assert values(read_all(reader), "server") == ["a", "b"]
    first_line = len(json_text(["a"]))
    again = source.open(COLUMNS, {"offset": first_line}, tmp_path)
    assert values(read_all(again), "server") == ["b", "c"]


def test_nobody_listening_is_said_plainly() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(InputError, match=f"cannot connect to 127.0.0.1:{port}"):
        read_socket("127.0.0.1", port).open(COLUMNS, None, None)
