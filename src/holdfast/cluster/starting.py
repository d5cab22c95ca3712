"""What ``holdfast up`` looks at before it starts anything: one refusal, not a dozen crashes.

1. what the sources read from and the clients write to (``check_connectors``), and whether
   certificates have expired (``check_certificates``)
2. the network itself, built once by a process that ends (``plan_network``), and whether it is
   the query that the nodes have kept state of (``planning``)
3. whether network and deployment file fit each other (``Topology``), and whether files that are
   there have the columns of their sources, and outputs the keys of their sinks
   (``check_columns``)
4. whether the logs of an earlier start hold the streams of this network (``check_logs``)
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pyarrow as pa

from holdfast.cluster.change import Change
from holdfast.connect.specs import parse_sink, parse_source
from holdfast.deployment import Deployment, DeploymentError
from holdfast.errors import HoldfastError, InputError, StateError
from holdfast.flight.credentials import SecuritySpec
from holdfast.frames import SYSTEM_COLUMNS
from holdfast.gained import gained_columns
from holdfast.log.inspection import stored_schema
from holdfast.plans.plan import NOT_DEPLOYABLE, REFUSED, SAYS, Plan, is_planned, read_plan
from holdfast.saying import said

Tell = Callable[[str], None]


class NetworkUnreadable(HoldfastError):
    """The network's file cannot be run, or defines no network that can."""


def check_connectors(deployment: Deployment) -> None:
    """Raise DeploymentError for every source and sink that is none, in one message.

    Paths are relative to the deployment file, from wherever it is started.
    """
    wrong = []
    with contextlib.chdir(deployment.path.parent):
        for source in deployment.sources.values():
            if source.reads is not None:
                here = source.endpoint.server is None
                wrong += _problem(
                    f"sources.{source.name}.from",
                    _parse_and_check if here else parse_source,
                    source.name,
                    source.reads,
                )
        for client in deployment.clients.values():
            if client.sink is not None:
                wrong += _problem(
                    f"clients.{client.name}.sink", parse_sink, client.output, client.sink
                )
    if wrong:
        raise DeploymentError("\n".join(f"{deployment.path.name}: {each}" for each in wrong))


def _parse_and_check(text: str) -> None:
    parse_source(text)[1].check()


def check_columns(deployment: Deployment, plan: Plan) -> None:
    """Raise DeploymentError for every file of this machine that lacks a column of its source, and
    for every sink whose key is no column of its output."""
    wrong = []
    with contextlib.chdir(deployment.path.parent):
        for source in deployment.sources.values():
            if source.reads is not None and source.endpoint.server is None:
                schema = _own(plan.sources[source.name].schema)

                def check(text: str, schema: pa.Schema = schema) -> None:
                    parse_source(text)[1].check_columns(schema)

                wrong += _problem(f"sources.{source.name}.from", check, source.name, source.reads)
        streams = plan.streams
        for client in deployment.clients.values():
            if client.sink is not None and client.output in streams:
                names = _own(streams[client.output].schema).names

                def fits(text: str, names: list[str] = names) -> None:
                    parse_sink(text)[1].check_columns(names)

                where = f"clients.{client.name}.sink"
                wrong += _problem(where, fits, client.output, client.sink)
    if wrong:
        raise DeploymentError("\n".join(f"{deployment.path.name}: {each}" for each in wrong))


def check_certificates(security: SecuritySpec) -> list[str]:
    """SecurityError if a certificate has expired; warnings of those that soon will."""
    paths = [path for path in (security.certificate, security.authority) if path is not None]
    if not paths:
        return []
    from holdfast.flight.certificates import check_dates

    return [warning for warning in map(check_dates, paths) if warning is not None]


def _problem(where: str, parse: Callable[[str], object], name: str, text: str) -> list[str]:
    try:
        parse(f"{name}={text}")
    except InputError as error:
        # The same text is given as an option on the command line, and named so there.
        what = str(error).partition(": ")[2] or str(error)
        return [f"{where}: {text!r}: {what}"]
    return []


def plan_network(
    deployment: Deployment,
    tell: Tell,
    is_stopping: Callable[[], bool],
    change: Change = Change.REFUSE,
) -> Plan | None:
    """The network's plan, made if there is none yet; None if told to stop meanwhile.

    ``change``: what to do if it is another than the one that nodes have kept something of.
    """
    if not is_planned(deployment):
        with said("reading the network (Spark takes a few seconds)", tell):
            problem = _made(deployment, tell, is_stopping, change)
        if is_stopping():
            return None
        if problem is not None:
            raise NetworkUnreadable(f"{deployment.network} cannot be read: {problem}")
    return read_plan(deployment)


def _made(
    deployment: Deployment, tell: Tell, is_stopping: Callable[[], bool], change: Change
) -> str | None:
    """Make the plan in a process of its own; what is wrong, if something is."""
    command = [sys.executable, "-m", "holdfast.cluster.planning", str(deployment.path)]
    command += [change.value] if change.value else []
    # In a session of its own, so that Ctrl-C is for who watches, not for Spark.
    with (
        subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
        ) as process,
        _ended(process),
    ):
        while not is_stopping():
            with contextlib.suppress(subprocess.TimeoutExpired):
                lines = process.communicate(timeout=0.1)[1].decode(errors="replace").splitlines()
                if process.returncode == 0:
                    for line in lines:
                        if line.startswith(SAYS):
                            tell(line.removeprefix(SAYS))
                    return None
                if process.returncode == REFUSED:
                    raise StateError(json.loads(lines[-1]))
                if process.returncode == NOT_DEPLOYABLE:
                    raise DeploymentError(json.loads(lines[-1]))
                return lines[-1] if lines else f"exit code {process.returncode}"
    return None


@contextlib.contextmanager
def _ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """The process and its JVM do not outlive this."""
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


def check_logs(deployment: Deployment, plan: Plan) -> None:
    """Raise DeploymentError if a log of this machine holds a stream of another schema."""
    wrong = []
    for node, stream, schema in _served(deployment, plan):
        directory = deployment.data / "processes" / node / "streams" / stream
        stored = stored_schema(directory)
        if stored is None:
            continue
        now, before = _own(schema), _own(stored)
        if gained_columns(before, now) is None:
            wrong.append(
                f"the stream {stream!r} has changed since {node} logged it: the network has "
                f"{_columns(now)}; the log has {_columns(before)}"
            )
    if wrong:
        raise DeploymentError(
            f"{deployment.path.name}: "
            + "\n".join(wrong)
            + f"\nA stream keeps its columns for ever, and may only gain some that can be null: "
            f"start the changed network with another "
            f"data directory than {deployment.data}, or take the change back"
        )


def _served(deployment: Deployment, plan: Plan) -> Iterator[tuple[str, str, pa.Schema]]:
    """The node, the stream and the schema of every log of this machine."""
    local = {
        node for process in deployment.hosted_by(None) for node in deployment.processes[process]
    }
    for name, source in plan.sources.items():
        if deployment.sources[name].process in local:
            yield deployment.sources[name].process, name, source.schema
    for name, fragment in plan.fragments.items():
        for node in deployment.fragments[name].processes:
            if node in local:
                for output in fragment.outputs:
                    yield node, output.stream, output.schema


def _own(schema: pa.Schema) -> pa.Schema:
    """The user's columns."""
    return pa.schema([field for field in schema if field.name not in SYSTEM_COLUMNS])


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
