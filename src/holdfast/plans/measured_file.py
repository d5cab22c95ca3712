"""What the jobs of each fragment need, as ``holdfast divide`` has measured it.

The shares of X follow from it (plans/budget.py), so whoever runs must go by the same. Two files:

    data/measured-next.json    written by ``holdfast divide``, for the next start
    data/measured.json         what the deployment goes by; replaced only by ``holdfast up`` and
                               ``holdfast submit``, before anything runs

A process that is restarted meanwhile goes by what the others go by; servers are sent it with the
tables of the deployment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from holdfast import disk
from holdfast.deployment import Deployment, measured_path
from holdfast.durable import make_private, read_document, write_document


def next_path(data: Path) -> Path:
    """What the next start will go by, if it is to go by something else."""
    return data / "measured-next.json"


def keep_measured(data: Path, needs_us: Mapping[str, int]) -> None:
    """Write down what jobs need, for the next start."""
    make_private(data)
    write_document(next_path(data), {"needs_us": dict(needs_us)})


def read_next(data: Path) -> dict[str, int] | None:
    """What the next start will go by; None if nothing was measured since the last one."""
    path = next_path(data)
    if not path.is_file():
        return None
    needs_us: dict[str, int] = read_document(path)["needs_us"]
    return needs_us


def adopt(deployment: Deployment) -> Deployment:
    """Go by what was measured last; only while nothing of the deployment runs."""
    needs_us = read_next(deployment.data)
    if needs_us is None:
        return deployment
    disk.rename(next_path(deployment.data), measured_path(deployment.data))
    disk.sync_directory(deployment.data)
    return replace(deployment, measured=needs_us)
