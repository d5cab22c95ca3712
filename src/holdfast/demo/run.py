"""Runs the demonstration: a real deployment, a source that is cut off, a replica that is killed.

The deployment lives in a directory of its own: an entry point for each region, two replicas
with a Spark driver each, all processes of this machine. The client is this process. At the end
its stable stream is compared with a batch job over what the entry points logged.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from holdfast.client import Client
from holdfast.cluster.chaos import cut, heal
from holdfast.cluster.networks import load_network
from holdfast.cluster.planning import plan_of
from holdfast.demo.batch import batch_latency, difference
from holdfast.demo.history import History
from holdfast.demo.picture import draw_history
from holdfast.demo.readings import PROBES_PER_SECOND, REGIONS, Monitor
from holdfast.demo.view import LiveView, PlainView, View
from holdfast.deployment import Deployment, load_deployment
from holdfast.errors import HoldfastError, InputError
from holdfast.plans.plan import write_plan
from holdfast.saying import said
from holdfast.testing.deployed import Load, supervised
from holdfast.testing.undisturbed import logged_tuples

if TYPE_CHECKING:
    from holdfast.cluster.supervisor import Supervisor

SHORTEST_SECONDS = 12.0
_CUT_OFF = "asia"
_DELAY_S = 2.0
_OUTPUT, _CLIENT = "latency", "screen"
_PATIENCE_SECONDS = 90.0
_WARM_ANSWERS = 3
# Batches of probes a second: each costs the same, and there is a machine with two cores below.
_BATCHES = 10
_DEPLOYMENT = """\
name = "demo"
network = "{network}"
chaos = true

[timing]
delay = "{delay_s} seconds"
heartbeat = "100 ms"

[spark.config]
"spark.driver.memory" = "512m"

[fragments.main]
replicas = 2

