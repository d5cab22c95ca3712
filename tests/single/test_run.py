"""Runs of one network: whole, in pieces, over input that grows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from holdfast.connect.callback_sink import call
from holdfast.connect.csv_source import read_csv
from holdfast.connect.generator_source import generate, rate
from holdfast.connect.jsonl_sink import write_jsonl
from holdfast.connect.jsonl_source import read_jsonl
from holdfast.connect.parquet_sink import write_parquet
from holdfast.errors import InputError, StateError
from holdfast.network import Network
from holdfast.single.reports import Observer, RunSummary
from holdfast.single.run import run
from holdfast.windows import window
from tests.single.support import StopAfter, monitoring, rows, write_load, write_pings

SECONDS = 40
BAD = 8  # rows of write_load that do not fit the schema


@pytest.fixture(scope="module")
def network(spark: SparkSession) -> Network:
    return monitoring(spark)


@pytest.fixture(scope="module")
def whole(network: Network, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of one uninterrupted run."""
    directory = tmp_path_factory.mktemp("whole")
    write_load(directory / "load.csv", SECONDS)
    write_pings(directory / "pings.jsonl", SECONDS)
    summary = run_in(directory, network, state=None, block_bytes=1 << 20)
    assert summary.finished
    assert summary.dead_letters == BAD
    assert summary.tuples_in == SECONDS * 21 - BAD
    return directory


def run_in(
    directory: Path,
    network: Network,
    *,
    observer: Observer | None = None,
    state: str | None = "state",
    block_bytes: int = 1500,
    **options: object,
) -> RunSummary:
    return run(
        network,
        {
            "load": read_csv(directory / "load.csv", lateness="5 s", block_bytes=block_bytes),
            "pings": read_jsonl(directory / "pings.jsonl", block_bytes=block_bytes),
        },
        {
            "busy": write_jsonl(directory / "busy.jsonl"),
            "both": write_jsonl(directory / "both.jsonl"),
        },
        state=directory / state if state else None,
        dead_letters=None if state else directory / "dead-letters.jsonl",
        observer=observer or Observer(),
        advance_tuples=100,
        **options,  # type: ignore[arg-type]
    )


def assert_same(directory: Path, whole: Path) -> None:
    for name in ("busy.jsonl", "both.jsonl"):
        assert (directory / name).read_bytes() == (whole / name).read_bytes()
    letters = directory / "state" / "dead-letters.jsonl"
    assert letters.read_bytes() == (whole / "dead-letters.jsonl").read_bytes()


def test_one_run_flushes_every_window(whole: Path) -> None:
    busy, both = rows(whole / "busy.jsonl"), rows(whole / "both.jsonl")
    assert [row["seq"] for row in busy] == list(range(len(busy)))
    assert {row["window"]["start"][14:19] for row in busy} == {"00:00", "00:10", "00:20", "00:30"}
    assert sum(row["readings"] for row in busy) > SECONDS * 8
    assert len(both) > SECONDS
    assert [row["stime"] for row in both] == sorted(row["stime"] for row in both)


def test_stopped_and_continued_runs_give_the_output_of_one(
    network: Network, whole: Path, tmp_path: Path
) -> None:
    write_load(tmp_path / "load.csv", SECONDS)
    write_pings(tmp_path / "pings.jsonl", SECONDS)
    for advances in (1, 2, 3):
        summary = run_in(tmp_path, network, observer=StopAfter(advances))
        assert not summary.finished
    summary = run_in(tmp_path, network, checkpoint_interval="1 ms")
    assert summary.finished
    assert_same(tmp_path, whole)
    assert summary.tuples_in == SECONDS * 21 - BAD
    assert summary.tuples_out["busy"] == len(rows(whole / "busy.jsonl"))
    again = run_in(tmp_path, network)
    assert again.advances == 0
    assert again.tuples_out == summary.tuples_out
    assert_same(tmp_path, whole)


def test_input_that_grows_after_the_end_gives_the_output_of_one_run(
    network: Network, whole: Path, tmp_path: Path
) -> None:
    write_load(tmp_path / "load.csv", 15)
    write_pings(tmp_path / "pings.jsonl", 15)
    assert run_in(tmp_path, network).finished
    write_load(tmp_path / "load.csv", SECONDS - 15, first=15)
    write_pings(tmp_path / "pings.jsonl", SECONDS - 15, first=15)
    assert run_in(tmp_path, network).finished
    assert_same(tmp_path, whole)


def test_parquet_and_callback_get_the_same_tuples(network: Network, whole: Path) -> None:
    got: list[pa.Table] = []
    run(
        network,
        {
            "load": read_csv(whole / "load.csv", lateness="5 s", block_bytes=3000),
            "pings": read_jsonl(whole / "pings.jsonl"),
        },
        {"busy": write_parquet(whole / "parquet"), "both": call(got.append)},
        dead_letters=whole / "other.jsonl",
        observer=Observer(),
        advance_tuples=200,
    )
    busy = pq.read_table(whole / "parquet").to_pylist()
    assert [row["cpu"] for row in busy] == [row["cpu"] for row in rows(whole / "busy.jsonl")]
    both = pa.concat_tables(got)
    assert both.column_names == ["seq", "stime", "server", "cpu", "ms"]
    assert both["ms"].to_pylist() == [row["ms"] for row in rows(whole / "both.jsonl")]


