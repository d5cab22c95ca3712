"""Asks a server of the page as a browser would, without one."""

from __future__ import annotations

import http.client
import json
from collections.abc import Generator
from typing import Any

from holdfast.deployment import Deployment
from holdfast.flight.roles import Role, make_token


class Answer:
    """What came back."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        self.text = response.read().decode()

    @property
    def json(self) -> Any:
        return json.loads(self.text)


class Browser:
    """Keeps a cookie, and sends what a browser sends."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.cookie = ""
        self.csrf = ""

    def get(self, path: str, **headers: str) -> Answer:
        return self._ask("GET", path, None, headers)

    def post(self, path: str, body: Any, **headers: str) -> Answer:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self._ask("POST", path, data, {"X-Holdfast-Csrf": self.csrf, **headers})

    def sign_in(self, deployment: Deployment, role: Role, name: str = "ada") -> Answer:
        secret = deployment.security.read().tokens[role]
        answer = self.post("/api/sign-in", {"name": name, "token": make_token(role, secret, name)})
        self.keep(answer)
        return answer

    def keep(self, answer: Answer) -> None:
        self.cookie = answer.headers["set-cookie"].partition(";")[0]
        self.csrf = answer.json["csrf"]

    def events(self) -> Generator[tuple[str, Any], None, None]:
        """The event stream: kind and message."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", "/api/events", headers={"Cookie": self.cookie})
        response = connection.getresponse()
        try:
            assert response.status == 200
            kind = ""
            while line := response.readline().decode():
                if line.startswith("event: "):
                    kind = line[7:].strip()
                elif line.startswith("data: "):
                    yield kind, json.loads(line[6:])
        finally:
            response.close()
            connection.close()

    def _ask(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            given = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, {"Cookie": self.cookie, **given})
            return Answer(connection.getresponse())
        finally:
            connection.close()
