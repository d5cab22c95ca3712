"""``holdfast server``: the command."""

from __future__ import annotations

import argparse
import signal
from pathlib import Path
from typing import Any

_ABOUT = """Runs processes of deployments that were started on other machines. Whoever may operate
them (a token or a certificate of that role) may have Python code run here; see --networks."""


def add_server(commands: argparse._SubParsersAction[Any]) -> None:
    """Add the command to the parser of ``holdfast``."""
    parser = commands.add_parser(
        "server", help="host processes of deployments of other machines", description=_ABOUT
    )
    parser.add_argument("--listen", required=True, metavar="HOST:PORT")
    parser.add_argument("--data", required=True, type=Path, metavar="DIR", help="what it keeps")
    parser.add_argument("--token-file", type=Path, metavar="FILE", help="a token for every role")
    parser.add_argument("--tokens", type=Path, metavar="DIR", help="a token for each role")
    parser.add_argument(
        "--security", type=Path, metavar="DIR", help="what holdfast security init made for it"
    )
    parser.add_argument("--certificate", type=Path, metavar="FILE", help="PEM, for TLS")
    parser.add_argument("--key", type=Path, metavar="FILE", help="PEM, for TLS")
    parser.add_argument("--authority", type=Path, metavar="FILE", help="PEM, whom to trust")
    parser.add_argument(
        "--networks", type=Path, metavar="DIR", help="take no code: run only the networks in DIR"
    )
    parser.set_defaults(command=_server)


def _server(options: argparse.Namespace) -> int:
    from holdfast.cluster.server import Server
    from holdfast.deployment import SecuritySpec
    from holdfast.errors import InputError
    from holdfast.nodes.journal import adopt_logging

    host, _, port = options.listen.rpartition(":")
    if not host or not port.isdigit():
        raise InputError(f"--listen is host:port, got {options.listen!r}")
    one_by_one = (
        options.token_file,
        options.tokens,
        options.certificate,
        options.key,
        options.authority,
    )
    if options.security is not None and any(one_by_one):
        raise InputError("--security has all that is needed; leave the other files away")
    security = SecuritySpec(
        options.token_file, options.certificate, options.key, options.authority, options.tokens
    )
    if options.security is not None:
        security = SecuritySpec.at(options.security)
    adopt_logging("server")
    server = Server(host, int(port), options.data, security, options.networks)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: server.request_stop())
    server.run()
    return 0
