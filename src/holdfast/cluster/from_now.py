"""``holdfast up --from-now``: a changed network goes on where the one before it stopped.

What it computes has changed, so the state of the one before is of no use: it is put aside, and the
changed fragments begin with nothing at the moment up to which the results of the one before are in
their logs (``places``). Everything else goes on: sources keep their logs and places, output streams
their ids, clients what they have, and fragments that have not changed their state. No tuple is lost
or counted twice; a window that was open is counted from there.

A fragment that is new begins there, too (``new_fragments``).

What is not possible like that is refused before anything is touched: other sources, other columns
of a stream than it had or has gained, a stream that another fragment is to serve.
"""

from __future__ import annotations

from dataclasses import replace

from holdfast.cluster.kept_nodes import StoppedAt
from holdfast.cluster.new_fragments import NewFragments
from holdfast.cluster.places import Changing, shown_time
from holdfast.core.records import RecoveryRecord
from holdfast.core.settings import Keeping
from holdfast.deployment import Deployment
from holdfast.plans.fragment_plans import FragmentPlan
from holdfast.plans.plan import Plan

FLAG = "--from-now"


def begin_from_now(
    deployment: Deployment, before: Plan, now: Plan, bare: Plan | None = None
) -> list[str]:
    """Have the fragments that have changed begin with nothing where they stopped.

    What is to be said about it; StateError, and nothing is touched, if it cannot be done. ``bare``
    is what the plan is but for columns that the sources have gained; fragments that only hand these
    on have not changed.
    """
    same = (bare or now).fragments
    changing = Changing(deployment, before, now, FLAG)
    changing.refuse_sources(bare or now)
    changed = [
        name
        for name in now.fragments
        if name in before.fragments and before.fragments[name].description != same[name].description
    ]
    fresh = NewFragments(changing, before, now)
    begins = {name: fresh.record(name) for name in now.in_order if name not in before.fragments}
    records = {}
    for name in changed:
        place = changing.furthest(name)
        records[name] = place, _record(place, now.fragments[name])
    for name, (place, record) in records.items():
        changing.begin(name, place, record, keeps=False)
        begins[name] = record
    for name, record in begins.items():
        if name not in records:
            fresh.begin(name, record)
    return [
        f"fragment {name!r} begins with nothing at {shown_time(record.boundary)}"
        for name, record in begins.items()
    ]


def _record(place: StoppedAt, now: FragmentPlan) -> RecoveryRecord:
    """The record of a replica that begins with nothing where its results end."""
    ends = place.ends
    outputs = tuple(
        (one.stream, ends[one.stream].next_id if one.stream in ends else 0) for one in now.outputs
    )
    kept = tuple((stream, first) for stream, first in place.record.inputs if stream in now.inputs)
    at = place.boundary
    # Window states in the log are those of the network before: none of them counts.
    extent = at + 1 if place.keeping is Keeping.WINDOWS else 0
    return replace(
        place.record, boundary=at, marker=at, inputs=kept, outputs=outputs, extent=extent
    )
