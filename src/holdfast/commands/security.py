"""``holdfast security``: certificates for the machines of a deployment, tokens for names."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.commands.arguments import Commands, add_group, for_deployment

if TYPE_CHECKING:
    from holdfast.deployment import Deployment

DAYS = 730
_INIT = """Makes an authority and a certificate for every machine of a deployment, in the directory
security beside its file. What is there and fits is kept; certificates that end within a month, or
lack an address, are made anew, and are taken without a restart."""
_ISSUE = """Makes a certificate for a producer, a client or an operator of a deployment on several
machines: holdfast security issue deployment.toml produce sensor-7"""
_TOKEN = """Prints the token with which somebody without access to the deployment's own tokens may
do one thing under one name: holdfast security token deployment.toml read screen"""


def add_security(commands: Commands) -> None:
    """Add the command to the parser of ``holdfast``."""
    from holdfast.flight.roles import Role

    kinds = add_group(commands, "security", "certificates and tokens of a deployment", "WHAT")
    init = for_deployment(kinds, "init", "certificates for its machines", _init, _INIT)
    init.add_argument("--renew", action="store_true", help="make all of them anew")
    init.add_argument(
        "--cluster", action="store_true", help="its servers form a cluster: they operate each other"
    )
    issue = for_deployment(kinds, "issue", "a certificate for one name", _issue, _ISSUE)
    token = for_deployment(kinds, "token", "a token for one name", _token, _TOKEN)
    for each in (issue, token):
        each.add_argument("role", choices=[role.value for role in Role])
        each.add_argument("name", help="of the producer or client")
    for each in (init, issue):
        each.add_argument("--days", type=int, default=DAYS, help=f"valid for (default: {DAYS})")


def _directory(deployment: Deployment) -> Path:
    return deployment.path.parent / "security"


def hosts_of(deployment: Deployment, machine: str) -> list[str]:
    """The addresses at which a machine's processes are called."""
    from holdfast.flight.roles import HERE

    if machine != HERE:
        return [deployment.servers[machine].host]
    own = {each.host for each in deployment.endpoints.values() if each.server is None}
    return sorted({*own, "127.0.0.1", "localhost"} - {"0.0.0.0", "::"})


def _init(options: argparse.Namespace) -> int:
    from holdfast.deployment import load_deployment
    from holdfast.flight.certificates import Authority, fits, issued
    from holdfast.flight.roles import HERE, Role

    deployment = load_deployment(options.deployment)
    base = _directory(deployment)
    authority = Authority.at(base, deployment.name)
    for machine in (HERE, *deployment.servers):
        # Who starts the deployment operates the others.
        role = Role.OPERATE if machine == HERE or options.cluster else Role.REPLICATE
        place, hosts = base / machine, hosts_of(deployment, machine)
        found = issued(place)
        if found is not None and not options.renew and fits(found, authority, hosts):
            print(f"{machine}: kept, valid until {found.not_valid_after_utc:%Y-%m-%d}")
            continue
        made = authority.issue(place, role, machine, hosts, options.days)
        print(f"{machine}: {place}, valid until {made.not_valid_after_utc:%Y-%m-%d}")
    _say_what_to_do(deployment, base)
    return 0


def _say_what_to_do(deployment: Deployment, base: Path) -> None:
    from holdfast.flight.roles import HERE

    if deployment.security.certificate != base / HERE / "certificate.pem":
        print(f'write into {deployment.path.name}:\n\n[security]\ndirectory = "security/{HERE}"\n')
    for name, endpoint in deployment.servers.items():
        listen = f"--listen {endpoint.host}:{endpoint.port}"
        print(f"copy {base / name} to {endpoint.host}, and run there:")
        print(f"    holdfast server {listen} --data holdfast-data --security {name}")


def _issue(options: argparse.Namespace) -> int:
    from holdfast.deployment import load_deployment
    from holdfast.errors import InputError
    from holdfast.flight.certificates import Authority
    from holdfast.flight.roles import HERE, Role

    deployment = load_deployment(options.deployment)
    base = _directory(deployment)
    if not (base / "authority-key.pem").exists():
        raise InputError(
            f"there is no authority in {base}; make one first: holdfast security init "
            f"{options.deployment}"
        )
    taken = {HERE, *deployment.servers, *deployment.endpoints}
    if options.name in taken or Path(options.name).name != options.name:
        raise InputError(f"{options.name!r} is a machine's or a node's name, or no name at all")
    authority, place = Authority.at(base, deployment.name), base / options.name
    made = authority.issue(place, Role(options.role), options.name, [], options.days)
    print(f"{options.name}: {place}, valid until {made.not_valid_after_utc:%Y-%m-%d}")
    return 0


def _token(options: argparse.Namespace) -> int:
    from holdfast.deployment import load_deployment
    from holdfast.errors import InputError
    from holdfast.flight.roles import Role, make_token

    deployment = load_deployment(options.deployment)
    deployment.security.make()
    role = Role(options.role)
    secrets = deployment.security.read().tokens
    if role not in secrets:
        raise InputError(
            f"{deployment.name} has no tokens for roles but one token, or certificates: hand out "
            f"the one token, or a certificate: holdfast security issue"
        )
    if options.name in deployment.endpoints:
        raise InputError(f"{options.name!r} is a node of {deployment.name}; choose another name")
    print(make_token(role, secrets[role], options.name))
    return 0
