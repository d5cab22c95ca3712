"""The requests of the page: who gets what, and what is refused. The deployment is not running."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast.web
from benchmarks.web_requests import Browser
from holdfast.deployment import Deployment, load_deployment
from holdfast.flight.roles import Role
from holdfast.flight.secrets import make_secret
from holdfast.web.serve import WebServer, serving

DEPLOYMENT = """\
name = "still"
network = "network.py"
chaos = {chaos}

[sources.load]

[fragments.main]
replicas = 2
"""
NETWORK = "network = None\n"


def written(directory: Path, chaos: bool = True) -> Deployment:
    (directory / "network.py").write_text(NETWORK)
    (directory / "deployment.toml").write_text(DEPLOYMENT.format(chaos=str(chaos).lower()))
    return load_deployment(directory / "deployment.toml")


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    return written(tmp_path_factory.mktemp("still"))


@pytest.fixture(scope="module")
def server(deployment: Deployment) -> Iterator[WebServer]:
    with serving(WebServer(deployment)) as running:
        yield running


@pytest.fixture
def browser(server: WebServer) -> Browser:
    return Browser(server.port)


def test_the_page_and_its_files_load_nothing_from_elsewhere(browser: Browser) -> None:
    page = browser.get("/")
    assert page.status == 200
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert page.headers["x-content-type-options"] == "nosniff"
    names = [path.name for path in Path(holdfast.web.__file__).with_name("static").iterdir()]
    assert {"main.js", "style.css"} <= set(names)
    whole = len(page.text)
    for name in names:
        answer = browser.get(f"/static/{name}")
        assert answer.status == 200
        assert "http://" not in answer.text.replace("http://www.w3.org/", "")
        assert "https://" not in answer.text
        assert answer.headers["content-security-policy"] == policy
        whole += len(answer.text)
    assert whole < 800_000
    assert browser.get("/static/../app.py").status == 404


@pytest.mark.parametrize("path", ["/api/events", "/api/edit"])
def test_nothing_is_said_to_strangers(browser: Browser, path: str) -> None:
    assert browser.get(path).status == 401
    browser.cookie = "holdfast-session=guessed"
    assert browser.get(path).status == 401
    assert browser.get("/api/session").json == {"name": None}


def test_signing_in_sets_a_strict_cookie(browser: Browser, deployment: Deployment) -> None:
    wrong = browser.post("/api/sign-in", {"name": "ada", "token": "read:guessed"})
    assert wrong.status == 403
    assert "set-cookie" not in wrong.headers
    answer = browser.sign_in(deployment, Role.READ)
    assert answer.status == 200
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    found = browser.get("/api/session").json
    assert (found["name"], found["operate"], found["edit"]) == ("ada", False, False)
    assert browser.post("/api/sign-out", {}).status == 200
    assert browser.get("/api/session").json == {"name": None}


def test_who_only_reads_operates_nothing(browser: Browser, deployment: Deployment) -> None:
    browser.sign_in(deployment, Role.READ)
    kill = {"action": "kill", "process": "main-1"}
    for answer in (
        browser.post("/api/control", kill),
        browser.get("/api/edit"),
        browser.post("/api/edit/check", {"network": NETWORK}),
        browser.post("/api/edit/submit", {"network": NETWORK}),
    ):
        assert answer.status == 403
        assert "needs the role operate" in answer.json["said"]


def test_a_control_needs_the_sessions_number_and_the_pages_origin(
    browser: Browser, deployment: Deployment
) -> None:
    browser.sign_in(deployment, Role.OPERATE)
    csrf, kill = browser.csrf, {"action": "kill", "process": "main-1"}
    browser.csrf = ""
    assert browser.post("/api/control", kill).status == 403
    browser.csrf = "guessed"
    assert browser.post("/api/control", kill).status == 403
    browser.csrf = csrf
    elsewhere = browser.post("/api/control", kill, Origin="http://elsewhere.example")
    assert elsewhere.status == 403
    assert browser.post("/api/control", kill, Sec_Fetch_Site="cross-site").status == 403
    # All that is left is what the deployment itself says.
    own = browser.post("/api/control", kill, Origin=f"http://127.0.0.1:{browser.port}")
    assert own.status == 409
    assert "not running" in own.json["said"]


def test_a_sign_in_from_another_page_is_refused(browser: Browser) -> None:
    asked = {"name": "ada", "token": "x"}
    answer = browser.post("/api/sign-in", asked, Origin="http://elsewhere.example")
    assert answer.status == 403
    assert "another page" in answer.json["said"]


def test_a_server_that_is_called_by_another_name_says_nothing(browser: Browser) -> None:
    for name in ("elsewhere.example", f"elsewhere.example:{browser.port}", ""):
        assert browser.get("/", Host=name).status == 421
    assert browser.get("/", Host=f"localhost:{browser.port}").status == 200


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"no JSON", "no JSON"),
        ([1], "JSON object"),
        ({"action": "explode"}, "there is no control 'explode'"),
        ({"action": "kill"}, "process must be a name"),
        ({"action": "kill", "process": "nobody"}, "there is no process 'nobody'"),
        ({"action": "slow", "process": "main-1", "seconds": "long"}, "seconds must be a number"),
        ({"action": "slow", "process": "main-1", "share": 2}, "share is from 0"),
        ({"action": "cut", "source": "main-1"}, "target must be a name"),
    ],
)
def test_a_control_that_makes_no_sense_says_so(
    browser: Browser, deployment: Deployment, body: object, said: str
) -> None:
    browser.sign_in(deployment, Role.OPERATE)
    answer = browser.post("/api/control", body)
    assert answer.status == 409
    assert said in answer.json["said"]


def test_a_body_without_end_is_not_read(browser: Browser, deployment: Deployment) -> None:
    browser.sign_in(deployment, Role.OPERATE)
    assert browser.post("/api/control", b"x" * (2 << 20)).status == 413


def test_the_stream_says_that_nothing_runs(browser: Browser, deployment: Deployment) -> None:
    browser.sign_in(deployment, Role.READ)
    with contextlib.closing(browser.events()) as events:
        kind, message = next(events)
    assert kind == "snapshot"
    assert message["fixed"]["deployment"] == "still"
    assert "holdfast up" in message["general"]["problem"]
    secrets = [path.read_text().strip() for path in (deployment.data / "tokens").iterdir()]
    assert secrets
    assert not any(secret in str(message) for secret in secrets)


def test_what_was_done_reaches_every_viewer(browser: Browser, deployment: Deployment) -> None:
    browser.sign_in(deployment, Role.OPERATE)
    with contextlib.closing(browser.events()) as one, contextlib.closing(browser.events()) as other:
        numbers = [next(events)[1]["number"] for events in (one, other)]
        browser.post("/api/control", {"action": "pause", "process": "main-2"})
        for events, number in zip((one, other), numbers, strict=True):
            last = number
            for _, message in itertools.islice(events, 50):
                # What is in the first message may come once more: the page passes over it.
                assert message["number"] <= number or message["number"] == last + 1
                last = max(number, message["number"])
                if "pause main-2" in str(message.get("controls")):
                    break
            else:
                raise AssertionError("it never came")


def test_a_token_that_is_taken_back_ends_the_session(tmp_path: Path) -> None:
    deployment = written(tmp_path)
    with serving(WebServer(deployment)) as server:
        browser = Browser(server.port)
        browser.sign_in(deployment, Role.READ)
        assert browser.get("/api/session").json["name"] == "ada"
        (deployment.data / "tokens" / "read").unlink()
        make_secret(deployment.data / "tokens" / "read")
        server.sessions._security = lambda: deployment.security.read()  # without the grace
        assert browser.get("/api/session").json["name"] is None


def test_a_server_that_stops_ends_the_streams_of_those_who_watch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    deployment = written(tmp_path)
    with serving(WebServer(deployment)) as server:
        browser = Browser(server.port)
        browser.sign_in(deployment, Role.READ)
        events = browser.events()
        assert next(events)[0] == "snapshot"
    # Nothing is broken off, about which a server would complain.
    assert all(kind == "changes" for kind, _ in events)
    assert not [each for each in caplog.records if each.levelname in ("ERROR", "CRITICAL")]


def test_no_chaos_where_the_deployment_does_not_allow_it(tmp_path: Path) -> None:
    deployment = written(tmp_path, chaos=False)
    with serving(WebServer(deployment)) as server:
        browser = Browser(server.port)
        browser.sign_in(deployment, Role.OPERATE)
        answer = browser.post("/api/control", {"action": "kill", "process": "main-1"})
        assert answer.status == 409
        assert "chaos = true" in answer.json["said"]


def test_a_link_signs_in_once(server: WebServer, browser: Browser) -> None:
    code = server.link().partition("#code=")[2]
    answer = browser.post("/api/sign-in", {"code": code})
    assert answer.status == 200
    assert answer.json["operate"]
    again = browser.post("/api/sign-in", {"code": code})
    assert again.status == 403
    assert "used already" in again.json["said"]


def test_the_knobs_and_the_source_are_told_to_who_may_change_them(
    browser: Browser, deployment: Deployment
) -> None:
    browser.sign_in(deployment, Role.OPERATE)
    found = browser.get("/api/edit").json
    assert found["network"] == NETWORK
    knobs = {each["name"]: each["value"] for each in found["knobs"]}
    assert knobs["timing.delay"] == "3 seconds"
    assert knobs["fragments.main.protection"] == "active"
    assert knobs["fragments.main.replicas"] == 2
    for knobs, said in (
        ({"security.token_file": "x"}, "no knob of this page"),
        ({"fragments.other.replicas": 2}, "no knob of this page"),
        ({"timing.delay": None}, "a text or a number"),
    ):
        answer = browser.post("/api/edit/check", {"network": NETWORK, "knobs": knobs})
        assert answer.status == 409
        assert said in answer.json["said"]
    unchecked = browser.post("/api/edit/submit", {"network": "x = 1\n", "digest": "0"})
    assert unchecked.status == 409
    assert "not what was checked" in unchecked.json["said"]


def test_listening_for_others_needs_tls(deployment: Deployment) -> None:
    with pytest.raises(Exception, match="needs a token and TLS"):
        WebServer(deployment, host="0.0.0.0")
