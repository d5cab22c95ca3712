"""``holdfast server``: the command."""

from __future__ import annotations

import argparse
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.commands.arguments import Commands, add_command, add_secrets
from holdfast.errors import InputError
from holdfast.ports import host_and_port

if TYPE_CHECKING:
    from holdfast.cluster.member import ClusterOptions

_ABOUT = """Runs processes of deployments that were started on other machines. Whoever may operate
them (a token or a certificate of that role) may have Python code run here; see --networks."""
_CLUSTER = """Servers that know one another form a cluster: they elect a coordinator, take what is
submitted (holdfast submit) and place it. Each must be allowed to operate the others."""


def add_server(commands: Commands) -> None:
    """Add the command to the parser of ``holdfast``."""
    hosts = "host processes of deployments of other machines"
    parser = add_command(commands, "server", hosts, _server, _ABOUT)
    parser.add_argument("--listen", required=True, metavar="HOST:PORT")
    parser.add_argument("--data", required=True, type=Path, metavar="DIR", help="what it keeps")
    add_secrets(parser)
    parser.add_argument("--certificate", type=Path, metavar="FILE", help="PEM, for TLS")
    parser.add_argument("--key", type=Path, metavar="FILE", help="PEM, for TLS")
    parser.add_argument("--authority", type=Path, metavar="FILE", help="PEM, whom to trust")
    parser.add_argument(
        "--networks", type=Path, metavar="DIR", help="take no code: run only the networks in DIR"
    )
    cluster = parser.add_argument_group("cluster", _CLUSTER)
    cluster.add_argument(
        "--seeds", metavar="HOST:PORT,...", help="the servers that vote; the same list at each"
    )
    cluster.add_argument("--name", help="what deployments call it; needed with --seeds")
    cluster.add_argument(
        "--zone", default="", help="what is likely to fail together; no fragment has two there"
    )
    cluster.add_argument(
        "--at", metavar="LAT,LON", help="where it is, in degrees, for the map of holdfast web"
    )
    cluster.add_argument(
        "--replace-after",
        default="30 seconds",
        metavar="TIME",
        help="replace the replicas of a server that is silent for so long (default: 30 seconds)",
    )
    cluster.add_argument(
        "--move-after",
        default="5 minutes",
        metavar="TIME",
        help="move a replica that was better off elsewhere for so long (default: 5 minutes)",
    )
    cluster.add_argument(
        "--metrics-port",
        type=int,
        metavar="PORT",
        help="serve metrics of the cluster and its health over HTTP, on 127.0.0.1; 0: any port",
    )


def _server(options: argparse.Namespace) -> int:
    from holdfast.cluster.server import Server
    from holdfast.deployment import SecuritySpec
    from holdfast.nodes.journal import adopt_logging

    host, port = host_and_port(options.listen, "--listen")
    security = SecuritySpec(
        options.token_file, options.certificate, options.key, options.authority, options.tokens
    )
    if options.security is not None:
        if security != SecuritySpec():
            raise InputError("--security has all that is needed; leave the other files away")
        security = SecuritySpec.at(options.security)
    adopt_logging("server")
    cluster = _cluster_options(options, host)
    metrics = options.metrics_port
    server = Server(host, port, options.data, security, options.networks, cluster, metrics)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: server.request_stop())
    server.run()
    return 0


def _cluster_options(options: argparse.Namespace, host: str) -> ClusterOptions | None:
    from holdfast.cluster.member import ClusterOptions, check_name
    from holdfast.core.adaptation import AdaptationSettings
    from holdfast.deployment_checks import coordinates
    from holdfast.times import microseconds

    if options.seeds is None:
        if options.name is not None or options.zone or options.metrics_port is not None:
            raise InputError(
                "--name, --zone and --metrics-port are for clusters: give --seeds, too"
            )
        return None
    if not options.name:
        raise InputError("a server of a cluster needs a --name, which deployments call it by")
    check_name(options.name)
    seeds = tuple(sorted({each.strip() for each in options.seeds.split(",") if each.strip()}))
    for seed in seeds:
        host_and_port(seed, "each of --seeds")
    if host in ("0.0.0.0", "::"):
        raise InputError("--listen is the address that the other servers of the cluster call")
    at: tuple[float, ...] = ()
    if options.at is not None:
        try:
            at = coordinates(options.at)
        except ValueError as error:
            raise InputError(f"--at: {error}") from None
    after_s = microseconds(options.replace_after) / 1e6
    hold_us = microseconds(options.move_after)
    # After a move a submission rests for twice as long.
    adaptation = AdaptationSettings(hold_us=hold_us, rest_us=2 * hold_us)
    return ClusterOptions(options.name, seeds, options.zone, after_s, adaptation, at=at)
