"""Making the plan of a network (``python -m holdfast.cluster.planning deployment.toml``).

It is refused when there is state of another query; with ``--from-now``, that is put aside.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from holdfast.cluster.from_now import begin_from_now
from holdfast.cluster.networks import load_network
from holdfast.deployment import Deployment, DeploymentError, load_deployment
from holdfast.description import columns_text
from holdfast.draw import kind_of
from holdfast.errors import HoldfastError, StateError
from holdfast.fragments import plan_fragments
from holdfast.identity import refuse_changed
from holdfast.late_rows import why_late_rows_are_not_taken
from holdfast.layout import shown_label
from holdfast.network import Network
from holdfast.operators import Operator, StatefulOperator
from holdfast.plans.fragment_plans import FragmentPlan
from holdfast.plans.operator_plans import OperatorPlan
from holdfast.plans.plan import (
    FORMAT,
    NOT_DEPLOYABLE,
    REFUSED,
    Plan,
    SourcePlan,
    deployed,
    found_plan,
    read_plan,
    sql_settings,
    write_plan,
)
from holdfast.spark.engine import input_schema

FROM_NOW = (
    "or have it go on with nothing in its windows, where the one before stopped: "
    "holdfast up --from-now"
)


def plan_of(network: Network) -> Plan:
    """The plan of a network."""
    return Plan(
        network.bucket,
        {
            name: SourcePlan(
                input_schema(operator),
                operator.stime,
                operator.keys,
                why_late_rows_are_not_taken(network, operator),
            )
            for name, operator in network.sources.items()
        },
        {plan.name: plan for plan in plan_fragments(network)},
        tuple(network.outputs),
        tuple(_operator_plan(each) for each in network.operators),
        {name: stream.operator.name for name, stream in network.outputs.items()},
    )


def _operator_plan(operator: Operator) -> OperatorPlan:
    stateful = operator.stateful if isinstance(operator, StatefulOperator) else None
    return OperatorPlan(
        operator.name,
        shown_label(operator),
        kind_of(operator),
        operator.fragment,
        tuple(each.name for each in operator.inputs),
        columns_text(operator.schema),
        "depends" if stateful is not None and stateful.depends_on_order else "any",
        () if stateful is None else stateful.window_us,
    )


def refuse_other_query(deployment: Deployment, plan: Plan, from_now: bool = False) -> None:
    """Raise StateError if nodes have kept state of another query than ``plan`` is of.

    ``from_now``: fragments that have changed begin with nothing where they stopped, if they can.
    """
    found = found_plan(deployment)
    if found is None or not _has_kept_state(deployment):
        return
    where = f"the data directory {str(deployment.data)!r}"
    if found.get("format") != FORMAT:
        raise StateError(
            f"{where} is that of another version of Holdfast: its plan has format "
            f"{found.get('format')}, this version reads {FORMAT}. Use the version that made it, or "
            f"a new data directory"
        )
    before = read_plan(deployment)
    if from_now:
        begin_from_now(deployment, before, plan)
        return
    for kind, kept, now in (
        ("source", before.sources, plan.sources),
        ("fragment", before.fragments, plan.fragments),
    ):
        for name in {**kept, **now}:
            were, are = _lines(kept.get(name)), _lines(now.get(name))
            refuse_changed(were, are, f"{kind} {name!r} in {where}", FROM_NOW)


def _lines(part: SourcePlan | FragmentPlan | None) -> tuple[str, ...]:
    if part is None:
        return ()
    if isinstance(part, FragmentPlan):
        return part.description
    columns = (f"column {field}" for field in part.schema)
    return (f"stime: {part.stime}", f"key: {', '.join(part.keys) or None}", *columns)


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


def main(arguments: list[str]) -> int:
    deployment = load_deployment(arguments[0])
    from_now = "--from-now" in arguments[1:]
    try:
        settings = sql_settings(deployment)
        plan = plan_of(load_network(deployment.network, deployment.spark_master, settings))
        plan = deployed(deployment, plan)
        refuse_other_query(deployment, plan, from_now)
    except (StateError, DeploymentError) as error:
        print(json.dumps(str(error)), file=sys.stderr)
        return REFUSED if isinstance(error, StateError) else NOT_DEPLOYABLE
    except Exception as error:
        # The last line is what `holdfast up` shows.
        print(network_problem(error, deployment.network), file=sys.stderr)
        return 1
    write_plan(deployment, plan)
    return 0


def network_problem(error: BaseException, network: Path) -> str:
    """One line for a mistake in a network's file: where in it, and what."""
    trace = error.__traceback__
    line = error.lineno if isinstance(error, SyntaxError) else None
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename) == network:
            line = trace.tb_lineno
        trace = trace.tb_next
    said = str(error.msg if isinstance(error, SyntaxError) else error).strip()
    what = said.splitlines()[0] if said else ""
    kind = "" if isinstance(error, HoldfastError) else f"{type(error).__name__}: "
    where = "" if line is None else f"line {line}: "
    return f"{where}{kind}{what}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
