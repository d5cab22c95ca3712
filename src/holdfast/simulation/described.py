"""What a simulated process does, in a line: for whoever reads the story of a run."""

from __future__ import annotations

from holdfast.core.client import Client
from holdfast.core.replica import Replica
from holdfast.simulation.client_process import ClientProcess
from holdfast.simulation.process import Process
from holdfast.simulation.protected_process import ProtectedProcess
from holdfast.simulation.replica_process import ReplicaProcess


def described(process: Process) -> str:
    """The states of a replica or a client, and from whom it reads; nothing of others."""
    reader: Replica | Client | None
    if isinstance(process, ReplicaProcess):
        parts = [process.driver.state.name]
        reader = process.replica
        if isinstance(process, ProtectedProcess):
            parts[0] += f" ({process.copy.switch.reason})"
        if reader is not None:
            parts += [reader.state.name]
            parts += [f"{k} {one.state.name}" for k, one in reader.soutputs.items()]
    elif isinstance(process, ClientProcess):
        parts = [process.driver.state.name]
        reader = process.driver
    else:
        return ""
    upstreams = reader.consumer.upstreams if reader is not None else {}
    for stream, one in upstreams.items():
        peer = "" if one.main is None else f" ({one.main.peer})"
        parts.append(f"{stream} from {one.state.value}{peer}")
    return ", ".join(parts)
