from __future__ import annotations

from holdfast.core.heard import Heard
from holdfast.core.stream_copy import FAR_FUTURE


def test_a_boundary_is_known_since_the_first_input_that_passed_it() -> None:
    heard = Heard(900)
    assert heard.since(1) == FAR_FUTURE
    heard.hear(100, 10)
    heard.hear(200, 20)
    heard.hear(150, 30)
    assert heard.since(100) == 10
    assert heard.since(101) == 20
    assert heard.since(200) == 20
    assert heard.since(201) == FAR_FUTURE


def test_what_is_remembered_does_not_grow_with_the_length_of_a_failure() -> None:
    heard = Heard(900)
    for step in range(100_000):
        heard.hear(step * 100, step * 100)
    assert len(heard._grew) <= 12
    assert heard.since(50) <= 9_999_900 - 900, "whatever is older is overdue"
    assert heard.since(9_999_500) == 9_999_500
