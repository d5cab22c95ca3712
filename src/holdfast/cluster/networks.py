"""Loads the file that defines a network, on a Spark session made for it."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType

from pyspark import cloudpickle

from holdfast.errors import InputError
from holdfast.network import Network
from holdfast.spark.session import get_session


def load_network(
    path: Path,
    master: str,
    config: Mapping[str, str],
    directory: Path | None = None,
    drivers: int | None = None,
) -> Network:
    """The variable ``network`` of a Python file; ``directory`` is for what Spark needs."""
    module = load_module(path, lambda: get_session(master, config, directory, drivers))
    return network_of(module, path)


def load_module(path: Path, start_spark: Callable[[], object]) -> ModuleType:
    """Run a network's file, once Spark is there."""
    # Spark's Python workers must find what stands beside the file, too.
    sys.path.insert(0, str(path.parent))
    known = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(path.parent), *([known] if known else [])])
    start_spark()
    spec = importlib.util.spec_from_file_location(f"holdfast_network_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise InputError(f"{str(path)!r} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    spec.loader.exec_module(module)
    return module


def network_of(module: ModuleType, path: Path) -> Network:
    """The network that a module defines."""
    network = getattr(module, "network", None)
    if not isinstance(network, Network):
        raise InputError(
            f"{str(path)!r} defines no network; it needs a variable: network = Network(...)"
        )
    return network
