"""``holdfast up --from-now``: a fragment that is new begins where the streams that it reads end.

All its replicas get one record, without a state: at the newest boundary that any of its inputs has
in a log, from the first tuple on that may be at or after it. Without one they would begin with the
first tuple that there ever was, which is trimmed.
"""

from __future__ import annotations

from holdfast.cluster.places import Changing
from holdfast.core.records import RecoveryRecord
from holdfast.plans.fragment_plans import FragmentPlan
from holdfast.plans.plan import Plan
from holdfast.plans.topology import Topology


class NewFragments:
    """The fragments of a deployment that were not there before."""

    def __init__(self, changing: Changing, before: Plan, now: Plan) -> None:
        self._changing = changing
        self._deployment = changing.deployment
        self._before = before
        self._now = now
        self._topology = Topology(self._deployment, now)
        # Where streams of new fragments begin.
        self._begin: dict[str, int] = {}

    def record(self, name: str) -> RecoveryRecord:
        """Where a new fragment begins; those that it reads from come before it."""
        plan = self._now.fragments[name]
        self._refuse(plan)
        logs = {stream: self._logs_of(stream) for stream in plan.inputs}
        ends = [self._begin.get(stream, 0) for stream in plan.inputs]
        ends += [end for found in logs.values() for end in found.values()]
        bucket_us = self._now.bucket_us
        boundary = -(-max(ends, default=0) // bucket_us) * bucket_us
        inputs = tuple(
            (stream, max((self._first_id(node, stream, boundary) for node in found), default=0))
            for stream, found in logs.items()
        )
        outputs = tuple((output.stream, 0) for output in plan.outputs)
        self._begin |= dict.fromkeys((output.stream for output in plan.outputs), boundary)
        return RecoveryRecord(boundary, boundary, inputs, outputs, boundary)

    def begin(self, name: str, record: RecoveryRecord) -> None:
        """Have every replica begin there."""
        for node in self._changing.replicas(name):
            keeping = self._topology.replica(node).keeping
            description = self._now.fragments[name].description
            self._changing.kept(node).begin_new(node, description, record, keeping)

    def _refuse(self, plan: FragmentPlan) -> None:
        served = self._before.made_by
        for output in plan.outputs:
            if output.stream in served:
                raise self._changing.refusal(
                    f"fragment {plan.name!r} is new and serves {output.stream!r}, which fragment "
                    f"{served[output.stream]!r} has in its log",
                    "Let it stay there, or give the output of the new fragment another name",
                )
        standby = self._deployment.fragments[plan.name].standby
        if standby is not None and not standby.persist:
            raise self._changing.refusal(
                f"fragment {plan.name!r} is new and keeps nothing on disk (persist = false), so "
                f"that it cannot be told where to begin"
            )

    def _first_id(self, node: str, stream: str, boundary: int) -> int:
        return self._changing.kept(node).first_id(node, stream, boundary)

    def _logs_of(self, stream: str) -> dict[str, int]:
        """The nodes that have a log of a stream, each with the last boundary in it."""
        nodes: tuple[str, ...] = ()
        if stream in self._before.sources:
            nodes = (self._deployment.sources[stream].process,)
        elif stream in self._before.made_by:
            nodes = self._changing.replicas(self._before.made_by[stream])
        ends = {node: self._changing.kept(node).log_end(node, stream) for node in nodes}
        return {node: end for node, end in ends.items() if end is not None}
