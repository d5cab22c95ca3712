"""What of what nodes have kept a network can go on with, when it is not the one that kept it.

- Sources have gained columns that can be null, and nothing that is computed names them: everything
  goes on by itself. What is in logs has nulls there; who merely hands tuples on hands the columns
  on. State stays valid, for no operator with state has them in it. The plan notes the identities of
  the queries whose state is as good as its own (``FragmentPlan.earlier``).
- Anything else is refused with the differences, unless somebody says what is to be done about it:
  ``--keep-state`` (``keep_state``) and ``--from-now`` (``from_now``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from holdfast.cluster.change import Change
from holdfast.cluster.from_now import begin_from_now
from holdfast.cluster.keep_state import keep_state
from holdfast.deployment import Deployment
from holdfast.description import Gained
from holdfast.errors import StateError
from holdfast.gained import gained_columns
from holdfast.identity import refuse_changed
from holdfast.plans.fragment_plans import FragmentPlan
from holdfast.plans.plan import FORMAT, Plan, SourcePlan, deployed, found_plan, read_plan

OTHERWISE = (
    "or have it go on with its state, if only stateless parts have changed: holdfast up "
    "--keep-state; or with nothing in its windows, where the one before stopped: holdfast up "
    "--from-now"
)

# The plan that a network would have if its sources had not gained some columns.
Without = Callable[[Gained], Plan]


def going_on(
    deployment: Deployment,
    plan: Plan,
    without: Without,
    change: Change = Change.REFUSE,
    tell: Callable[[str], None] = lambda text: None,
) -> Plan:
    """``plan``, with whatever it can go on with; StateError if nodes have kept something else.

    ``tell`` is told where in the stream a change takes effect.
    """
    found = found_plan(deployment)
    if found is None or not _has_kept_state(deployment):
        return plan
    where = f"the data directory {str(deployment.data)!r}"
    if found.get("format") != FORMAT:
        raise StateError(
            f"{where} is that of another version of Holdfast: its plan has format "
            f"{found.get('format')}, this version reads {FORMAT}. Use the version that made it, or "
            f"a new data directory"
        )
    # With the shards it has by now, should it have been rescaled.
    before = deployed(deployment, read_plan(deployment))
    gained = _gained(before, plan)
    # What it is but for the columns that it has gained.
    bare = without(gained) if gained else plan
    match change:
        case Change.FROM_NOW:
            said = begin_from_now(deployment, before, plan, bare)
        case Change.KEEP_STATE:
            said = keep_state(deployment, before, plan, bare)
        case Change.REFUSE:
            _refuse_others("source", before.sources, bare.sources, where)
            _refuse_others("fragment", before.fragments, bare.fragments, where)
            said = []
    for text in said:
        tell(text)
    return replace(plan, fragments=_with_earlier(before, plan, bare))


def _gained(before: Plan, now: Plan) -> dict[str, tuple[str, ...]]:
    """The columns that sources have gained, where nothing else about them has changed."""
    found = {}
    for name, source in now.sources.items():
        kept = before.sources.get(name)
        if kept is not None and (columns := gained_columns(kept.schema, source.schema)):
            found[name] = columns
    return found


def _refuse_others(
    kind: str,
    before: Mapping[str, SourcePlan] | Mapping[str, FragmentPlan],
    now: Mapping[str, SourcePlan] | Mapping[str, FragmentPlan],
    where: str,
) -> None:
    for name in {**before, **now}:
        were, are = _lines(before.get(name)), _lines(now.get(name))
        refuse_changed(were, are, f"{kind} {name!r} in {where}", OTHERWISE)


def _lines(part: SourcePlan | FragmentPlan | None) -> tuple[str, ...]:
    if part is None:
        return ()
    if isinstance(part, FragmentPlan):
        return part.description
    columns = (f"column {field}" for field in part.schema)
    return (f"stime: {part.stime}", f"key: {', '.join(part.keys) or None}", *columns)


def _with_earlier(before: Plan, plan: Plan, bare: Plan) -> dict[str, FragmentPlan]:
    """The fragments, each with the identities of those whose state is as good as its own."""
    found = dict(plan.fragments)
    for name, kept in before.fragments.items():
        if name in found and kept.description == bare.fragments[name].description:
            known = dict.fromkeys((*kept.earlier, kept.identity))
            known.pop(found[name].identity, None)
            found[name] = replace(found[name], earlier=tuple(known))
    return found


def _has_kept_state(deployment: Deployment) -> bool:
    """Whether a node has written anything, as far as this machine can tell."""
    if any(deployment.hosted_by(name) for name in deployment.servers):
        # What the servers have is theirs; they were asked as soon as there were addresses.
        return (deployment.data / "addresses.json").exists()
    nodes = deployment.data / "processes"
    for file in nodes.glob("*/**/*"):
        # Spark's own files are temporary.
        kept = file.name != "lock" and file.relative_to(nodes).parts[1] != "spark"
        if kept and file.is_file() and file.stat().st_size:
            return True
    return False
