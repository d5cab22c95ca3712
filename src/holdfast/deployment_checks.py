"""What the tables of a deployment file say together: names, distances and places that fit."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from holdfast.deployment import Deployment
from holdfast.errors import HoldfastError
from holdfast.flight.roles import COMMANDS, HERE
from holdfast.flight.security import is_loopback

# What Spark takes: threads of the driver, a cluster's address, or a kind of cluster.
_MASTER = re.compile(r"local(\[[^\]]+\])?|local-cluster\[.+\]|[a-z0-9]+://.+|yarn")
# Makes an error of a place in the file and what is wrong there.
Wrong = Callable[[str, str], HoldfastError]


def check_together(deployment: Deployment, wrong: Wrong) -> None:
    """Raise for the first thing that does not fit the others."""
    _check_master(deployment, wrong)
    _check_names(deployment, wrong)
    _check_distances(deployment, wrong)
    _check_places(deployment, wrong)


def _check_master(deployment: Deployment, wrong: Wrong) -> None:
    """Spark's JVM ends with a wrong one, and every driver would be started again and again."""
    if not _MASTER.fullmatch(deployment.spark_master):
        raise wrong(
            "spark.master",
            f"it is 'local[2]', with as many cores as a driver may use, or the address of a "
            f"cluster such as 'spark://host:7077'; got {deployment.spark_master!r}",
        )


def plain_name(text: str) -> bool:
    """Whether a name can be that of a file, of a directory, and of a process."""
    return re.fullmatch(r"[^./\\=\x00-\x1f][^/\\=\x00-\x1f]{0,99}", text) is not None


def _check_names(deployment: Deployment, wrong: Wrong) -> None:
    named = (deployment.sources, deployment.fragments, deployment.clients, deployment.servers)
    for name in [each for names in named for each in names] + [*deployment.processes]:
        if not plain_name(name):
            raise wrong(name, "files are named after it; leave slashes, '=' and a first dot away")
    if not deployment.fragments:
        raise wrong("fragments", "there is none; name each: [fragments.main]")
    names = [spec.process for spec in deployment.sources.values()]
    for fragment in deployment.fragments.values():
        names += fragment.processes
    names += deployment.clients
    if HERE in deployment.servers:
        raise wrong(f"servers.{HERE}", "this machine goes by this name; rename it")
    if COMMANDS in names:
        raise wrong(COMMANDS, "the commands go by this name; rename it")
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise wrong(twice[0], "two processes have this name; rename one")


def _check_distances(deployment: Deployment, wrong: Wrong) -> None:
    places, matrix = deployment.distances.places, deployment.distances.matrix
    if matrix and not deployment.chaos:
        raise wrong("distances", "links are made longer on purpose; write chaos = true")
    if matrix and deployment.servers:
        raise wrong("distances", "servers are as far away as they are; leave it out")
    nodes = {*deployment.endpoints, *deployment.clients}
    for node, place in places.items():
        if node not in nodes:
            raise wrong("distances.places", f"there is no node {node!r}; there are {sorted(nodes)}")
        if (place, place) not in matrix:
            known = sorted({here for here, _ in matrix})
            raise wrong("distances.places", f"{place!r} is not in the matrix: {known}")


def _check_places(deployment: Deployment, wrong: Wrong) -> None:
    endpoints = deployment.endpoints
    for process, nodes in deployment.processes.items():
        servers = {endpoints[node].server for node in nodes}
        if len(servers) > 1:
            raise wrong(process, f"{', '.join(nodes)} share a process, so one server")
    for name in deployment.spares:
        if deployment.hosted_by(name):
            raise wrong(
                f"servers.{name}.spare",
                f"it runs {', '.join(deployment.hosted_by(name))}; a spare server runs nothing "
                f"until another is gone",
            )
    if all(is_loopback(server.host) for server in deployment.servers.values()):
        return
    for name, endpoint in endpoints.items():
        if is_loopback(endpoint.host) and name not in deployment.clients:
            raise wrong(
                name,
                f"it listens on {endpoint.host}, where the servers cannot reach it; give it "
                f"an address of this machine's: listen or replicas",
            )


def coordinates(text: str) -> tuple[float, float]:
    """Degrees of latitude and longitude; ValueError if it is something else."""
    try:
        latitude, longitude = (float(part) for part in text.split(","))
    except ValueError:
        latitude = longitude = math.nan
    if not (-90 <= latitude <= 90 and -180 <= longitude <= 180):
        raise ValueError(f'write latitude and longitude in degrees, "52.52, 13.41"; got {text!r}')
    return latitude, longitude