[clients.{client}]
output = "{output}"
"""


def run_demo(seconds: float, servers: int, picture: str, web: bool = False) -> int:
    """Show it; the exit code is 0 if the client ended with exactly what it should hold.

    ``web``: on a page, too, where one may go on pulling plugs until ctrl-c.
    """
    if servers < len(REGIONS) or seconds < SHORTEST_SECONDS:
        raise InputError(
            f"the demo needs at least {len(REGIONS)} servers and {SHORTEST_SECONDS:g} seconds"
        )
    if Path(picture).suffix.lower() not in (".png", ".svg", ".pdf"):
        raise InputError(f"the picture's name must end in .png, .svg or .pdf, got {picture!r}")
    console = Console()
    history = History(seconds, _DELAY_S)
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as directory:
        deployment = _prepare(Path(directory))
        view: View = (LiveView if console.is_terminal else PlainView)(console, history)
        try:
            with _started(deployment, view) as supervisor:
                demo = _Demo(deployment, supervisor, history, view, servers)
                with contextlib.closing(demo), _on_a_page(deployment, view, web):
                    demo.run(goes_on=web)
                view.say("the processes stop")
        finally:
            view.close()
        with said("── a batch job computes the same from the logs", console.print):
            wrong = _compare(console, deployment, history)
    with said("── the picture is drawn", console.print):
        draw_history(picture, history)
    console.print(_report(history), highlight=False, soft_wrap=True)
    console.print(f"Delays, tentative results and states are drawn in [bold]{picture}[/bold]")
    return 0 if wrong is None else 1


@contextlib.contextmanager
def _started(deployment: Deployment, view: View) -> Iterator[Supervisor]:
    """The deployment, running; its view tells who has come up by now."""
    what = f"{len(REGIONS)} entry points and two replicas with a Spark driver each start"
    with contextlib.ExitStack() as stack:
        with said(what, view.say):
            supervisor = stack.enter_context(supervised(deployment, view.say))
        yield supervisor


@contextlib.contextmanager
def _on_a_page(deployment: Deployment, view: View, web: bool) -> Iterator[None]:
    """The deployment also on a page, if so wished."""
    if not web:
        yield
        return
    from holdfast.web.serve import WebServer, serving

    why = "the demonstration's network is compared with a batch job, so it is not to be changed"
    with serving(WebServer(deployment, not_editable=why)) as server:
        view.say(f"watch it, and pull plugs yourself: {server.link()}")
        yield


def _prepare(directory: Path) -> Deployment:
    network = Path(__file__).with_name("network.py")
    text = _DEPLOYMENT.format(network=network, delay_s=_DELAY_S, client=_CLIENT, output=_OUTPUT)
    text += "".join(f"\n[sources.{region}]\nkeep = true\n" for region in REGIONS)
    (directory / "deployment.toml").write_text(text)
    deployment = load_deployment(directory / "deployment.toml")
    write_plan(deployment, plan_of(load_network(network, deployment.spark_master, {})))
    return deployment


class _Demo:
    """The running demonstration."""

    def __init__(
        self,
        deployment: Deployment,
        supervisor: Supervisor,
        history: History,
        view: View,
        servers: int,
    ) -> None:
        self._deployment = deployment
        self._supervisor = supervisor
        self._history = history
        self._view = view
        self._replicas = deployment.fragments["main"].processes
        for region in REGIONS:
            history.in_state(region, "up")
        self._journals = {
            name: (deployment.data / "logs" / f"{name}.log").open() for name in self._replicas
        }
        self._client = Client.of(deployment.path, _OUTPUT, name=_CLIENT)
        self._loads = [
            Load(deployment, region, Monitor(region, servers).rows, PROBES_PER_SECOND, _BATCHES)
            for region in REGIONS
        ]

    def close(self) -> None:
        self._client.close()
        for journal in self._journals.values():
            journal.close()

    def run(self, goes_on: bool = False) -> None:
        """``goes_on``: after its own failures, until ctrl-c."""
        history, seconds = self._history, self._history.seconds
        self._view.say("Spark compiles the query on both replicas")
        self._until("the first results", self._warm)
        history.start()
        cut_s = max(4.0, seconds / 6)
        self._go_on(seconds / 6)
        self._say(f"{_CUT_OFF} is cut off for {cut_s:g} s; its monitor goes on")
        self._cut()
        self._go_on(history.now + cut_s)
        self._heal()
        self._say(f"{_CUT_OFF} is back: what it had seen meanwhile corrects the results")
        self._until("corrections", lambda: history.tentative == 0)
        self._go_on(0.6 * seconds)
        self._kill()
        self._go_on(seconds)
        if goes_on:
            self._view.say("that was all of its own; pull plugs on the page, and ctrl-c ends it")
            with contextlib.suppress(KeyboardInterrupt):
                while True:
                    self._turn()
            heal(self._deployment)
        self._until("both replicas stable", self._all_stable)
        self._view.say("no more probes; the last results")
        for load in self._loads:
            load.stop()
        end = time.time_ns() // 1000 + 1_000_000
        self._until("the last results", lambda: history.view.stable_until > end)

    # -- what happens -------------------------------------------------------------------

    def _say(self, text: str) -> None:
        self._view.say(text)
        self._history.mark(text.partition(";")[0].partition(":")[0])

    def _cut(self) -> None:
        for replica in self._replicas:
            cut(self._deployment, f"entry-{_CUT_OFF}", replica)
        self._history.in_state(_CUT_OFF, "cut off")

    def _heal(self) -> None:
        for replica in self._replicas:
            heal(self._deployment, f"entry-{_CUT_OFF}", replica)
        self._history.in_state(_CUT_OFF, "up")

    def _kill(self) -> None:
        victim = self._client.following or self._replicas[0]
        self._say(f"kill -9 {victim}; the client follows it, and must change over")
        self._supervisor.kill(victim)
        self._history.in_state(victim, "dead")

    # -- watching -----------------------------------------------------------------------

    def _go_on(self, until: float) -> None:
        while self._history.now < until:
            self._turn()

    def _until(self, what: str, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise HoldfastError(f"{what} did not come within {_PATIENCE_SECONDS:g} s")
            self._turn()

    def _turn(self) -> None:
        event = self._client.read(0.05)
        if event is not None:
            self._view.show(self._history.take(event))
        for name, journal in self._journals.items():
            while line := journal.readline():
                if '"event": "state"' in line:
                    said = json.loads(line)
                    at = datetime.fromisoformat(said["time"]).timestamp()
                    self._history.in_state(name, said["state"], at)
        self._view.tick()

    def _warm(self) -> bool:
        """The last few answers came in time, and nothing is tentative."""
        last = self._history.answers[-_WARM_ANSWERS:]
        quick = len(last) == _WARM_ANSWERS and all(each.delay_s < 1.0 for each in last)
        return quick and self._history.tentative == 0 and self._all_stable()

    def _all_stable(self) -> bool:
        return all(self._history.state(name) == "stable" for name in self._replicas)


def _compare(console: Console, deployment: Deployment, history: History) -> str | None:
    """Say whether the stable stream is the batch job's result; if not, what differs."""
    from holdfast.spark.session import get_session

    processes = deployment.data / "processes"
    logged = {
        name: logged_tuples(processes / f"entry-{name}" / "streams" / name) for name in REGIONS
    }
    until = history.view.stable_until
    stable = history.view.stable
    if stable is None:
        raise HoldfastError("the client got no stable result")
    batch = batch_latency(get_session(), logged, until)
    wrong = difference(stable, batch)
    probes = sum(table.num_rows for table in logged.values())
    what = f"{stable.num_rows:,} stable results, and a batch job over all {probes:,} logged probes"
    if wrong is None:
        said = f"[bold green]Identical, tuple for tuple[/bold green]: the client's {what}"
    else:
        said = f"[bold red]NOT the same[/bold red]: the client's {what}: {escape(wrong)}"
    console.print(said, highlight=False, soft_wrap=True)
    return wrong


def _report(history: History) -> str:
    counts = history.counts
    return (
        f"{counts['stable']:,} results were stable at once, {counts['tentative']:,} tentative at "
        f"first, {counts['corrected']:,} of them corrected within {history.corrected_s():.1f} s of "
        f"the link's healing.\nThe longest wait for an answer was "
        f"[bold]{history.longest_wait_s():.2f} s[/bold] (X = {history.delay_s:g} s)"
    )
