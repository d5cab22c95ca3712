"""The HTTP server of a process: its metrics, and whether it is well.

/metrics   for Prometheus
/health    200 if every node makes progress or has nothing to do, else 503; why, as JSON
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import make_wsgi_app

from holdfast.nodes.metrics import registry

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

# What is wrong with each node; nothing for those that are well.
Health = Callable[[], Mapping[str, list[str]]]


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Whoever asks every second need not be written down."""


def serve_http(host: str, port: int, health: Health) -> int:
    """Serve in threads of its own; the port."""
    metrics = make_wsgi_app(registry)

    def answer(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        if environ.get("PATH_INFO", "").rstrip("/") != "/health":
            return metrics(environ, start)  # type: ignore[no-any-return]
        problems = health()
        well = not any(problems.values())
        status = "200 OK" if well else "503 Service Unavailable"
        start(status, [("Content-Type", "application/json")])
        return [json.dumps({"well": well, "problems": problems}).encode() + b"\n"]

    server = make_server(host, port, answer, _Server, _Quiet)
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return int(server.server_port)
