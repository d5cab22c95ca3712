"""Deployments whose plan is written by hand, so that their entry points start without Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from holdfast.deployment import Deployment, load_deployment
from holdfast.frames import SEQ
from holdfast.plans.fragment_plans import FragmentPlan, FragmentStream
from holdfast.plans.plan import Plan, SourcePlan, write_plan
from holdfast.spark.engine import input_schema
from tests.flight.nodes import LOAD

NETWORK = "# never run: only entry points are started\n"


def planned(directory: Path, text: str) -> Deployment:
    """A deployment of one fragment, "main", whose sources have the columns number and text."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "network.py").write_text(NETWORK)
    (directory / "deployment.toml").write_text(text)
    deployment = load_deployment(directory / "deployment.toml")
    schema = input_schema(LOAD)
    served = pa.schema([field for field in schema if field.name != SEQ.name])
    sources = {name: SourcePlan(schema, None, ()) for name in deployment.sources}
    output = FragmentStream("out", served, frozenset(sources))
    main = FragmentPlan(
        "main", dict.fromkeys(sources, served), (output,), False, ("planned by hand",)
    )
    write_plan(deployment, Plan(200_000, sources, {"main": main}, ("out",)))
    return deployment
