"""One value changes; comments and everything else stay."""

from __future__ import annotations

import tomllib

import pytest

from holdfast.errors import InputError
from holdfast.web.toml_edit import set_value

TEXT = """\
# our deployment
name = "monitoring"

[timing]
delay = "2 seconds"  # X
heartbeat = "100 ms"

[fragments.main]
replicas = 2

[fragments.main.standby]
persist = true

[clients.recorder]
output = "busy"
"""


@pytest.mark.parametrize(
    ("table", "key", "value", "line"),
    [
        (("timing",), "delay", "3 seconds", 'delay = "3 seconds"  # X'),
        (("timing",), "alpha_text", "a # b", 'alpha_text = "a # b"'),
        (("fragments", "main"), "replicas", 3, "replicas = 3"),
        (("fragments", "main"), "protection", "active", 'protection = "active"'),
        (("fragments", "other"), "replicas", 2, "[fragments.other]"),
        ((), "name", 'a "name"', 'name = "a \\"name\\""'),
    ],
)
def test_a_value_is_set(table: tuple[str, ...], key: str, value: str | int, line: str) -> None:
    changed = set_value(TEXT, table, key, value)
    assert line in changed.splitlines()
    assert "# our deployment" in changed
    found = tomllib.loads(changed)
    for name in table:
        found = found[name]
    assert found[key] == value
    # Set back, it is the same text where the key was there before.
    before = tomllib.loads(TEXT)
    for name in table:
        before = before.get(name, {})
    if key in before:
        assert set_value(changed, table, key, before[key]) == TEXT


def test_a_value_is_taken_away() -> None:
    assert "heartbeat" not in set_value(TEXT, ("timing",), "heartbeat", None)
    assert set_value(TEXT, ("timing",), "nothing", None) == TEXT


@pytest.mark.parametrize(
    "text",
    [
        'timing = { delay = "2 seconds" }\n',
        'timing.delay = "2 seconds"\n',
        '[timing]\ndelay = """\n2 seconds"""\n',
    ],
)
def test_what_is_written_otherwise_is_refused_and_not_spoiled(text: str) -> None:
    with pytest.raises(InputError, match=r"timing.delay .*the file itself"):
        set_value(text, ("timing",), "delay", "3 seconds")
