"""What every answer says to the browser: nothing from elsewhere, nothing inline, in no frame."""

from __future__ import annotations

from starlette.datastructures import MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-frame-options": "DENY",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
    # What it says of a deployment is for whoever is signed in now.
    "cache-control": "no-store",
}


class SafeHeaders:
    """Adds them, and answers nobody who calls the server by another name.

    A page elsewhere whose name was made to point here would be of the same origin.
    """

    def __init__(self, app: ASGIApp, hosts: set[str]) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
            await send(message)

        if _host(scope) not in self._hosts:
            known = ", ".join(sorted(self._hosts))
            answer = PlainTextResponse(f"this server is called {known}", status_code=421)
            await answer(scope, receive, with_headers)
            return
        await self._app(scope, receive, with_headers)


def _host(scope: Scope) -> str:
    """The name the server was called by, without its port."""
    value = next((value for name, value in scope["headers"] if name == b"host"), b"")
    text: str = value.decode("latin-1").lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0]
