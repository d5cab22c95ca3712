"""Restart the processes of a running deployment one after the other, so that nobody notices.

Each process is asked to end, its supervisor or server starts it again, and the next one follows
once it is well: its entry points serve, its replicas are stable, its copies have settled who is
the primary and who sleeps, and the one that sleeps holds a state. A process is only asked while
all other replicas of its fragments are well. Sources first, then replicas, then clients; of two
copies the one that sleeps, and the other one once it is relieved. New code of Holdfast or of a
library is taken up like that; another network is not, its state would not fit.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from typing import Any

from holdfast.cluster.members import let_stay, relieve, submitted_mark
from holdfast.cluster.status import copy_is, is_in, is_stable, node_status
from holdfast.cluster.supervisor import SupervisorError, end_process, read_state
from holdfast.core.entry import EntryState
from holdfast.core.messages import CopyState
from holdfast.deployment import Deployment, load_deployment
from holdfast.plans.plan import is_planned

_LOOK_SECONDS = 0.1
_ANSWER_SECONDS = 1.0

Tell = Callable[[str], None]


def restart_rolling(
    deployment: str | os.PathLike[str],
    processes: Iterable[str] = (),
    *,
    wait_s: float = 300.0,
    tell: Tell | None = None,
) -> list[str]:
    """Restart processes, or all of them, one after the other; their names in that order.

    ``wait_s`` is for each to be well again, ``tell`` is told who is back. One that is not well in
    time ends the restart: those that follow stay as they are, and ``SupervisorError`` says what it
    waits for.
    """
    found = load_deployment(deployment)
    mark = submitted_mark(found)
    if mark is not None:
        raise SupervisorError(
            f"{found.name} was submitted to a cluster ({mark.read_text()}), whose coordinator may "
            f"move what is to be restarted: restart its servers one after the other instead, each "
            f"when holdfast status shows that every replica is stable. If it runs there no longer, "
            f"remove {mark.parent}"
        )
    return _Rolling(found, wait_s, tell or (lambda text: None)).run(list(processes))


class _Rolling:
    def __init__(self, deployment: Deployment, wait_s: float, tell: Tell) -> None:
        self._deployment = deployment
        self._wait_s = wait_s
        self._tell = tell

    def run(self, wanted: list[str]) -> list[str]:
        left = self._chosen(wanted)
        self._say_gaps(left)
        done: list[str] = []
        while left:
            process = self._next(left)
            self._wait(self._others(process), f"before {process} is restarted")
            self._restart(process)
            left.remove(process)
            done.append(process)
            self._tell(f"{process} is back ({len(done)} of {len(done) + len(left)})")
        return done

    def _chosen(self, wanted: list[str]) -> list[str]:
        known = {
            name: nodes
            for name, nodes in self._deployment.processes.items()
            if not set(nodes) <= self._deployment.gone
        }
        for name in wanted:
            if name not in known:
                raise SupervisorError(f"there is no process {name!r}; there are {sorted(known)}")
        if not is_planned(self._deployment):
            raise SupervisorError(
                f"{self._deployment.network} has changed since {self._deployment.name} was "
                f"started, and what is kept belongs to the network as it was. Take the change "
                f"back, or stop it and start the changed one: holdfast up --keep-state goes on "
                f"with its state where only stateless parts have changed, --from-now with nothing "
                f"in its windows"
            )
        names = [name for name in known if not wanted or name in wanted]
        return sorted(names, key=lambda name: self._place(known[name]))

    def _place(self, nodes: Iterable[str]) -> int:
        """Sources, replicas, clients."""
        sources = {each.process for each in self._deployment.sources.values()}
        fragment_of = self._deployment.fragment_of
        kinds = {0 if node in sources else 1 if fragment_of(node) else 2 for node in nodes}
        return min(kinds, default=2)

    def _say_gaps(self, processes: list[str]) -> None:
        """Who has nobody to stand in for it."""
        for process in processes:
            for node in self._deployment.processes[process]:
                fragment = self._deployment.fragment_of(node)
                if fragment is not None and not self._peers(node):
                    self._tell(
                        f"{node} is the only replica of {fragment.name}: its results wait while "
                        f"it is restarted"
                    )

    def _peers(self, node: str) -> list[str]:
        fragment, gone = self._deployment.fragment_of(node), self._deployment.gone | {node}
        return [] if fragment is None else [one for one in fragment.processes if one not in gone]

    def _others(self, process: str) -> list[str]:
        """The nodes that must be well while a process is away."""
        own = set(self._deployment.processes[process])
        return sorted({peer for node in own for peer in self._peers(node)} - own)

    def _next(self, left: list[str]) -> str:
        """The first, unless a copy in it is the primary and another process has none."""
        place = self._place(self._deployment.processes[left[0]])
        same = [name for name in left if self._place(self._deployment.processes[name]) == place]
        nodes = [node for name in same for node in self._deployment.processes[name]]
        said = node_status(self._deployment, nodes, _ANSWER_SECONDS)
        for name in same:
            own = self._deployment.processes[name]
            if not any(copy_is(said[node], CopyState.PRIMARY) for node in own):
                return name
        return same[0]

    def _restart(self, process: str) -> None:
        try:
            self._relieve(process)
            self._end(process)
        finally:
            for copy in self._copies(process):
                let_stay(self._deployment, copy)
        own = list(self._deployment.processes[process])
        self._wait([*own, *self._others(process)], f"after {process} was restarted")

    def _relieve(self, process: str) -> None:
        """Have other copies take over from each primary in a process, without a gap: to find out
        that it is gone, and to start Spark then, may take longer than X."""
        copies = self._copies(process)
        said = node_status(self._deployment, [*copies], _ANSWER_SECONDS)
        for copy, others in copies.items():
            if said[copy].get("awake"):
                why = relieve(self._deployment, copy, others, self._wait_s)
                if why is not None:
                    raise SupervisorError(
                        f"{process} is not restarted, because {why}. The others were not touched; "
                        f"put that right and restart them then"
                    )

    def _copies(self, process: str) -> dict[str, list[str]]:
        """The copies in a process that have others elsewhere, and these."""
        own = self._deployment.processes[process]
        found = {}
        for node in own:
            fragment = self._deployment.fragment_of(node)
            others = [peer for peer in self._peers(node) if peer not in own]
            if fragment is not None and fragment.standby is not None and others:
                found[node] = others
        return found

    def _end(self, process: str) -> None:
        before = end_process(self._deployment, process)
        deadline = time.monotonic() + self._wait_s
        while self._pid(process) in (None, before):
            if time.monotonic() > deadline:
                raise SupervisorError(
                    f"{process} was asked to end and is not back after {self._wait_s:g} s; look at "
                    f"{self._deployment.data / 'logs'}. The others were not touched"
                )
            time.sleep(_LOOK_SECONDS)

    def _pid(self, process: str) -> int | None:
        """None also from a server that has just started, and says nothing of the process yet."""
        pid: int | None = read_state(self._deployment).get(process, {}).get("pid")
        return pid

    def _wait(self, nodes: list[str], when: str) -> None:
        deadline = time.monotonic() + self._wait_s
        while nodes:
            said = node_status(self._deployment, nodes, _ANSWER_SECONDS)
            waiting = {node: why for node in nodes if (why := _unwell(said[node])) is not None}
            if not waiting:
                return
            if time.monotonic() > deadline:
                text = "; ".join(f"{node}: {why}" for node, why in waiting.items())
                raise SupervisorError(
                    f"not all is well {self._wait_s:g} s {when}: {text}. The others were not "
                    f"touched; put that right and restart them then"
                )
            time.sleep(_LOOK_SECONDS)


def _unwell(said: dict[str, Any]) -> str | None:
    """What a node is still waited for; None if it is well."""
    if "error" in said:
        return f"it does not answer ({said['error']})"
    sleeps = copy_is(said, CopyState.SUSPENDED)
    if sleeps and not said.get("holds", True):
        # Where checkpoints are only in memory, nobody but the primary may have the state then.
        # A copy of an earlier version does not say it, and is to be restarted all the same.
        return "it holds no state yet"
    if said.get("kind") != "replica" or sleeps:
        return "it cannot write" if is_in(said, EntryState.PAUSED) else None
    if not is_stable(said):
        return str(said.get("why") or f"it is {said.get('state')}")
    if "copy" in said and not copy_is(said, CopyState.PRIMARY):
        return f"its copy is {said['copy']}"
    return None