def test_live_sources_with_arrival_time(spark: SparkSession, tmp_path: Path) -> None:
    network = Network("live", bucket="100 ms", spark=spark)
    network.source("numbers", "at timestamp, value bigint").filter("value % 2 = 0").output("even")
    got: list[pa.Table] = []
    summary = run(
        network,
        {"numbers": rate(2000, count=1000)},
        {"even": call(got.append)},
        state=tmp_path / "state",
        observer=Observer(),
    )
    assert summary.finished
    assert pa.concat_tables(got)["value"].to_pylist() == list(range(0, 1000, 2))


def test_the_wrong_state_directory_is_refused(
    network: Network, spark: SparkSession, whole: Path, tmp_path: Path
) -> None:
    write_load(tmp_path / "load.csv", 2)
    write_pings(tmp_path / "pings.jsonl", 2)
    run_in(tmp_path, network)
    other = monitoring(spark, threshold=0.6)
    with pytest.raises(StateError, match=r"(?s)another query.*was  .*0\.5 .*now  .*0\.6 "):
        run_in(tmp_path, other)
    (tmp_path / "load2.csv").write_text("at,server,cpu\n")
    with pytest.raises(StateError, match=r"source 'load' was bound to CsvSource load\.csv .* now"):
        run(
            network,
            {"load": read_csv(tmp_path / "load2.csv"), "pings": read_jsonl("pings.jsonl")},
            {"busy": write_jsonl("busy.jsonl"), "both": write_jsonl("both.jsonl")},
            state=tmp_path / "state",
        )
    with pytest.raises(StateError, match=r"output 'busy' was bound to JsonLinesSink busy\.jsonl"):
        run(network, {"load": generate([])}, {}, state=tmp_path / "state")
    with pytest.raises(StateError, match="has other files in it and is no state directory"):
        run_in(tmp_path, network, state=".")


def test_names_that_do_not_fit_are_explained(network: Network, tmp_path: Path) -> None:
    source = generate([])
    with pytest.raises(InputError, match=r"has no source 'lode'; it has \['load', 'pings'\]"):
        run(network, {"lode": source})
    with pytest.raises(InputError, match="source 'pings' of network 'monitoring' is bound to"):
        run(network, {"load": source})
    with pytest.raises(InputError, match="has no output 'idle'"):
        run(network, {"load": source, "pings": source}, {"idle": write_jsonl(tmp_path / "x")})
    with pytest.raises(InputError, match="source 'load': there is no file 'nowhere'"):
        run(network, {"load": read_csv("nowhere"), "pings": source})


def test_a_query_that_computes_something_else_does_not_go_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Names, types and columns are those of the first one."""
    (tmp_path / "numbers.jsonl").write_text('{"at": "2024-01-01T00:00:00Z", "n": 1}\n')

    def run_with(aggregate: str) -> RunSummary:
        network = Network("sums", bucket="1 second", spark=spark)
        numbers = network.source("numbers", "at timestamp, n bigint", stime="at")
        numbers.groupBy(window("10 seconds")).agg(f"{aggregate} AS total").output("sums")
        return run(
            network,
            {"numbers": read_jsonl(tmp_path / "numbers.jsonl")},
            {"sums": write_jsonl(tmp_path / "sums.jsonl")},
            state=tmp_path / "state",
            observer=Observer(),
        )

    assert run_with("sum(n)").finished
    for aggregate, told in (("sum(n * 100)", r"\* "), ("max(n)", "max")):
        with pytest.raises(StateError, match=f"(?s)another query.*now .*{told}.*start over with"):
            run_with(aggregate)
    assert run_with("sum(n)").advances == 0
    assert [row["total"] for row in rows(tmp_path / "sums.jsonl")] == [1]


def test_a_source_gains_a_column_and_the_run_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    """What came before has nulls there, also what waited for its bucket; windows go on."""

    def line(second: int, more: str = "") -> str:
        return f'{{"at": "2024-01-01T00:00:{second:02}Z", "n": {second}{more}}}\n'

    def run_with(columns: str, total: str = "sum(n)", after: int | None = None) -> RunSummary:
        network = Network("gains", bucket="1 second", spark=spark)
        numbers = network.source("numbers", f"at timestamp, n bigint{columns}", stime="at")
        numbers.groupBy(window("10 seconds")).agg(f"{total} AS total").output("sums")
        numbers.filter("n % 2 = 1").output("odd")
        return run(
            network,
            {"numbers": read_jsonl(tmp_path / "numbers.jsonl", lateness="3 s", block_bytes=100)},
            {
                "sums": write_jsonl(tmp_path / "sums.jsonl"),
                "odd": write_jsonl(tmp_path / "odd.jsonl"),
            },
            state=tmp_path / "state",
            observer=Observer() if after is None else StopAfter(after),
            advance_tuples=4,
        )

    (tmp_path / "numbers.jsonl").write_text("".join(map(line, range(30))))
    assert not run_with("", after=1).finished
    assert list((tmp_path / "state" / "checkpoints").glob("*/waiting-numbers.arrow"))
    with (tmp_path / "numbers.jsonl").open("a") as file:
        file.writelines(line(second, ', "zone": "east"') for second in range(30, 36))
    # Not if it is named by what the state is of, or cannot be null.
    for columns, total in ((", zone string", "count(zone)"), (", zone string NOT NULL", "sum(n)")):
        with pytest.raises(StateError, match=r"(?s)another query.*zone"):
            run_with(columns, total)
    assert run_with(", zone string").finished
    assert [row["total"] for row in rows(tmp_path / "sums.jsonl")] == [45, 145, 245, 195]
    odd = rows(tmp_path / "odd.jsonl")
    assert [row["n"] for row in odd] == list(range(1, 36, 2))
    assert [row.get("zone") for row in odd] == [None] * 15 + ["east"] * 3
