from __future__ import annotations

from enum import Enum

import pytest

from holdfast.core.detector import FailureDetector, PeerState, Replied, TimePassed, Trigger
from holdfast.core.machine import IllegalTransition, Machine
from holdfast.core.succession import Succession
from holdfast.simulation.coverage import TABLES


def test_an_illegal_transition_tells_the_story() -> None:
    detector = FailureDetector("b", interval_us=100, misses_until_down=3, owner="a")
    detector.handle(TimePassed(), 0)
    detector.handle(Replied(), 10)
    with pytest.raises(IllegalTransition) as raised:
        detector.move(Trigger.REPLIED, 20)
    assert "REPLIED has no place in state UP" in str(raised.value)
    assert "UNKNOWN --REPLIED--> UP" in str(raised.value)


def test_transitions_are_counted() -> None:
    detector = FailureDetector("b", interval_us=100, misses_until_down=3, owner="a")
    detector.handle(Replied(), 10)
    assert detector.visits == {("UNKNOWN", "REPLIED"): 1}


# Who takes over from others joins as well, in more ways.
MACHINES = TABLES | {"Joining": Succession.TABLE}


@pytest.mark.parametrize("name", MACHINES)
def test_every_state_can_be_reached_and_left(name: str) -> None:
    table = MACHINES[name]
    states: set[Enum] = {state for state, _ in table} | set(table.values())
    assert {state for state, _ in table} == states, "every state can be left"
    kind = type(next(iter(states)))
    assert states == set(kind), "every state is in the table"


def test_who_takes_over_joins_as_everybody_does() -> None:
    assert TABLES["Joining"].items() <= Succession.TABLE.items()


def test_a_machine_without_a_story_says_so() -> None:
    machine = Machine[PeerState, Trigger]("nobody", PeerState.UNKNOWN)
    assert "no transition yet" in machine.story()
