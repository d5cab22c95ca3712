"""What is done is said at once, and again while it takes long."""

from __future__ import annotations

import threading

from holdfast.saying import said


def test_it_is_said_until_it_is_done() -> None:
    lines: list[str] = []
    thrice = threading.Event()

    def say(text: str) -> None:
        lines.append(text)
        if len(lines) == 3:
            thrice.set()

    with said("Spark starts", say, every_s=0.01):
        assert lines[0] == "Spark starts"
        assert thrice.wait(30)
    assert lines[1].startswith("Spark starts: ")
    assert lines[1].endswith(" s so far")
