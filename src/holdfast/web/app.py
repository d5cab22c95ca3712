"""The requests of the page.

    GET  /                 the page, and /static/...
    POST /api/sign-in      {"name", "token"} or {"code"}; sets the cookie
    POST /api/sign-out
    GET  /api/session      who one is, and what must come back with every POST
    GET  /api/events       the event stream
    POST /api/control      a failure on purpose: role operate
    GET  /api/edit         network and knobs as they are: role operate; editing.py has the rest

Of what a cluster runs, ``?of=NAME`` behind the last four says which; without it, the first.
Everything but the page itself needs a session. Whatever changes something must come from the page
itself (Origin) and bring the session's number. Nothing is loaded from anywhere else.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from holdfast.errors import HoldfastError, InputError
from holdfast.flight.roles import Role
from holdfast.web.headers import SafeHeaders
from holdfast.web.sessions import SESSION_SECONDS, Session, Sessions
from holdfast.web.showing import Showing, Shown

COOKIE = "holdfast-session"
CSRF_HEADER = "x-holdfast-csrf"
_STATIC = Path(__file__).with_name("static")
_LARGEST_BODY = 1 << 20
_WRONG_TOKEN_SECONDS = 0.5

Answer = Callable[[Request, Session], Awaitable[Response]]


class Refusal(HoldfastError):
    """A request that is not answered, with its status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Page:
    """What answers the requests."""

    def __init__(self, showing: Showing, sessions: Sessions, secure: bool) -> None:
        """``secure``: over TLS, so the cookie is never sent without."""
        self._showing = showing
        self._sessions = sessions
        self._secure = secure

    def routes(self) -> list[Route | Mount]:
        return [
            Route("/", self._index),
            Route("/api/sign-in", self._sign_in, methods=["POST"]),
            Route("/api/sign-out", self._sign_out, methods=["POST"]),
            Route("/api/session", self._session),
            Route("/api/events", self._for(self._events)),
            Route("/api/control", self._for(self._control, Role.OPERATE), methods=["POST"]),
            Route("/api/edit", self._for(self._edit, Role.OPERATE)),
            Route("/api/edit/check", self._for(self._check, Role.OPERATE), methods=["POST"]),
            Route("/api/edit/submit", self._for(self._submit, Role.OPERATE), methods=["POST"]),
            Mount("/static", StaticFiles(directory=_STATIC)),
        ]

    async def _index(self, request: Request) -> Response:
        return FileResponse(_STATIC / "index.html")

    # -- sessions -----------------------------------------------------------------------

    async def _sign_in(self, request: Request) -> Response:
        try:
            _check_origin(request)
            asked = await _body(request)
        except Refusal as error:
            return _said(error.status, str(error))
        code, name, token = (str(asked.get(each, "")) for each in ("code", "name", "token"))
        session = self._sessions.sign_in_once(code) if code else self._sessions.sign_in(name, token)
        if session is None:
            await asyncio.sleep(_WRONG_TOKEN_SECONDS)
            return _said(
                403,
                "this link was used already, or is too old; the server's terminal can make "
                "another" if code else "the name and the token do not go together",
            )  # fmt: skip
        answer = self._session_of(session)
        answer.set_cookie(
            COOKIE,
            session.key,
            max_age=int(SESSION_SECONDS),
            httponly=True,
            samesite="strict",
            secure=self._secure,
            path="/",
        )
        return answer

    async def _sign_out(self, request: Request) -> Response:
        try:
            session = self._allowed(request, Role.READ)
        except Refusal as error:
            return _said(error.status, str(error))
        self._sessions.end(session.key)
        answer = _said(200, "signed out")
        answer.delete_cookie(COOKIE, path="/")
        return answer

    async def _session(self, request: Request) -> Response:
        session = self._sessions.find(request.cookies.get(COOKIE, ""))
        return JSONResponse({"name": None}) if session is None else self._session_of(session)

    def _session_of(self, session: Session) -> JSONResponse:
        may_operate = Role.OPERATE in self._sessions.roles(session)
        return JSONResponse(
            {"name": session.name, "operate": may_operate, "csrf": session.csrf,
             "edit": may_operate and self._showing.first.editor.is_open}
        )  # fmt: skip

    def _for(self, answer: Answer, role: Role = Role.READ) -> Callable[..., Awaitable[Response]]:
        """A request that needs a session with a role; what goes wrong is said as JSON."""

        async def respond(request: Request) -> Response:
            try:
                return await answer(request, self._allowed(request, role))
            except Refusal as error:
                return _said(error.status, str(error))
            except HoldfastError as error:
                return _said(409, str(error))

        return respond

    def _allowed(self, request: Request, role: Role) -> Session:
        session = self._sessions.find(request.cookies.get(COOKIE, ""))
        if session is None:
            raise Refusal(401, "sign in first")
        if request.method != "GET":
            _check_origin(request)
            if not session.is_csrf(request.headers.get(CSRF_HEADER, "")):
                raise Refusal(403, "the request did not come from the page: load it again")
        if role not in self._sessions.roles(session):
            raise Refusal(403, f"this needs the role {role.value}; {session.name} has not got it")
        return session

    # -- what the page asks for ---------------------------------------------------------

    async def _shown(self, request: Request) -> Shown:
        return await asyncio.to_thread(self._showing.of, request.query_params.get("of", ""))

    async def _events(self, request: Request, session: Session) -> Response:
        watch = (await self._shown(request)).watch
        if watch.hub.is_full:
            raise Refusal(503, "too many look at this page already; close one and load it again")
        watch.hub.open(asyncio.get_running_loop())
        return StreamingResponse(watch.hub.messages(watch.snapshot), media_type="text/event-stream")

    async def _control(self, request: Request, session: Session) -> Response:
        asked, shown = await _body(request), await self._shown(request)
        said = await asyncio.to_thread(shown.controls.carry_out, session.name, asked)
        return _said(200, said)

    async def _edit(self, request: Request, session: Session) -> Response:
        shown = await self._shown(request)
        return JSONResponse(await asyncio.to_thread(shown.editor.texts))

    async def _check(self, request: Request, session: Session) -> Response:
        asked, shown = await _body(request), await self._shown(request)
        return JSONResponse(await asyncio.to_thread(shown.editor.check, asked))

    async def _submit(self, request: Request, session: Session) -> Response:
        asked, shown = await _body(request), await self._shown(request)
        return JSONResponse(await asyncio.to_thread(shown.editor.submit, session.name, asked))


def make_app(page: Page, showing: Showing, hosts: set[str]) -> Starlette:
    """The application; ``hosts`` are the names it is reached by."""

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        for each in showing:
            each.watch.hub.close()

    app = Starlette(routes=page.routes(), lifespan=lifespan)
    app.add_middleware(SafeHeaders, hosts=hosts)
    return app


def _said(status: int, text: str) -> JSONResponse:
    return JSONResponse({"said": text}, status_code=status)


async def _body(request: Request) -> dict[str, Any]:
    """A JSON object of a reasonable size."""
    data = b""
    async for part in request.stream():
        data += part
        if len(data) > _LARGEST_BODY:
            raise Refusal(413, f"a request has at most {_LARGEST_BODY} bytes")
    try:
        found = json.loads(data)
    except ValueError:
        raise InputError("the request is no JSON") from None
    if not isinstance(found, dict):
        raise InputError("the request must be a JSON object")
    return found


def _check_origin(request: Request) -> None:
    """A browser says which page a request comes from; another page's are refused."""
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
        raise Refusal(403, f"the request comes from {origin}, another page")
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise Refusal(403, "the request comes from another page")
