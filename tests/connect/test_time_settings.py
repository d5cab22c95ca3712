"""Every kind of source has the settings of sources with their own time."""

from __future__ import annotations

import pytest

from holdfast.connect import specs
from holdfast.connect.source import Source
from holdfast.core.source_time import Late
from holdfast.deployment import Endpoint, SourceSpec
from holdfast.deployment_file import SOURCE_TIMES
from holdfast.plans.lags import source_of

SECOND = 1_000_000
PLACES = {
    "csv": "load.csv",
    "jsonl": "load.jsonl",
    "parquet": "load.parquet",
    "directory": "landing",
    "socket": "127.0.0.1:4711",
    "kafka": "load,servers=127.0.0.1:9092",
    "rate": "100",
}
TIMES = {"lateness": "2 s", "idle_after": "3 s", "future_limit": "4 s", "late": "take"}


def judged(source: Source) -> tuple[object, ...]:
    found = source.time_settings(200_000)
    return (found.lateness_us, found.idle_after_us, found.future_limit_us, found.late)


WANTED = (2 * SECOND, 3 * SECOND, 4 * SECOND, Late.TAKE)


def test_no_kind_is_forgotten() -> None:
    assert PLACES.keys() == specs._SOURCES.keys()
    assert TIMES.keys() == {*SOURCE_TIMES}


@pytest.mark.parametrize("kind", PLACES)
def test_every_kind_has_them_as_options_and_in_a_deployment(kind: str) -> None:
    options = ",".join(f"{key}={value}" for key, value in TIMES.items())
    assert judged(specs.parse_source(f"load={kind}:{PLACES[kind]},{options}")[1]) == WANTED
    spec = SourceSpec("load", Endpoint(), f"{kind}:{PLACES[kind]}", times=TIMES)
    assert judged(source_of(spec)) == WANTED


def test_producers_have_them_too() -> None:
    assert judged(source_of(SourceSpec("load", Endpoint(), None, times=TIMES))) == WANTED


@pytest.mark.parametrize("reads", [None, *(f"{kind}:{place}" for kind, place in PLACES.items())])
def test_a_row_of_another_century_is_refused_by_default_beside_others(reads: str | None) -> None:
    limit_us = source_of(SourceSpec("load", Endpoint(), reads)).future_limit_us
    assert limit_us == 60 * SECOND
    off = source_of(SourceSpec("load", Endpoint(), reads, times={"future_limit": "off"}))
    assert off.future_limit_us is None
