"""The server of the page: ``holdfast web``, in the foreground or in a thread of its own."""

from __future__ import annotations

import argparse
import contextlib
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import uvicorn

from holdfast.deployment import Deployment, load_deployment
from holdfast.errors import HoldfastError
from holdfast.flight.credentials import SecuritySpec
from holdfast.flight.security import is_loopback
from holdfast.web.app import Page, make_app
from holdfast.web.sessions import Sessions
from holdfast.web.showing import Showing, Shown, submissions

_START_SECONDS = 60.0
_OWN_NAMES = {"127.0.0.1", "localhost", "::1"}


class WebServer:
    """Serves the page of one deployment, or of what a cluster runs."""

    def __init__(
        self,
        deployment: Deployment,
        host: str = "127.0.0.1",
        port: int = 0,
        names: tuple[str, ...] = (),
        not_editable: str | None = None,
        showing: Showing | None = None,
    ) -> None:
        """
        names         it is reached by, beside its host.
        not_editable  why, if it is not.
        showing       all that a cluster runs, if that is what is watched.
        """
        deployment.security.make()
        security = deployment.security.read()
        security.check_binding(host)
        self._secure = not is_loopback(host)
        self._host = host
        self.showing = showing or Showing(Shown.of(deployment, not_editable=not_editable))
        self.watch = self.showing.first.watch
        self.sessions = Sessions(lambda: security.current())
        page = Page(self.showing, self.sessions, self._secure)
        hosts = {name.lower() for name in (host, *names)} | _OWN_NAMES
        spec = deployment.security
        self._socket = _listening(host, port)
        self._server = uvicorn.Server(
            uvicorn.Config(
                make_app(page, self.showing, hosts),
                log_level="warning",
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=2,
                ssl_certfile=str(spec.certificate) if self._secure else None,
                ssl_keyfile=str(spec.key) if self._secure else None,
            )
        )
        self._thread = threading.Thread(target=self._run, name="holdfast-web", daemon=True)

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    @property
    def address(self) -> str:
        scheme = "https" if self._secure else "http"
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{scheme}://{host}:{self.port}/"

    def link(self) -> str:
        """Signs its first visitor in, who may operate."""
        # What follows # is not sent to any server, and not written into any log.
        return f"{self.address}#code={self.sessions.make_link_code()}"

    def start(self) -> None:
        self.watch.start()
        self._thread.start()
        deadline = time.monotonic() + _START_SECONDS
        while not self._server.started:
            if time.monotonic() > deadline or not self._thread.is_alive():
                raise HoldfastError(f"the server did not start on {self.address}")
            time.sleep(0.02)

    def close(self) -> None:
        for each in self.showing:
            each.watch.hub.end()
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(10.0)
        self.showing.close()
        self._socket.close()

    def _run(self) -> None:
        self._server.run(sockets=[self._socket])


@contextlib.contextmanager
def serving(server: WebServer) -> Iterator[WebServer]:
    """The server, running."""
    try:
        server.start()
        yield server
    finally:
        server.close()


def run_web(options: argparse.Namespace) -> int:
    """The command; until it is interrupted."""
    stopping = threading.Event()
    _on_signals(stopping.set)
    with watched(options) as server, serving(server):
        deployment = server.watch.deployment
        print(f"{deployment.name} is shown on {server.address}; ctrl-c stops it")
        print(f"this link signs in once, as an operator, within ten minutes:\n{server.link()}")
        print(f"others sign in with a token: holdfast security token {deployment.path} read NAME")
        sys.stdout.flush()
        stopping.wait()
    return 0


@contextlib.contextmanager
def watched(options: argparse.Namespace) -> Iterator[WebServer]:
    """The server of what was named: a deployment's file, or a server of a cluster."""
    named, names = str(options.deployment), tuple(options.name)
    if not is_address(named):
        yield WebServer(load_deployment(named), options.host, options.port, names)
        return
    spec = SecuritySpec.given(options.security, options.token_file, options.tokens)
    with tempfile.TemporaryDirectory(prefix="holdfast-web-") as directory:
        first, another = submissions(named, spec, options.submission, Path(directory))
        yield WebServer(
            first.watch.deployment,
            options.host,
            options.port,
            names,
            showing=Showing(first, another),
        )


def is_address(text: str) -> bool:
    """Whether it is host:port, and no file."""
    host, _, port = text.rpartition(":")
    return bool(host) and port.isdigit() and not Path(text).exists()


def _on_signals(stop: Callable[[], None]) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: stop())


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
    except OSError as error:
        made.close()
        raise HoldfastError(
            f"cannot listen on {host}:{port}: {error.strerror}; choose another with --port"
        ) from None
    return made
