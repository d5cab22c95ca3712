"""What nodes have kept on another machine, asked of the server that runs them there.

Every question of ``KeptNodes`` goes over the wire as its name and its arguments, by the types that
it has there; ``answer`` is the server's side.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any, get_type_hints

import msgspec

from holdfast.cluster.kept_nodes import KeptNodes
from holdfast.cluster.remote import RemoteServer
from holdfast.deployment import Deployment
from holdfast.errors import HoldfastError

# Copying a state may take a while.
_SECONDS = 120.0
_QUESTIONS = {
    name: get_type_hints(method)
    for name, method in vars(KeptNodes).items()
    if not name.startswith("_")
}


class KeptElsewhere(KeptNodes):
    """What nodes have kept where a server runs them."""

    def __init__(self, deployment: Deployment, server: str) -> None:
        super().__init__(deployment.data)
        self._server = RemoteServer(deployment, server)


def _asking(name: str) -> Callable[..., Any]:
    """A question of ``KeptNodes`` that is put to a server."""
    known = signature(getattr(KeptNodes, name))

    def ask(self: KeptElsewhere, *given: Any, **named: Any) -> Any:
        _, *asked = known.bind(self, *given, **named).arguments.items()
        options = {"what": name, "asked": msgspec.to_builtins(dict(asked))}
        return msgspec.convert(self._server.ask_kept(options, _SECONDS), _QUESTIONS[name]["return"])

    return ask


for _name in _QUESTIONS:
    setattr(KeptElsewhere, _name, _asking(_name))


def answer(kept: KeptNodes, what: str, asked: dict[str, Any]) -> Any:
    """What ``KeptElsewhere`` asks for, of what nodes have kept here."""
    if what not in _QUESTIONS:
        raise HoldfastError(f"what nodes have kept cannot be asked for {what!r}")
    types = _QUESTIONS[what]
    given = {name: msgspec.convert(value, types[name]) for name, value in asked.items()}
    return msgspec.to_builtins(getattr(kept, what)(**given))
