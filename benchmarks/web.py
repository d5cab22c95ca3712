"""``make bench BENCH=web``: the page of ``holdfast web``, one JSON line.

    update_ms     from a replica's change of state, as its journal has it, to its picture
    frame_ms      script and layout of an update, painting apart, with 200 operators and with
                  1,000 servers of which everything changes twice a second
    replica_cost  processor time of the replicas per tuple without a server of the page, over that
                  with one that ten viewers look at: the median of alternated rounds
    page_kb       everything the page loads, over the wire, before the first event

The deployment is real and small; that of the frames is made up, for nobody has so many servers.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.machine import describe_machine
from benchmarks.record import RESULTS, record
from benchmarks.web_browser import Visitor, browser_path, chromium
from benchmarks.web_figures import ROUNDS, VIEWERS, ages, figures, page, percentile
from benchmarks.web_made_up import look, small, wide
from benchmarks.web_requests import Browser
from benchmarks.web_setting import running, write_deployment
from holdfast.cluster.chaos import cut, heal
from holdfast.cluster.children import log_path
from holdfast.cluster.status import node_status
from holdfast.cluster.supervisor import local_state
from holdfast.cluster.usage import usage
from holdfast.deployment import Deployment
from holdfast.web.looking import LOOK_SECONDS, Looker
from holdfast.web.model import shown_state
from holdfast.web.serve import WebServer, serving

OPERATORS, SERVERS = 200, 1_000
REPLICAS = ("main-1", "main-2")
_WAIT_SECONDS = 300.0
# A browser compiles what runs often.
_WARM_UP = 6
# In the page: when each change of state was in a frame that the browser had laid out and painted.
_WATCH = """() => {
  const seen = new Map();
  window.drawn = [];
  const note = () => {
    const now = Date.now() / 1000;
    for (const [node, kept] of Object.entries(holdfast.store.states)) {
      const known = seen.get(node) ?? kept.length;
      for (const [, state] of kept.slice(known)) drawn.push([node, state, now]);
      seen.set(node, kept.length);
    }
  };
  note();
  holdfast.store.listen(() => requestAnimationFrame(() => requestAnimationFrame(note)));
}"""


class Clock:
    """The processor milliseconds that a page's own thread has spent on script, style and layout.

    Not on painting, and not while others had the processor: what an update takes of a frame.
    """

    _PARTS = ("ScriptDuration", "LayoutDuration", "RecalcStyleDuration")

    def __init__(self, visitor: Visitor) -> None:
        self._session = visitor.context.new_cdp_session(visitor.page)
        self._session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def read(self) -> float:
        found = self._session.send("Performance.getMetrics")["metrics"]
        return 1000 * sum(float(each["value"]) for each in found if each["name"] in self._PARTS)


def frames(visitor: Visitor, view: str, server: WebServer, seconds: float) -> list[float]:
    """What each update of a view took while everything changed, the first ones left out."""
    visitor.show(view)
    clock, found = Clock(visitor), []
    end, turn = time.monotonic() + seconds, 2
    while time.monotonic() < end or turn < _WARM_UP + 8:
        before, drawn = clock.read(), visitor.page.evaluate("holdfast.frameCount")
        server.watch.take_look(look(server.watch.deployment, turn))
        visitor.page.wait_for_function(f"() => holdfast.frameCount > {drawn}")
        visitor.page.wait_for_timeout(1000 * LOOK_SECONDS)
        count = visitor.page.evaluate("holdfast.frameCount") - drawn
        if turn >= _WARM_UP:
            found.append((clock.read() - before) / count)
        turn += 1
    return found


def made_up_frames(browser: Any, seconds: float) -> dict[str, Any]:
    """Updates with many operators, and with many servers; and what the page weighs."""
    original = Looker.look
    # Nobody is asked: what was seen is made up, and put in by hand.
    Looker.look = lambda self: look(self.deployment, 1)  # type: ignore[method-assign]
    found: dict[str, Any] = {}
    try:
        with tempfile.TemporaryDirectory() as directory:
            for name, view, deployment in (
                ("operators", "logical", small(Path(directory) / "small", OPERATORS)),
                ("servers", "physical", wide(Path(directory) / "wide", SERVERS)),
            ):
                with serving(WebServer(deployment)) as server:
                    server.watch._looking.close()
                    visitor = Visitor(browser, server.address)
                    visitor.come(server.link())
                    taken = frames(visitor, view, server, seconds)
                    visitor.check()
                    found[f"frame_ms_{name}"] = round(percentile(taken, 0.99), 1)
                    found["page_kb"] = round(weight(visitor) / 1000, 1)
                    visitor.close()
    finally:
        Looker.look = original  # type: ignore[method-assign]
    return found


def weight(visitor: Visitor) -> int:
    """The bytes of everything that was loaded, headers too, without the event stream."""
    return int(
        visitor.page.evaluate(
            """() => [...performance.getEntriesByType("navigation"),
                      ...performance.getEntriesByType("resource")]
              .filter((each) => !each.name.endsWith("/api/events"))
              .reduce((sum, each) => sum + each.transferSize, 0)"""
        )
    )


def updates(visitor: Visitor, deployment: Deployment, rounds: int) -> list[float]:
    """Cut a source off and heal it, again and again; how old each change of state was when seen."""
    visitor.show("timeline")
    visitor.page.evaluate(_WATCH)
    since = time.time()
    for _ in range(rounds):
        for replica in REPLICAS:
            cut(deployment, "entry-pings", replica)
        wait_states(visitor, "up_failure")
        heal(deployment)
        wait_states(visitor, "stable")
    drawn: list[tuple[str, str, float]] = visitor.page.evaluate("drawn")
    return ages(drawn, {name: written(deployment, name) for name in REPLICAS}, since)


def written(deployment: Deployment, replica: str) -> list[tuple[float, str]]:
    """When a replica was in which state, as it wrote it down itself."""
    lines = log_path(deployment, replica).read_text().splitlines()
    found = [json.loads(line) for line in lines if line.startswith("{")]
    return [
        (datetime.fromisoformat(each["time"]).timestamp(), shown_state(str(each["state"])))
        for each in found
        if each["event"] == "state" and each.get("node") == replica
    ]


def wait_states(visitor: Visitor, state: str) -> None:
    visitor.wait(
        lambda: all(visitor.state(f"live.nodes['{name}'].state") == state for name in REPLICAS),
        f"the state {state} of both replicas",
        _WAIT_SECONDS,
    )


@contextlib.contextmanager
def watched(deployment: Deployment) -> Iterator[None]:
    """A server of the page, with ten viewers that take everything it sends."""
    with serving(WebServer(deployment)) as server:
        stopping = threading.Event()

        def watch() -> None:
            viewer = Browser(server.port)
            viewer.keep(viewer.post("/api/sign-in", {"code": server.sessions.make_link_code()}))
            with contextlib.closing(viewer.events()) as events:
                for _ in events:
                    if stopping.is_set():
                        return

        threads = [threading.Thread(target=watch, daemon=True) for _ in range(VIEWERS)]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + _WAIT_SECONDS
        while server.watch.hub.count < VIEWERS:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{server.watch.hub.count} of {VIEWERS} viewers came")
            time.sleep(0.05)
        yield
        stopping.set()
    for thread in threads:
        thread.join(10.0)


def cost(deployment: Deployment, seconds: float) -> float:
    """Processor microseconds of both replicas for each tuple they take."""
    pids = {local_state(deployment)[name]["pid"] for name in REPLICAS}

    def counted() -> tuple[float, int]:
        status = node_status(deployment, list(REPLICAS))
        taken = sum(
            int(each["next_id"]) for name in REPLICAS for each in status[name]["inputs"].values()
        )
        return sum(each["cpu_s"] for each in usage(pids).values()), taken

    cpu, taken = counted()
    time.sleep(seconds)
    cpu_after, taken_after = counted()
    return 1e6 * (cpu_after - cpu) / max(1, taken_after - taken)


def costs(deployment: Deployment, rounds: int, seconds: float) -> list[float]:
    """Without over with, of alternated rounds."""
    found = []
    for number in range(rounds):
        pair = {}
        for with_viewers in (False, True) if number % 2 == 0 else (True, False):
            if with_viewers:
                with watched(deployment):
                    pair[True] = cost(deployment, seconds)
            else:
                pair[False] = cost(deployment, seconds)
        found.append(pair[False] / pair[True])
    return found


def measure(quick: bool, picture: Path | None, tell: Callable[[str], None]) -> dict[str, Any]:
    tell("200 operators and 1,000 servers, made up")
    with chromium() as browser:
        frames_found = made_up_frames(browser, 8.0 if quick else 40.0)
    with tempfile.TemporaryDirectory(prefix="holdfast-web-") as directory:
        deployment = write_deployment(Path(directory), rate=500)
        tell("a deployment starts")
        with running(deployment):
            with chromium() as browser, serving(WebServer(deployment)) as server:
                visitor = Visitor(browser, server.address)
                visitor.come(server.link())
                wait_states(visitor, "stable")
                tell("a source is cut off and healed")
                taken = updates(visitor, deployment, 2 if quick else 12)
                if picture is not None:
                    visitor.page.screenshot(path=picture)
                visitor.check()
            tell(f"nine rounds with {VIEWERS} viewers and without")
            ratios = costs(deployment, ROUNDS, 3.0 if quick else 12.0)
    return figures(taken, frames_found, ratios)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="the short form")
    parser.add_argument("--record", action="store_true", help="keep the figures in docs/results")
    options = parser.parse_args(arguments)
    if browser_path() is None:
        print("no Chromium on the PATH; scripts/browser installs one", file=sys.stderr)
        return 1
    started = time.monotonic()

    def tell(text: str) -> None:
        print(f"{time.monotonic() - started:7.1f} s  {text}", file=sys.stderr, flush=True)

    found = measure(options.quick, RESULTS / "web.png" if options.record else None, tell)
    found |= {
        "seconds": round(time.monotonic() - started, 1),
        "machine": describe_machine(),
        "load": round(os.getloadavg()[2], 1),
    }
    if options.record:
        form = " ARGS=--quick" if options.quick else ""
        record(found, f"make bench BENCH=web{form}", page=page(found, form))
    print(json.dumps(found), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
