"""What a caller may do, and how it shows that.

    produce    hand tuples to entry points
    read       subscribe to streams, and acknowledge under a client's name
    replicate  be a node of the deployment: feeds, heartbeats, partners, checkpoints
    operate    deploy, restart, signal, disturb, look at logs; includes all of the above

A role has a secret. What is sent is no secret but a token made of it for one name:

    produce:HMAC-SHA256(secret, "produce\\nsensor-7")

so a token that is handed out, or overheard, is good for that role and that name and nothing
else. A certificate shows the same by the first of its alternative names,
``holdfast://ROLE/WHO``: WHO is a name, or for replicate and operate a machine, whose nodes are
those that the deployment puts there.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from enum import Enum

# What the commands go by.
COMMANDS = "holdfast"
# The machine a deployment is started on; the others are its servers.
HERE = "here"
_SCHEME = "holdfast://"


class Role(Enum):
    PRODUCE = "produce"
    READ = "read"
    REPLICATE = "replicate"
    OPERATE = "operate"


ALL_ROLES = frozenset(Role)
NO_ROLES: frozenset[Role] = frozenset()

# Machine -> the nodes that may speak from it.
Machines = Mapping[str, frozenset[str]]


def including(role: Role) -> frozenset[Role]:
    """The role and those it includes."""
    return ALL_ROLES if role is Role.OPERATE else frozenset({role})


def make_token(role: Role, secret: str, name: str) -> str:
    """What ``name`` sends to be let in with a role."""
    digest = hmac.new(secret.encode(), f"{role.value}\n{name}".encode(), hashlib.sha256)
    return f"{role.value}:{digest.hexdigest()}"


def roles_of_token(token: str, name: str, secrets: Mapping[Role, str]) -> frozenset[Role]:
    """What a token lets ``name`` do; nothing if it is not of one of these secrets."""
    for role, secret in secrets.items():
        if hmac.compare_digest(token.encode(), make_token(role, secret, name).encode()):
            return including(role)
    return NO_ROLES


def identity(role: Role, who: str) -> str:
    """The alternative name of a certificate."""
    return f"{_SCHEME}{role.value}/{who}"


def roles_of_identity(found: str, name: str, machines: Machines) -> frozenset[Role]:
    """What a certificate lets ``name`` do."""
    if not found.startswith(_SCHEME):
        return NO_ROLES
    text, _, who = found.removeprefix(_SCHEME).partition("/")
    try:
        role = Role(text)
    except ValueError:
        return NO_ROLES
    if role in (Role.PRODUCE, Role.READ):
        return including(role) if who == name else NO_ROLES
    is_own = name in machines.get(who, ()) or name == who
    if role is Role.OPERATE and name not in nodes_of(machines):
        is_own = True  # an operator may also produce and read, under any name that is no node's
    return including(role) if is_own else NO_ROLES


def nodes_of(machines: Machines) -> frozenset[str]:
    """The names of all nodes: nobody else goes by them."""
    return frozenset().union(*machines.values())


def without_foreign_names(roles: frozenset[Role], name: str, machines: Machines) -> frozenset[Role]:
    """Who only produces or reads does not go by the name of a node."""
    if Role.REPLICATE in roles or name not in nodes_of(machines):
        return roles
    return NO_ROLES
