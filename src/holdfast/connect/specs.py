"""Sources and sinks written as text on the command line: ``csv:load.csv,lateness=10 s``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.connect.callback_sink import call, function_at
from holdfast.connect.console_sink import write_console
from holdfast.connect.csv_source import read_csv
from holdfast.connect.delta_sink import write_delta
from holdfast.connect.directory_source import read_directory
from holdfast.connect.generator_source import rate
from holdfast.connect.iceberg_sink import write_iceberg
from holdfast.connect.jsonl_sink import write_jsonl
from holdfast.connect.jsonl_source import read_jsonl
from holdfast.connect.kafka_sink import write_kafka
from holdfast.connect.kafka_source import read_kafka
from holdfast.connect.parquet_sink import write_parquet
from holdfast.connect.parquet_source import read_parquet
from holdfast.connect.postgres_sink import write_postgres
from holdfast.connect.sink import Sink
from holdfast.connect.socket_source import read_socket
from holdfast.connect.source import Source, TimeOptions
from holdfast.connect.upsert_sink import write_sqlite
from holdfast.errors import InputError

_SOURCES: Mapping[str, Callable[..., Source]] = {
    "csv": read_csv,
    "jsonl": read_jsonl,
    "parquet": read_parquet,
    "directory": read_directory,
    "socket": lambda address, **options: read_socket(*_host_and_port(address), **options),
    "kafka": read_kafka,
    "rate": lambda number, **options: rate(float(number), **options),
}
_SINKS: Mapping[str, Callable[..., Sink]] = {
    "console": lambda _="", **options: write_console(**options),
    "delta": write_delta,
    "iceberg": write_iceberg,
    "jsonl": write_jsonl,
    "kafka": write_kafka,
    "parquet": write_parquet,
    "postgres": write_postgres,
    "sqlite": write_sqlite,
    "call": lambda place, **options: call(function_at(place), **options),
}
# Whose options they are, where the kind has them by way of something else.
_OPTIONS_OF: Mapping[Callable[..., Any], Callable[..., Any]] = {
    _SOURCES["socket"]: read_socket,
    _SOURCES["rate"]: rate,
    _SINKS["console"]: write_console,
    _SINKS["call"]: call,
}

# What stands after the kind is no path.
_NO_FILES = ("console", "iceberg", "kafka", "postgres", "rate", "socket")


def parse_source(text: str) -> tuple[str, Source]:
    """``load=csv:load.csv`` as a source's name and the source."""
    name, kind, rest, options = _split("source", text, _SOURCES)
    return name, _make("source", text, _SOURCES[kind], rest, options)


def parse_sink(text: str) -> tuple[str, Sink]:
    """``busy=jsonl:busy.jsonl`` as an output's name and the sink."""
    name, kind, rest, options = _split("output", text, _SINKS)
    return name, _make("output", text, _SINKS[kind], rest, options)


def places_of(text: str) -> list[str]:
    """Whatever in ``csv:load.csv,lateness=10 s`` may be the path of a file."""
    _, kind, place, options = _split("source or output", f"name={text}", {**_SOURCES, **_SINKS})
    is_about_files = kind not in _NO_FILES
    named = [place] if is_about_files else []
    if "config" in options:
        named.append(options["config"])
    return [*named, *(each for each in options.values() if "/" in each and each not in named)]


def _split(what: str, text: str, kinds: Mapping[str, Any]) -> tuple[str, str, str, dict[str, str]]:
    name, equals, target = text.partition("=")
    kind, _, rest = target.partition(":")
    if not equals or not name:
        raise InputError(f"--{what} {text!r}: write it as NAME=KIND:WHERE, e.g. {_example(what)}")
    if kind.partition(",")[0] not in kinds:
        raise InputError(f"--{what} {text!r}: there is no kind {kind!r}; it is one of {[*kinds]}")
    if "," in kind:
        kind, _, rest = target.partition(",")
        rest = f",{rest}"
    place, *listed = rest.split(",")
    options: dict[str, str] = {}
    for each in listed:
        key, equals, value = each.partition("=")
        if not equals:
            raise InputError(f"--{what} {text!r}: write options as key=value, got {each!r}")
        options[key.strip()] = value.strip()
    return name, kind, place, options


def _make(
    what: str, text: str, make: Callable[..., Any], place: str, options: dict[str, str]
) -> Any:
    known, needed = _options(_OPTIONS_OF.get(make, make))
    unknown = sorted(options.keys() - known.keys())
    if unknown:
        raise InputError(
            f"--{what} {text!r}: there is no option {unknown[0]!r}; known are {', '.join(known)}"
        )
    missing = [each for each in needed if each not in options]
    if missing:
        raise InputError(f"--{what} {text!r}: it needs {missing[0]}=...; write it after a comma")
    try:
        return make(place, **{key: _value(key, known[key], each) for key, each in options.items()})
    except (TypeError, ValueError) as error:
        raise InputError(f"--{what} {text!r}: {error}") from None


def _options(function: Callable[..., Any]) -> tuple[dict[str, str], list[str]]:
    """The options that a function takes, each with its type, and those it cannot do without."""
    known: dict[str, str] = {}
    needed = []
    for each in inspect.signature(function).parameters.values():
        if each.kind is each.VAR_KEYWORD:
            known |= dict.fromkeys(TimeOptions.__annotations__, "Duration")
        elif each.kind is each.KEYWORD_ONLY or each.default is not each.empty:
            known[each.name] = str(each.annotation)
            needed += [each.name] if each.default is each.empty else []
    return known, needed


def _value(key: str, annotation: str, text: str) -> object:
    """What an option of this type is; ValueError if it is none."""
    types = set(annotation.split(" | ")) - {"None"}
    if "bool" in types and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if "str" in types:
        return text
    if text.isdigit() and types != {"bool"}:
        return int(text)
    if types == {"bool"}:
        raise ValueError(f"{key} is true or false; got {text!r}")
    if types == {"int"}:
        raise ValueError(f"{key} is a number; got {text!r}")
    return text


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise InputError(f"a socket is given as host:port, got {address!r}")
    return host, int(port)


def _example(what: str) -> str:
    return "load=csv:load.csv" if what == "source" else "busy=jsonl:busy.jsonl"
