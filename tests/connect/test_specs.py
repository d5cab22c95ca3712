"""Sources and sinks as texts on the command line."""

from __future__ import annotations

import pytest

from holdfast.connect.console_sink import write_console
from holdfast.connect.csv_source import read_csv
from holdfast.connect.directory_source import read_directory
from holdfast.connect.generator_source import rate
from holdfast.connect.jsonl_sink import write_jsonl
from holdfast.connect.parquet_sink import write_parquet
from holdfast.connect.sink import Sink
from holdfast.connect.socket_source import read_socket
from holdfast.connect.source import Source
from holdfast.connect.specs import parse_sink, parse_source
from holdfast.connect.upsert_sink import write_sqlite
from holdfast.errors import InputError


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("load=csv:a/b.csv", read_csv("a/b.csv")),
        (
            "load=csv:b.csv,lateness=10 s,header=false",
            read_csv("b.csv", lateness="10 s", header=False),
        ),
        ("load=directory:in,follow=false", read_directory("in", follow=False)),
        ("load=socket:localhost:9999", read_socket("localhost", 9999)),
        ("load=rate:100,count=5", rate(100, count=5)),
    ],
)
def test_sources(text: str, source: Source) -> None:
    assert parse_source(text) == ("load", source)


@pytest.mark.parametrize(
    ("text", "sink"),
    [
        ("busy=console", write_console()),
        ("busy=console,lines=3", write_console(lines=3)),
        ("busy=jsonl:out=1.jsonl", write_jsonl("out=1.jsonl")),
        ("busy=parquet:out", write_parquet("out")),
        ("busy=sqlite:a.db,table=2026,key=7 8", write_sqlite("a.db", table="2026", key="7 8")),
        ("busy=sqlite:a.db,key=7,tentative=True", write_sqlite("a.db", key="7", tentative=True)),
    ],
)
def test_sinks(text: str, sink: Sink) -> None:
    assert parse_sink(text) == ("busy", sink)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("load", "write it as NAME=KIND:WHERE"),
        ("load=excel:x", "there is no kind 'excel'; it is one of"),
        ("load=csv:x,lateness", "write options as key=value"),
        ("load=csv:x,colour=red", "no option 'colour'; known are header, delimiter, follow, late"),
        ("load=socket:host:99,colour=red", "there is no option 'colour'; known are lateness, idle"),
        ("load=kafka:topic", "it needs servers="),
        ("load=socket:9999", "a socket is given as host:port"),
        ("load=rate:often", "could not convert"),
        ("load=csv:x,follow=flase", "follow is true or false; got 'flase'"),
        ("load=csv:x,header=1", "header is true or false; got '1'"),
        ("load=rate:5,count=many", "count is a number; got 'many'"),
    ],
)
def test_what_cannot_be_read_is_explained(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_source(text)


def test_a_sink_that_takes_tentative_tuples_or_not_is_told_so_in_words_it_knows() -> None:
    with pytest.raises(InputError, match="tentative is true or false; got 'maybe'"):
        parse_sink("busy=jsonl:x,tentative=maybe")


def test_lateness_of_nothing_is_allowed() -> None:
    assert read_csv("x", lateness="0 s").lateness_us == 0
    assert read_csv("x", lateness=0).lateness_us == 0
    assert read_csv("x", lateness="1.5 s").lateness_us == 1_500_000
    assert read_csv("x").lateness_us == 60_000_000
    assert read_csv("x", follow=True).lateness_us == 0
