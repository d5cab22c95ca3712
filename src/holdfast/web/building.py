"""Builds a network that somebody wrote on the page, in a process of its own.

    python -m holdfast.web.building < {"deployment": PATH, "tables": {...}, "network": TEXT,
                                       "anew": whether what is kept does not matter}

Nothing is written but the last line of its output, JSON: what is wrong, or what it comes to. The
process and its JVM are gone before anybody believes it.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from holdfast.deployment import Deployment
from holdfast.deployment_file import DeploymentReader
from holdfast.errors import HoldfastError, StateError


def built(deployment: Deployment, network: str, anew: bool) -> dict[str, Any]:
    """What a network's text comes to in a deployment, or what is wrong with it."""
    from holdfast.cluster.changed import going_on
    from holdfast.cluster.networks import load_network
    from holdfast.cluster.planning import network_problem, plan_of
    from holdfast.plans.plan import deployed, sql_settings
    from holdfast.plans.topology import Topology

    with tempfile.TemporaryDirectory(prefix="holdfast-edit-") as directory:
        file = Path(directory) / deployment.network.name
        file.write_text(network)
        try:
            made = load_network(file, "local[1]", sql_settings(deployment), Path(directory))
            plan = plan_of(made)
        except Exception as error:
            line, what = network_problem(error, file)
            return _problem("network", what, line)
    try:
        plan = deployed(deployment, plan)
        Topology(deployment, plan)
    except HoldfastError as error:
        return _problem("knobs", str(error))
    found: dict[str, Any] = {
        "operators": [asdict(each) for each in plan.operators],
        "says": {name: list(each.description) for name, each in plan.fragments.items()},
        "outputs": dict(plan.output_operators),
    }
    try:
        if not anew:
            going_on(deployment, plan, lambda gained: deployed(deployment, plan_of(made, gained)))
    except StateError as error:
        return {**found, **_problem("state", str(error))}
    return {**found, "problem": None}


def _problem(where: str, text: str, line: int | None = None) -> dict[str, Any]:
    return {"problem": {"where": where, "line": line, "text": text}}


def main() -> int:
    asked = json.load(sys.stdin)
    path = Path(asked["deployment"])
    try:
        deployment = DeploymentReader(path).deployment(asked["tables"])
    except HoldfastError as error:
        print(json.dumps(_problem("knobs", str(error))))
        return 0
    # What the network imports stands beside its file, not beside what is built here.
    beside = str(deployment.network.parent)
    sys.path.insert(0, beside)
    known = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([beside, *([known] if known else [])])
    found = built(deployment, asked["network"], bool(asked["anew"]))
    print(json.dumps(found), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
