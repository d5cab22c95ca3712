"""The supervisor: starts the processes of a deployment and starts again what dies.

    data/
      supervisor.pid       who supervises; one at a time
      supervisor.log       what it says, if it runs in the background (commands/up.py)
      processes.json       pid, restarts and uptime of every process of this machine
      plan.json            the network's schemas (planning.py)
      addresses.json       the ports (addresses.py)
      logs/NAME.log        what each process says, JSON lines
      processes/NODE/      the logs and states of each node

Processes of other machines are those of their servers: they are asked to start them, and look
after them themselves. One that cannot be reached is asked again and again; one that is gone for
too long is replaced by a spare, if there is one (spares.py).
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import threading
import time
from typing import Any

from holdfast.cluster.change import Change
from holdfast.cluster.children import Children, Tell, ask_to_end
from holdfast.cluster.following import Following
from holdfast.cluster.remote import RemoteServer, ServerError
from holdfast.cluster.spares import Spares
from holdfast.cluster.starting import (
    check_certificates,
    check_columns,
    check_connectors,
    check_logs,
    plan_network,
)
from holdfast.cluster.status import node_status
from holdfast.cluster.usage import signal_jvm
from holdfast.deployment import Deployment, DeploymentError, load_deployment, membership_path
from holdfast.durable import LockHeld, make_private, take_lock
from holdfast.errors import HoldfastError
from holdfast.plans.addresses import Addresses, taken_ports
from holdfast.plans.measured_file import adopt
from holdfast.plans.topology import Topology
from holdfast.ports import check_own

_ASK_AGAIN_SECONDS = 1.0
# While nodes start, children that end meanwhile must be looked after.
_LOOK_SECONDS = 2.0


class SupervisorError(HoldfastError):
    """The deployment cannot be started, or is not running."""


class Supervisor:
    """Runs a deployment: the processes of this machine, and through servers the others."""

    def __init__(
        self,
        deployment: Deployment,
        tell: Tell = lambda text: None,
        change: Change = Change.REFUSE,
    ) -> None:
        """``change``: what to do with what was kept if the network is another by now."""
        self.deployment = deployment
        self._change = change
        self._tell = tell
        self._children = Children(deployment, deployment.hosted_by(None), tell, self._new_ports)
        used = [name for name in deployment.servers if deployment.hosted_by(name)]
        self._servers = {name: RemoteServer(deployment, name) for name in used}
        # Servers that do not run their part yet, and when to ask them again. Who was never asked
        # is not stopped either: what runs there is not this one's.
        self._waiting: dict[str, float] = dict.fromkeys(self._servers, 0.0)
        self._said: dict[str, str] = {}
        self._asking: dict[str, threading.Thread] = {}
        # Servers that run their part and must learn new addresses.
        self._untold: set[str] = set()
        self._lock_fd: int | None = None
        # Whether it was told to stop.
        self.stopping = False
        self._membership_at = 0
        self._spares = Spares(deployment, tell, self._moved)
        self._following = Following(deployment, tell)

    # -- starting -----------------------------------------------------------------------

    def start(self) -> None:
        """Plan the network if that was not done, choose ports, start every process.

        Whatever does not fit is said before anything starts. Told to stop meanwhile, it starts
        nothing.
        """
        if self.deployment.collection is not None:
            raise DeploymentError(
                f"{self.deployment.path.name}: collection: discarding replicas is what a cluster "
                f"does: hand it to one (holdfast submit), or leave the table out"
            )
        check_connectors(self.deployment)
        for warning in check_certificates(self.deployment.security):
            self._tell(warning)
        security = self.deployment.security.read()
        for endpoint in self.deployment.endpoints.values():
            if endpoint.server is None:
                check_own(endpoint.host)
            security.check_binding(endpoint.host)
        make_private(self.deployment.data)
        self.deployment.security.make()
        self._take_lock()
        self.deployment = adopt(self.deployment)
        plan = plan_network(self.deployment, self._tell, lambda: self.stopping, self._change)
        if plan is None:
            return
        Topology(self.deployment, plan)
        check_columns(self.deployment, plan)
        check_logs(self.deployment, plan)
        Addresses.choose(
            self.deployment,
            lambda server, nodes, processes: self._servers[server].ports(nodes, processes),
        )
        taken = taken_ports(self.deployment)
        if taken:
            self._tell(f"other programs have ports of {', '.join(taken)}, which get new ones")
            Addresses.choose(self.deployment, anew=taken)
        self._children.start()
        for name in self._servers:
            self._ask(name)
        self._spares.start()
        self._following.start()

    def _moved(self, deployment: Deployment, server: str) -> None:
        """A spare has taken the place of a server: have it run its part."""
        self.deployment = deployment
        self._servers = {name: RemoteServer(deployment, name) for name in self._servers}
        self._waiting[server] = 0.0

    def _new_ports(self, process: str) -> None:
        """A process cannot listen, for somebody has its port: it gets others, where it may."""
        try:
            Addresses.choose(self.deployment, anew=[process])
        except (HoldfastError, OSError) as error:
            self._tell(f"{process}: no other port was found: {error}")
            return
        for name in self._servers:
            if name not in self._waiting:
                self._untold.add(name)
                self._waiting[name] = 0.0

    def _ask(self, name: str) -> None:
        """Have a server run its part."""
        try:
            self._servers[name].deploy(restart=name not in self._untold)
        except ServerError as error:
            self._waiting[name] = time.monotonic() + _ASK_AGAIN_SECONDS
            if self._said.get(name) != str(error):
                self._tell(f"{error}; asking again")
            self._said[name] = str(error)
        else:
            self._tell(f"server {name} runs {', '.join(self.deployment.hosted_by(name))}")
            self._untold.discard(name)
            del self._waiting[name]

    def _ask_again(self) -> None:
        """In threads: a server that is off may take a minute not to answer."""
        for name, due in list(self._waiting.items()):
            asking = self._asking.get(name)
            if time.monotonic() >= due and (asking is None or not asking.is_alive()):
                thread = threading.Thread(target=self._ask, args=(name,), daemon=True)
                self._asking[name] = thread
                thread.start()

    def _take_lock(self) -> None:
        try:
            self._lock_fd = take_lock(self.deployment.data / "supervisor.pid")
        except LockHeld as error:
            raise SupervisorError(
                f"{self.deployment.name} is running already, supervised by process "
                f"{error.holder}; stop it with holdfast down"
            ) from None

    # -- watching -----------------------------------------------------------------------

    def watch(self) -> None:
        """Look after the processes once; call it again and again."""
        if not self.stopping:
            self._children.watch()
            self._ask_again()
            self._look_at_membership()

    def _look_at_membership(self) -> None:
        """Processes that were added are started; those that were removed end by themselves."""
        try:
            changed_at = membership_path(self.deployment.data).stat().st_mtime_ns
        except FileNotFoundError:
            return
        if changed_at == self._membership_at:
            return
        self._membership_at = changed_at
        try:
            deployment = load_deployment(self.deployment.path)
        except (HoldfastError, OSError, ValueError) as error:
            self._tell(f"who takes part has changed, but cannot be read: {error}")
            return
        self.deployment = deployment
        for name in self._children.adopt(deployment, deployment.hosted_by(None)):
            self._tell(f"{name} was added")
        for name in deployment.servers:
            if deployment.hosted_by(name):
                self._servers[name] = RemoteServer(deployment, name)

    def run(self) -> None:
        """Watch until told to stop, or interrupted."""
        while not self.stopping:
            self.watch()
            time.sleep(0.05)

    def wait_ready(self, timeout_s: float) -> None:
        """Wait until every node answers, telling which do; not for servers that cannot be
        reached."""
        endpoints = self.deployment.endpoints
        up: set[str] = set()

        def missing() -> list[str]:
            reached = [name for name, each in endpoints.items() if each.server not in self._waiting]
            return sorted(set(reached) - up)

        deadline = time.monotonic() + timeout_s
        while missing() and time.monotonic() < deadline and not self.stopping:
            self.watch()
            found = node_status(self.deployment, missing(), _LOOK_SECONDS)
            for name, said in found.items():
                if "error" not in said:
                    up.add(name)
                    self._tell(f"{name}: up ({said.get('state', 'running')})")
            time.sleep(0.1)
        if missing() and not self.stopping:
            raise SupervisorError(
                f"{', '.join(missing())} did not come up within {timeout_s:g} s; look at "
                f"{self.deployment.data / 'logs'}, or at holdfast logs"
            )

    def pid(self, name: str) -> int | None:
        """The process id of a process, if it runs."""
        pid: int | None = self._state(name)["pid"]
        return pid

    def uptime(self, name: str) -> float:
        """For how many seconds a process has been running."""
        return float(self._state(name)["uptime_s"])

    def restarts(self, name: str) -> int:
        return int(self._state(name)["restarts"])

    def kill(self, name: str) -> bool:
        """kill -9 a process and its JVM; whether there was one."""
        return self.signal(name, signal.SIGKILL) is not None

    def signal(self, name: str, number: signal.Signals) -> int | None:
        """Signal a process and its JVM; its pid, None if it does not run now."""
        return self._host_of(name).signal(name, number)

    def _state(self, name: str) -> dict[str, Any]:
        return self._host_of(name).states()[name]

    def _host_of(self, process: str) -> Children | RemoteServer:
        server = self.deployment.server_of(process)
        return self._children if server is None else self._servers[server]

    # -- stopping -----------------------------------------------------------------------

    def request_stop(self) -> None:
        """Make ``run`` return; from a signal handler, say."""
        self.stopping = True

    def stop(self) -> bool:
        """Stop every process, politely at first. False, and nothing is touched, if another
        supervisor has the deployment, or this one never had it: what runs is not its own."""
        self.stopping = True
        if self._lock_fd is None:
            return False
        self._spares.stop()
        self._following.stop()
        for asking in self._asking.values():
            asking.join(5.0)
        for name, server in self._servers.items():
            if name not in self._waiting:
                try:
                    server.stop()
                except ServerError as error:
                    self._tell(f"{error}; its processes go on")
        self._children.stop()
        os.truncate(self._lock_fd, 0)
        os.close(self._lock_fd)
        self._lock_fd = None
        return True


def read_state(deployment: Deployment) -> dict[str, dict[str, Any]]:
    """pid, restarts and uptime of every process, as its supervisor or server has it."""
    found = local_state(deployment)
    for name in deployment.servers:
        try:
            found |= RemoteServer(deployment, name).states()
        except ServerError as error:
            unknown = {"pid": None, "restarts": 0, "error": str(error)}
            found |= dict.fromkeys(deployment.hosted_by(name), unknown)
    return found


def local_state(deployment: Deployment) -> dict[str, dict[str, Any]]:
    """The same of the processes of this machine."""
    try:
        found: dict[str, dict[str, Any]] = json.loads(
            (deployment.data / "processes.json").read_text()
        )
    except OSError:
        raise SupervisorError(
            f"{deployment.name} is not running here; start it with holdfast up"
        ) from None
    return found


def supervisor_pid(deployment: Deployment) -> int | None:
    """Who supervises the deployment, if anybody does."""
    path = deployment.data / "supervisor.pid"
    try:
        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except FileNotFoundError:
        return None
    except OSError:
        text = path.read_text().strip()
        return int(text) if text else None


def send_signal(
    deployment: Deployment, process: str, number: signal.Signals, *, jvm: bool = False
) -> int:
    """Signal a process and its JVM, or that alone, here or on its server; the pid."""
    server = _server_of(deployment, process)
    pid: int | None
    if server is not None:
        pid = RemoteServer(deployment, server).signal(process, number, jvm=jvm)
    elif jvm:
        pid = signal_jvm(local_state(deployment).get(process, {}).get("pid"), number)
    else:
        pid = local_state(deployment).get(process, {}).get("pid")
        try:
            if pid is not None:
                os.killpg(pid, number)
        except ProcessLookupError:
            pid = None
    if pid is None:
        what = f"the JVM of {process}" if jvm else process
        raise SupervisorError(f"{what} is not running now")
    return pid


def end_process(deployment: Deployment, process: str) -> int:
    """Have a process end in order, here or on its server, after which it is started again; its
    pid."""
    server = _server_of(deployment, process)
    if server is not None:
        pid = RemoteServer(deployment, server).restart(process)
    else:
        pid = local_state(deployment).get(process, {}).get("pid")
        try:
            if pid is not None:
                ask_to_end(pid)
        except ProcessLookupError:
            pid = None
    if pid is None:
        raise SupervisorError(f"{process} is not running now")
    return pid


def _server_of(deployment: Deployment, process: str) -> str | None:
    if process not in deployment.processes:
        raise SupervisorError(
            f"there is no process {process!r}; there are {sorted(deployment.processes)}"
        )
    return deployment.server_of(process)
