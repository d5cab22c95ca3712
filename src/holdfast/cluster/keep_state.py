"""``holdfast up --keep-state``: the state stays where only stateless parts have changed.

The state of an operator is that of what computes it: its kind and settings, its windows, keys and
functions, the columns that it reads, and the sources and operators with state that these come from.
What lies between (filters, projections, unions) may be another: then the state is taken as it is,
and what comes from its record on goes through the network as it is now.

So the change takes effect at two places of the stream. Results are those of the new network from
where those of the one before end in the logs; what is computed again below has gone out, and counts
nowhere. What windows take in is as the new network has it from the record's boundary on, or, where
the state itself is computed again (``reconcile = "undo"``), from the record's marker on.

Refused is everything else, with what differs, before anything is touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from holdfast.cluster.kept_nodes import StoppedAt
from holdfast.cluster.places import AGAIN, Changing, shown_time
from holdfast.core.records import UNKNOWN_ID, RecoveryRecord
from holdfast.core.settings import Delivery, Keeping
from holdfast.deployment import Deployment
from holdfast.identity import refuse_changed
from holdfast.plans.fragment_plans import DescribedOperator, FragmentPlan
from holdfast.plans.plan import Plan

FLAG = "--keep-state"


class Parts:
    """A fragment's description, operator by operator."""

    def __init__(self, description: Sequence[str], operators: Sequence[DescribedOperator]) -> None:
        self._operators = {one.name: one for one in operators}
        self._rest = [
            line for line in description if line.partition(": ")[0] not in self._operators
        ]

    @property
    def stateful(self) -> list[str]:
        return [name for name, one in self._operators.items() if one.state]

    def of_state(self) -> list[str]:
        """What must be equal for the state to be gone on with, line by line."""
        lines = [line for line in self._rest if not line.startswith(("output ", "python: "))]
        for name in self.stateful:
            one = self._operators[name]
            lines += [f"{name}: {line}" for line in (one.state, *one.lines)]
            for number, each in enumerate(one.inputs, 1):
                roots = ", ".join(sorted(self._roots(each)))
                lines.append(f"{name}: input {number} comes from {roots}")
        return lines

    def above(self, name: str) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
        """The stateless operators between an operator with state and what its input comes from."""
        found, names = [], list(self._operators[name].inputs)
        while names:
            one = self._operators.get(names.pop())
            if one is not None and not one.state:
                found.append((one.inputs, one.lines))
                names += one.inputs
        return found

    def _roots(self, name: str) -> set[str]:
        one = self._operators.get(name)
        if one is None or one.state:
            return {name}
        return {root for each in one.inputs for root in self._roots(each)}


def keep_state(deployment: Deployment, before: Plan, now: Plan, bare: Plan) -> list[str]:
    """Have the fragments of which only stateless parts have changed go on with their state.

    What is to be said about it; StateError, and nothing is touched, if it cannot be done. ``bare``
    is what the plan is but for columns that the sources have gained.
    """
    changing = Changing(deployment, before, now, FLAG)
    changing.refuse_sources(bare)
    found: dict[str, tuple[StoppedAt, RecoveryRecord]] = {}
    said = []
    for name, plan in bare.fragments.items():
        kept = before.fragments.get(name)
        if kept is not None and kept.description == plan.description:
            continue
        place = changing.furthest(name)
        assert kept is not None, "it was asked for its place"
        were = Parts(kept.description, kept.operators)
        are = Parts(plan.description, plan.operators)
        where = f"{FLAG}: fragment {name!r} in the data directory {str(deployment.data)!r}"
        refuse_changed(were.of_state(), are.of_state(), where)
        changed = [each for each in are.stateful if were.above(each) != are.above(each)]
        _refuse(changing, deployment, name, place, changed)
        found[name] = place, _record(changing, place, now.fragments[name])
        said.append(_effect(name, place, changed))
    for name, (place, record) in found.items():
        changing.begin(name, place, record, keeps=True)
    return said


def _refuse(
    changing: Changing, deployment: Deployment, name: str, place: StoppedAt, changed: Sequence[str]
) -> None:
    if deployment.fragments[name].delivery is not Delivery.EXACTLY_ONCE:
        raise changing.refusal(
            f"fragment {name!r} delivers {deployment.fragments[name].delivery.value}, and only "
            f"results that are in its log have their ids whatever computes them"
        )
    if place.keeping is Keeping.WINDOWS and changed:
        raise changing.refusal(
            f"{place.node} keeps its windows one by one in its output log (checkpoint = "
            f'"continuous"), each as of another moment: a change above {changed[0]} would take '
            f"effect at no one place of the stream"
        )


def _record(changing: Changing, place: StoppedAt, now: FragmentPlan) -> RecoveryRecord:
    """The record of the state for the new network, which has its results from the logs' ends on."""
    ends, outputs = place.ends, []
    for one in now.outputs:
        end = ends.get(one.stream)
        if end is None:
            outputs.append((one.stream, 0))
        elif place.record.boundary == place.boundary:
            outputs.append((one.stream, end.next_id))
        elif end.bounded:
            outputs.append((one.stream, UNKNOWN_ID))
        else:
            raise changing.refusal(f"the log of {one.stream!r} does not say how far it is", AGAIN)
    inputs = tuple((name, first) for name, first in place.record.inputs if name in now.inputs)
    return replace(place.record, inputs=inputs, outputs=tuple(outputs))


def _effect(name: str, place: StoppedAt, changed: Sequence[str]) -> str:
    text = f"fragment {name!r} keeps its state; results from {shown_time(place.boundary)} on are "
    text += "those of the changed network"
    if not changed:
        return text
    record = place.record
    since = record.marker if place.keeping is Keeping.NOTHING else record.boundary
    return f"{text}, and {', '.join(changed)} takes in what it gives from {shown_time(since)} on"
