"""Making the plan of a network (``python -m holdfast.cluster.planning deployment.toml``).

It is refused when there is state of another query that this one cannot go on with (``changed``).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from holdfast.cluster.change import Change
from holdfast.cluster.changed import going_on
from holdfast.cluster.networks import load_network
from holdfast.deployment import DeploymentError, load_deployment
from holdfast.description import Gained, columns_text
from holdfast.draw import kind_of
from holdfast.errors import HoldfastError, StateError
from holdfast.fragments import plan_fragments
from holdfast.gained import without_gained
from holdfast.late_rows import why_late_rows_are_not_taken
from holdfast.layout import shown_label
from holdfast.network import Network
from holdfast.operators import Operator, StatefulOperator
from holdfast.plans.plan import (
    NOT_DEPLOYABLE,
    REFUSED,
    SAYS,
    OperatorPlan,
    Plan,
    SourcePlan,
    deployed,
    sql_settings,
    write_plan,
)
from holdfast.spark.engine import input_schema


def plan_of(network: Network, gained: Gained | None = None) -> Plan:
    """The plan of a network, or what it would be if its sources had not ``gained`` columns."""
    return Plan(
        network.bucket,
        {
            name: SourcePlan(
                without_gained(input_schema(operator), (gained or {}).get(name, ())),
                operator.stime,
                operator.keys,
                why_late_rows_are_not_taken(network, operator),
            )
            for name, operator in network.sources.items()
        },
        {plan.name: plan for plan in plan_fragments(network, gained)},
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


def main(arguments: list[str]) -> int:
    deployment = load_deployment(arguments[0])
    change = Change(arguments[1] if arguments[1:] else "")
    try:
        settings = sql_settings(deployment)
        network = load_network(deployment.network, deployment.spark_master, settings)

        def planned(gained: Gained | None = None) -> Plan:
            return deployed(deployment, plan_of(network, gained))

        plan = going_on(deployment, planned(), planned, change, _say)
    except (StateError, DeploymentError) as error:
        print(json.dumps(str(error)), file=sys.stderr)
        return REFUSED if isinstance(error, StateError) else NOT_DEPLOYABLE
    except Exception as error:
        # The last line is what `holdfast up` shows.
        line, what = network_problem(error, deployment.network)
        print(what if line is None else f"line {line}: {what}", file=sys.stderr)
        return 1
    write_plan(deployment, plan)
    return 0


def _say(text: str) -> None:
    """Tell whoever watches, among whatever Spark has to say."""
    print(f"{SAYS}{text}", file=sys.stderr)


def network_problem(error: BaseException, network: Path) -> tuple[int | None, str]:
    """A mistake in a network's file: in which line of it, if that is known, and what."""
    trace = error.__traceback__
    line = error.lineno if isinstance(error, SyntaxError) else None
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename) == network:
            line = trace.tb_lineno
        trace = trace.tb_next
    said = str(error.msg if isinstance(error, SyntaxError) else error).strip()
    what = said.splitlines()[0] if said else ""
    kind = "" if isinstance(error, HoldfastError) else f"{type(error).__name__}: "
    return line, f"{kind}{what}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
