"""``holdfast server``: runs processes of deployments that were started on other machines.

    holdfast server --listen 10.0.0.2:4700 --data /var/lib/holdfast --security east

    DATA/DEPLOYMENT/
      deployment.json      the deployment's tables, with this machine's own [security]
      network.py, ...      the files it sent
      hosted.json          the processes this server runs
      data/                plan, addresses, logs, states: as on any machine

Whoever may operate it may have Python code run here: a network is code, and it is sent. So a
server needs a token or certificates even on loopback. With ``--networks DIR`` no code is taken:
what is sent must be one of the files in DIR, byte for byte (trusted.py).

With ``--seeds`` servers form a cluster, which takes submissions and places them (member.py).

What a server runs goes on when the machine that started the deployment is gone, and starts
again when the server itself does; ``holdfast down`` ends it.
"""

from __future__ import annotations

import json
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.flight as flight

from holdfast.cluster.children import Children, last_lines, lines_after, log_path
from holdfast.cluster.desired import (
    SUBMITTED,
    Desired,
    SentDeployment,
    Submission,
    checked_name,
    staged,
    write_files,
)
from holdfast.cluster.disturbances import start_disturbance
from holdfast.cluster.kept_elsewhere import answer
from holdfast.cluster.kept_nodes import KeptNodes
from holdfast.cluster.member import ClusterOptions, Member
from holdfast.cluster.starting import check_certificates
from holdfast.cluster.trusted import Trusted
from holdfast.cluster.usage import signal_jvm, with_usage
from holdfast.deployment import (
    LOOPBACK,
    Deployment,
    SecuritySpec,
    load_deployment,
    read_tables,
)
from holdfast.deployment_file import DeploymentReader
from holdfast.durable import make_private, write_whole
from holdfast.errors import HoldfastError
from holdfast.flight.security import SecurityError
from holdfast.flight.server import Control, StreamServer
from holdfast.nodes.http_server import serve_http
from holdfast.nodes.journal import Journal
from holdfast.nodes.links import NO_CHAOS
from holdfast.nodes.listening import Listener, NoStreams
from holdfast.nodes.metrics import registry
from holdfast.plans.addresses import free_ports

_START_AGAIN_SECONDS = 1.0
_SIGNALS = {each.name: each for each in (signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT)}


