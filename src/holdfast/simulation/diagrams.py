"""State diagrams, drawn from the very tables the machines run on.

    python -m holdfast.simulation.diagrams docs/design/states.md

A test compares the page with what this would write.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from enum import Enum
from pathlib import Path

from holdfast.core import election, register
from holdfast.simulation.coverage import TABLES

WHAT = {
    "FailureDetector": "Is one peer there? (`core/detector.py`)",
    "BenchmarkDetector": "Is one machine fast enough? (`core/benchmark_detector.py`)",
    "Upstream": "From which replica is one input stream taken? (`core/upstream.py`)",
    "SUnion": "Are the buckets of a fragment stable? (`core/sunion.py`)",
    "ConsistencyManager": "The state of a replica. (`core/consistency.py`)",
    "Versions": "Which versions of the fragment's state exist. (`core/versions.py`)",
    "SOutput": "What one output carries. (`core/soutput.py`)",
    "StandbySwitch": "Which of the copies runs. (`core/standby.py`)",
    "SweepingCheckpointer": "When a primary sends a checkpoint. (`core/sweeping.py`)",
    "EntryPoint": "What the entry point's log is doing. (`core/entry.py`)",
    "Joining": "How a replica that has nothing takes its place. (`core/joining.py`)",
    "Succession": "How a new shard takes over from those before it. (`core/succession.py`)",
    "EarlyLane": "Are results computed before their order is known? (`core/early_lane.py`)",
    "AheadLanes": "Do windows and joins go ahead of inputs they do not need? (`core/ahead.py`)",
    "PairLane": "Are pairs looked for before their order is known? (`core/pairs.py`)",
    "Client": "Does a client hold tentative tuples? (`core/client.py`)",
    "Lane": "Does a producer, or a source, hold the others up? (`core/source_time.py`)",
    "Checkpointer": "Which window states are written, and when? (`core/continuous.py`)",
    "Election": "What one server of a cluster is in the present term. (`core/election.py`)",
    "Register": "What is known of the newest desired state a server has. (`core/register.py`)",
}
# Machines of a cluster's servers, which have a simulated world of their own.
MORE = {
    "Election": election.TABLE,
    "Register": register.TABLE,
}


def diagram(table: Mapping[tuple[Enum, Enum], Enum]) -> str:
    """One machine as a Mermaid state diagram; triggers between two states share an arrow."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for (state, trigger), target in table.items():
        arrows.setdefault((state.name, target.name), []).append(str(trigger.value))
    lines = ["stateDiagram-v2"]
    for (before, after), triggers in arrows.items():
        text = ", ".join(triggers).replace(":", " -")
        lines.append(f"    {before} --> {after}: {text}")
    return "\n".join(lines)


def page() -> str:
    """The whole page."""
    parts = [
        "# The states of every machine",
        "",
        "Generated from the transition tables in `src/holdfast/core/` by "
        "`python -m holdfast.simulation.diagrams docs/design/states.md`. Each file has the "
        "theory of its machine on top.",
    ]
    for name, table in {**TABLES, **MORE}.items():
        parts += ["", f"## {name}", "", WHAT[name], "", "```mermaid", diagram(table), "```"]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page())
