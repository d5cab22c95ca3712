"""What every client of a Kafka cluster is made with: where it is, and how to get in."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.connect.extras import library
from holdfast.errors import InputError

Config = Mapping[str, Any]
# Nothing is asked of a broker without an end.
CALL_SECONDS = 10.0
_LOADS_CODE = "plugin.library.paths"


def kafka() -> Any:
    """The client library."""
    return library("confluent_kafka", "kafka")


def client_config(servers: str, config: Config | str | None) -> dict[str, Any]:
    """What librdkafka is told: the servers, and further settings from a mapping or a file.

    ``servers`` are host:port, separated by blanks or commas. A file has lines such as
    ``sasl.username = reader``, so that no secret need be in a command or a deployment file.
    """
    listed = servers.replace(",", " ").split()
    for each in listed:
        host, _, port = each.rpartition(":")
        if not host or not port.isdigit():
            raise InputError(f"Kafka servers are given as host:port, got {each!r}")
    if not listed:
        raise InputError("no Kafka server was named; write servers=host:port")
    found = _read(config) if isinstance(config, str) else dict(config or {})
    # What it would print is told where it matters.
    return {"log_level": 0, **found, "bootstrap.servers": ",".join(listed)}


def _read(path: str) -> dict[str, str]:
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise InputError(
            f"the Kafka settings {path!r} cannot be read: {error.strerror or error}"
        ) from None
    found = {}
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if text and not text.startswith("#"):
            name, equals, value = text.partition("=")
            if not equals:
                raise InputError(f"{path}, line {number}: write name = value, got {text!r}")
            if name.strip() == _LOADS_CODE:
                raise InputError(f"{path}, line {number}: a file of settings loads no plugins")
            found[name.strip()] = value.strip()
    return found