class Server(NoStreams):
    """Hosts processes; its Flight server has nothing but control."""

    name = "the server"

    def __init__(
        self,
        host: str,
        port: int,
        data: Path,
        security: SecuritySpec,
        networks: Path | None = None,
        cluster: ClusterOptions | None = None,
        metrics_port: int | None = None,
    ) -> None:
        """
        networks      run only the network files in this directory.
        cluster       take part in a cluster.
        metrics_port  serve metrics of the cluster over HTTP, on this machine only; 0: any port.
        """
        self.journal = Journal("server", "process")
        self._data = data.resolve()
        self._security = security
        self._trusted = None if networks is None else Trusted(networks)
        self._metrics_port = metrics_port
        self._hosted: dict[str, Children] = {}
        # Deployments that were hosted before and cannot be started, and when to try again.
        self._waiting: dict[str, str] = {}
        self._again = 0.0
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        secrets = security.read()
        if not secrets.has_token and not secrets.is_mutual:
            raise SecurityError(
                "a server runs the code it is sent and needs a token, on loopback, too; write "
                "one into a file and name it, --token-file, or have callers show certificates: "
                "--certificate, --key and --authority (holdfast security init makes all of them)"
            )
        for warning in check_certificates(security):
            self.journal.write("certificate", level="warning", problem=warning)
        make_private(self._data)
        # The submissions that were last seen to, so that nothing is done twice.
        self._seen_to: dict[str, Submission] = {}
        self._member: Member | None = None
        if cluster is not None:
            address = f"{host}:{port}"
            self._member = Member(
                address, cluster, self._data, security, self._see_to, self.journal
            )
        self._listener = Listener(
            lambda port: StreamServer(
                self, host, port, secrets, self._controls(), on_refused=self.journal.refused_call
            ),
            port,
            secrets,
            self.journal,
        )
        self.port = self._listener.port

    def run(self) -> None:
        """Start what was hosted before; look after everything until told to stop."""
        self._start_hosted()
        if self._member is not None:
            self._member.start()
            self._serve_metrics(self._member)
        self.journal.write("listening", port=self.port, data=str(self._data))
        while not self._stopping.wait(0.05):
            if self._waiting and time.monotonic() >= self._again:
                self._start_hosted()
            for children in list(self._hosted.values()):
                children.watch()
        if self._member is not None:
            self._member.close()
        self._listener.close()
        for children in self._hosted.values():
            children.stop()
        self.journal.write("stopped")

    def _serve_metrics(self, member: Member) -> None:
        if self._metrics_port is None:
            return
        registry.register(member.metrics())

        def health() -> dict[str, list[str]]:
            unmanaged = member.why_unmanaged()
            problems = [f"{name}: {what}" for name, what in member.problems.items()]
            return {member.name: [*([unmanaged] if unmanaged else []), *problems]}

        port = serve_http(LOOPBACK, self._metrics_port, health)
        self.journal.write("metrics", metrics_port=port)

    def _start_hosted(self) -> None:
        """Start what was hosted before; what cannot be started now is tried again."""
        waiting: dict[str, str] = {}
        for path in sorted(self._data.glob("*/hosted.json")):
            name = path.parent.name
            with self._lock:
                if name in self._hosted or not path.exists():
                    continue
                try:
                    self._start(name)
                except (HoldfastError, OSError, ValueError) as error:
                    waiting[name] = str(error)
                    if self._waiting.get(name) != str(error):
                        self.journal.write(
                            "cannot start", level="error", deployment=name, problem=str(error)
                        )
        self._waiting = waiting
        self._again = time.monotonic() + _START_AGAIN_SECONDS

    def request_stop(self) -> None:
        """Make ``run`` return; what it hosts starts again with the next server."""
        self._stopping.set()

    # -- control ------------------------------------------------------------------------

    def _controls(self) -> dict[str, Control]:
        controls: dict[str, Control] = {
            "ports": self._ports,
            "deploy": self._deploy,
            "processes": lambda options: with_usage(self._found(options).states()),
            "signal": self._signal,
            "restart": self._restart,
            "logs": self._logs,
            "disturb": self._disturb,
            "stop": self._stop,
            "kept": self._ask_kept,
        }
        if self._member is not None:
            controls |= self._member.controls()
        return {name: _answering(control) for name, control in controls.items()}

    def _ports(self, options: dict[str, Any]) -> dict[str, Any]:
        host = str(options["host"])
        return free_ports(dict.fromkeys(options["nodes"], host), list(options["metrics"]))

    def _deploy(self, options: dict[str, Any]) -> dict[str, Any]:
        name, sent = checked_name(options["deployment"]), msgspec.convert(options, SentDeployment)
        restart = bool(options.get("restart", True))
        return {"changed": self._run_processes(name, sent, list(options["processes"]), restart)}

    def _run_processes(
        self, name: str, sent: SentDeployment, processes: list[str], restart: bool
    ) -> bool:
        """Have some processes of a deployment run here; whether any file of it is new."""
        with self._lock:
            changed = self._write(name, sent, processes)
            if changed and restart and name in self._hosted:
                self._hosted.pop(name).stop()
            if name not in self._hosted:
                self._start(name)
            else:
                deployment = load_deployment(self._data / name / "deployment.json")
                self._hosted[name].adopt(deployment, processes)
        self.journal.write("deployed", deployment=name, changed=changed)
        return changed

    def _write(self, name: str, sent: SentDeployment, processes: list[str]) -> bool:
        """Write the files of a deployment; whether any is new."""
        directory, code = self._data / name, sent.code()
        if self._trusted is not None:
            self._trusted.check_files(code)
        tables = {**sent.tables_here(self._security.table()), "name": name}
        changed = write_files(directory, code)
        # What cannot be started is not kept: the tables are read before they are written.
        deployment = DeploymentReader(directory / "deployment.json").deployment(tables)
        self._check(deployment, processes)
        hosted = {"hosted.json": json.dumps(processes).encode()}
        return write_files(directory, sent.rest(tables) | hosted) or changed

    def _check(self, deployment: Deployment, processes: Any) -> None:
        """Raise unless a deployment may run here, from what lies in its directory."""
        for process in processes:
            if process not in deployment.processes:
                raise HoldfastError(f"{deployment.name} has no process {process!r}")
        if self._trusted is not None:
            self._trusted.check_directory(deployment.path.parent)
            self._trusted.check_deployment(deployment)

    def _start(self, name: str) -> None:
        directory = self._data / name
        deployment = load_deployment(directory / "deployment.json")
        processes = json.loads((directory / "hosted.json").read_text())
        self._check(deployment, processes)

        def tell(text: str) -> None:
            self.journal.write("process", deployment=name, said=text)

        # What stands beside the deployment's file is no place to look for Holdfast itself.
        children = Children(deployment, processes, tell, environment={"PYTHONSAFEPATH": "1"})
        children.start()
        self._hosted[name] = children

    def _stop(self, options: dict[str, Any]) -> dict[str, Any]:
        name = checked_name(options["deployment"])
        with self._lock:
            children = self._hosted.pop(name, None)
            if children is not None:
                children.stop()
            (self._data / name / "hosted.json").unlink(missing_ok=True)
        self.journal.write("stopped", deployment=name)
        return {}

    # -- what a cluster submits -----------------------------------------------------------

    def _ask_kept(self, options: dict[str, Any]) -> dict[str, Any]:
        """What nodes of a deployment that stands have kept, and what they are to begin with."""
        name = checked_name(options["deployment"])
        with self._lock:
            if name in self._hosted:
                raise HoldfastError(
                    f"{name!r} runs here, and what its nodes have kept is theirs while they do; "
                    f"stop it with holdfast down"
                )
            kept = KeptNodes(self._data / name / "data")
            return {"answer": answer(kept, options["what"], options["asked"])}

    def _see_to(self, desired: Desired) -> dict[str, str]:
        """Run this server's part of what is submitted, and nothing else of it; what went wrong."""
        problems: dict[str, str] = {}
        for name, submission in desired.submissions.items():
            try:
                self._run_part(name, submission)
            except (HoldfastError, OSError, KeyError, ValueError, TypeError) as error:
                problems[name] = str(error)
                self.journal.write("cannot run", level="error", submission=name, problem=str(error))
        for mark in self._data.glob(f"*/{SUBMITTED}"):
            name = mark.parent.name
            if name not in desired.submissions:
                self._stop({"deployment": name})
                self._seen_to.pop(name, None)
                mark.unlink(missing_ok=True)
        return problems

    def _run_part(self, name: str, submission: Submission) -> None:
        if self._seen_to.get(name) == submission and (
            name in self._hosted or not (self._data / name / SUBMITTED).exists()
        ):
            return
        assert self._member is not None
        staging = self._data / "cluster" / "applied" / checked_name(name)
        deployment = staged(staging, submission, self._security.table())
        processes = list(deployment.hosted_by(self._member.name))
        if processes:
            make_private(self._data / name)
            write_whole(self._data / name / SUBMITTED, b"")
            # With the replicas that were added since.
            sent = replace(submission, tables=read_tables(deployment.path))
            self._run_processes(name, sent, processes, restart=False)
        elif (self._data / name / SUBMITTED).exists():
            # All that ran here has been replaced; it has ended by itself, or ends now.
            self._stop({"deployment": name})
            (self._data / name / SUBMITTED).unlink(missing_ok=True)
        self._seen_to[name] = submission

    def _signal(self, options: dict[str, Any]) -> dict[str, Any]:
        number = _SIGNALS[str(options["signal"])]
        children, process = self._to_disturb(options), str(options["process"])
        if options.get("jvm"):
            return {"pid": signal_jvm(children.states()[process]["pid"], number)}
        return {"pid": children.signal(process, number)}

    def _restart(self, options: dict[str, Any]) -> dict[str, Any]:
        """Have a process end in order; it is started again as any that has ended."""
        return {"pid": self._found(options).end(str(options["process"]))}

    def _logs(self, options: dict[str, Any]) -> dict[str, Any]:
        children = self._found(options)
        path = log_path(children.deployment, children[str(options["process"])].name)
        offset = options.get("offset")
        lines, end = (
            last_lines(path, int(options["lines"])) if offset is None else lines_after(path, offset)
        )
        return {"lines": lines, "offset": end}

    def _disturb(self, options: dict[str, Any]) -> dict[str, Any]:
        start_disturbance(options, self._to_disturb(options))
        return {}

    def _to_disturb(self, options: dict[str, Any]) -> Children:
        """What may be made to fail on purpose."""
        children = self._found(options)
        if not children.deployment.chaos:
            raise HoldfastError(NO_CHAOS)
        return children

    def _found(self, options: dict[str, Any]) -> Children:
        name = checked_name(options["deployment"])
        children = self._hosted.get(name)
        if children is None:
            raise HoldfastError(f"nothing of the deployment {name!r} runs here")
        process = options.get("process")
        if process is not None and process not in children:
            raise HoldfastError(f"no process {process!r} of {name} runs here")
        return children


def _answering(control: Control) -> Control:
    """What is wrong goes to the asker."""

    def answer(options: dict[str, Any]) -> dict[str, Any]:
        try:
            return control(options)
        except (HoldfastError, OSError) as error:
            raise flight.FlightServerError(str(error)) from None
        except (KeyError, ValueError, TypeError) as error:
            raise flight.FlightServerError(f"not a request of this version: {error!r}") from None

    return answer
