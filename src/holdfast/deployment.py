"""A deployment: which processes run a network, where, and with which knobs; read from TOML.

    name = "monitoring"
    network = "network.py"            # beside this file
    data = "data"                     # logs, states, addresses

    [timing]
    delay = "3 seconds"               # X: every available tuple shows up within X per fragment
    alpha = 0.9                       # the share of it that tuples may wait for missing ones

    [sources.load]                    # without "from", producers push
    from = "rate:1000"

    [fragments.main]
    replicas = 2                      # or a list of "host:port"
    protection = "active"             # none, active, passive, hybrid

    [fragments.main.standby]          # how the copies of a passive or hybrid fragment stand by
    checkpoint = "sweeping"           # sweeping, individual, synchronous
    persist = true                    # checkpoints are on disk before they count

    [clients.screen]
    output = "busy"
    sink = "jsonl:busy.jsonl"         # without it the client runs elsewhere, under this name

Ports that are not given are chosen by the operating system when the deployment first starts.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from holdfast.core.settings import (
    Checkpointing,
    Policy,
    Protection,
    Reconcile,
    StandbySettings,
    Timing,
)
from holdfast.errors import HoldfastError
from holdfast.flight.security import Security, SecurityError
from holdfast.times import microseconds

_LOOPBACK = "127.0.0.1"
E = TypeVar("E", bound=Enum)


class DeploymentError(HoldfastError):
    """A deployment file that cannot be right; the message names the place and the fix."""


@dataclass(frozen=True)
class Endpoint:
    """Where a process listens; port 0 lets the operating system choose."""

    host: str = _LOOPBACK
    port: int = 0


@dataclass(frozen=True)
class SourceSpec:
    """One entry point.

    reads  a source as ``--source`` has it, or None for producers.
    keep   keep every tuple in its log, though everybody has acknowledged it.
    """

    name: str
    endpoint: Endpoint
    reads: str | None = None
    keep: bool = False

    @property
    def process(self) -> str:
        return f"entry-{self.name}"


@dataclass(frozen=True)
class FragmentSpec:
    """One fragment and its replicas.

    colocate  the process of each replica; those with the same share it. None: its own each.
    """

    name: str
    replicas: tuple[Endpoint, ...]
    while_failed: Policy = Policy.PROCESS
    while_stabilizing: Policy = Policy.PROCESS
    reconcile: Reconcile = Reconcile.CHECKPOINT
    colocate: tuple[str, ...] | None = None
    standby: StandbySettings | None = None

    @property
    def protection(self) -> Protection:
        """What stands in for a replica that is lost."""
        if self.standby is not None:
            return self.standby.protection
        return Protection.ACTIVE if len(self.replicas) > 1 else Protection.NONE

    @property
    def processes(self) -> tuple[str, ...]:
        """The names of the replicas."""
        return tuple(f"{self.name}-{index + 1}" for index in range(len(self.replicas)))


@dataclass(frozen=True)
class ClientSpec:
    """A client the deployment knows: tuples are kept until it has acknowledged them."""

    name: str
    output: str
    sink: str | None = None


@dataclass(frozen=True)
class SecuritySpec:
    """Files of secrets; see flight/security.py."""

    token_file: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    authority: Path | None = None

    def read(self) -> Security:
        token = None
        if self.token_file is not None:
            try:
                token = self.token_file.read_text().strip()
            except OSError as error:
                raise SecurityError(
                    f"{self.token_file}: cannot be read: {error.strerror}"
                ) from None
            if not token:
                raise SecurityError(f"{self.token_file}: the token is empty")
        return Security.read(token, self.certificate, self.key, self.authority)


@dataclass(frozen=True)
class Deployment:
    """Everything ``holdfast up`` needs."""

    name: str
    path: Path
    network: Path
    data: Path
    timing: Timing
    sources: Mapping[str, SourceSpec]
    fragments: Mapping[str, FragmentSpec]
    clients: Mapping[str, ClientSpec]
    security: SecuritySpec = field(default_factory=SecuritySpec)
    spark_master: str = "local[2]"
    spark_config: Mapping[str, str] = field(default_factory=dict)

    @property
    def endpoints(self) -> dict[str, Endpoint]:
        """Where each node that listens does so."""
        found = {spec.process: spec.endpoint for spec in self.sources.values()}
        for fragment in self.fragments.values():
            found |= dict(zip(fragment.processes, fragment.replicas, strict=True))
        return found

    @property
    def processes(self) -> dict[str, tuple[str, ...]]:
        """The processes to start, and the nodes each hosts."""
        found: dict[str, list[str]] = {}
        for source in self.sources.values():
            found[source.process] = [source.process]
        for fragment in self.fragments.values():
            names = fragment.processes
            for process, name in zip(fragment.colocate or names, names, strict=True):
                found.setdefault(process, []).append(name)
        for client in self.clients.values():
            if client.sink is not None:
                found[client.name] = [client.name]
        return {name: tuple(nodes) for name, nodes in found.items()}


def load_deployment(path: str | os.PathLike[str]) -> Deployment:
    """Read and check a deployment file."""
    file = Path(path).resolve()
    try:
        found = tomllib.loads(file.read_text())
    except OSError as error:
        raise DeploymentError(f"{path}: cannot be read: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise DeploymentError(f"{path}: {error}") from None
    return _Reader(file).deployment(found)


class _Reader:
    """Turns TOML into a Deployment, with messages that name the place."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def deployment(self, found: dict[str, Any]) -> Deployment:
        self._known(
            "the file",
            found,
            "name",
            "network",
            "data",
            "timing",
            "security",
            "spark",
            "sources",
            "fragments",
            "clients",
        )
        spark = self._table("spark", found.get("spark", {}), "master", "config")
        network = self._path(self._need("the file", found, "network"))
        if not network.is_file():
            raise self._error("network", f"there is no file {str(network)!r}")
        deployment = Deployment(
            name=str(found.get("name", network.stem)),
            path=self._file,
            network=network,
            data=self._path(found.get("data", "data")),
            timing=self._timing(found.get("timing", {})),
            sources={name: self._source(name, each) for name, each in _items(found, "sources")},
            fragments={
                name: self._fragment(name, each) for name, each in _items(found, "fragments")
            },
            clients={name: self._client(name, each) for name, each in _items(found, "clients")},
            security=self._security(found.get("security", {})),
            spark_master=str(spark.get("master", "local[2]")),
            spark_config={key: str(value) for key, value in spark.get("config", {}).items()},
        )
        self._check_names(deployment)
        return deployment

    def _timing(self, found: dict[str, Any]) -> Timing:
        lengths = {
            "delay": "delay_us",
            "heartbeat": "heartbeat_interval_us",
            "partner_timeout": "partner_timeout_us",
            "postpone_lease": "postpone_lease_us",
            "checkpoint": "record_interval_us",
            "retry": "retry_us",
        }
        plain = ("alpha", "misses_until_down", "redo_buckets", "partial_redo_buckets")
        self._table("timing", found, *lengths, *plain)
        values: dict[str, Any] = {key: found[key] for key in plain if key in found}
        for key, name in lengths.items():
            if key in found:
                values[name] = self._length(f"timing.{key}", found[key])
        try:
            # The bucket is the network's; a tiny one stands in until that is known.
            return replace(Timing(bucket_us=1), **values)
        except (TypeError, ValueError) as error:
            raise self._error("timing", str(error)) from None

    def _source(self, name: str, found: dict[str, Any]) -> SourceSpec:
        where = f"sources.{name}"
        self._table(where, found, "from", "listen", "keep")
        reads = found.get("from")
        return SourceSpec(
            name,
            self._endpoint(f"{where}.listen", found.get("listen", _LOOPBACK)),
            None if reads in (None, "producer", "producers") else str(reads),
            bool(found.get("keep", False)),
        )

    def _fragment(self, name: str, found: dict[str, Any]) -> FragmentSpec:
        where = f"fragments.{name}"
        self._table(
            where,
            found,
            "replicas",
            "while_failed",
            "while_stabilizing",
            "reconcile",
            "colocate",
            "protection",
            "standby",
        )
        protection = None
        if "protection" in found:
            protection = self._choice(f"{where}.protection", found["protection"], Protection)
        replicas = found.get("replicas", 1 if protection in (None, Protection.NONE) else 2)
        if isinstance(replicas, int):
            if replicas < 1:
                raise self._error(f"{where}.replicas", f"at least 1 is needed, got {replicas}")
            endpoints = tuple(Endpoint() for _ in range(replicas))
        elif isinstance(replicas, list) and replicas:
            endpoints = tuple(self._endpoint(f"{where}.replicas", each) for each in replicas)
        else:
            raise self._error(
                f"{where}.replicas", f"a number or a list of host:port, got {replicas!r}"
            )
        reconcile = self._choice(
            f"{where}.reconcile", found.get("reconcile", "checkpoint"), Reconcile
        )
        self._check_protection(where, protection, len(endpoints), reconcile)
        return FragmentSpec(
            name,
            endpoints,
            self._choice(f"{where}.while_failed", found.get("while_failed", "process"), Policy),
            self._choice(
                f"{where}.while_stabilizing", found.get("while_stabilizing", "process"), Policy
            ),
            reconcile,
            self._colocate(f"{where}.colocate", found.get("colocate"), len(endpoints)),
            self._standby(name, protection, found.get("standby")),
        )

    def _check_protection(
        self, where: str, protection: Protection | None, replicas: int, reconcile: Reconcile
    ) -> None:
        if protection is None:
            return
        fits = {
            Protection.NONE: replicas == 1,
            Protection.ACTIVE: replicas >= 2,
            Protection.PASSIVE: replicas == 2,
            Protection.HYBRID: replicas == 2,
        }
        if not fits[protection]:
            raise self._error(
                f"{where}.replicas",
                f"none has one replica, active two or more, passive and hybrid two; "
                f"{protection.value} has {replicas} here",
            )
        if protection in (Protection.PASSIVE, Protection.HYBRID) and reconcile is Reconcile.UNDO:
            raise self._error(
                f"{where}.reconcile", "copies that stand by keep their state; use checkpoint"
            )

    def _standby(
        self, name: str, protection: Protection | None, found: Any
    ) -> StandbySettings | None:
        where = f"fragments.{name}.standby"
        if protection not in (Protection.PASSIVE, Protection.HYBRID):
            if found is not None:
                raise self._error(where, "only passive and hybrid fragments have copies that wait")
            return None
        found = found or {}
        lengths = {
            "heartbeat": "heartbeat_interval_us",
            "promote_after": "promote_after_us",
            "checkpoint_interval": "checkpoint_interval_us",
            "read_state_after": "read_state_after_us",
        }
        plain = ("load_threshold", "slowdown")
        self._table(where, found, "checkpoint", "persist", "misses", "detector", *plain, *lengths)
        values: dict[str, Any] = {
            field: self._length(f"{where}.{key}", found[key])
            for key, field in lengths.items()
            if key in found
        }
        values |= {key: float(found[key]) for key in plain if key in found}
        detector = found.get("detector", "heartbeat")
        if detector not in ("heartbeat", "benchmark"):
            raise self._error(
                f"{where}.detector", f"it is one of heartbeat, benchmark; got {detector!r}"
            )
        checkpoint = found.get("checkpoint", "sweeping")
        return StandbySettings(
            (f"{name}-1", f"{name}-2"),
            protection,
            self._choice(f"{where}.checkpoint", checkpoint, Checkpointing),
            persist=bool(found.get("persist", True)),
            misses_until_awake=int(
                found.get("misses", 1 if protection is Protection.HYBRID else 3)
            ),
            benchmarks=detector == "benchmark",
            **values,
        )

    def _colocate(self, where: str, found: Any, replicas: int) -> tuple[str, ...] | None:
        """One process for all replicas, or one for each."""
        names = (found,) * replicas if isinstance(found, str) else found
        if names is None:
            return None
        if not isinstance(names, list | tuple) or len(names) != replicas:
            raise self._error(
                where, f"a process, or a list of {replicas}, one for each replica; got {found!r}"
            )
        return tuple(str(each) for each in names)

    def _client(self, name: str, found: dict[str, Any]) -> ClientSpec:
        where = f"clients.{name}"
        self._table(where, found, "output", "sink")
        sink = found.get("sink")
        output = str(self._need(where, found, "output"))
        return ClientSpec(name, output, None if sink is None else str(sink))

    def _security(self, found: dict[str, Any]) -> SecuritySpec:
        names = ("token_file", "certificate", "key", "authority")
        self._table("security", found, *names)
        paths = {name: self._path(found[name]) if name in found else None for name in names}
        return SecuritySpec(**paths)

    def _check_names(self, deployment: Deployment) -> None:
        if not deployment.fragments:
            raise self._error("fragments", "there is none; name each: [fragments.main]")
        names = [*deployment.endpoints, *deployment.clients]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise self._error(twice[0], "two processes have this name; rename one")

    # -- small things -------------------------------------------------------------------

    def _error(self, where: str, what: str) -> DeploymentError:
        return DeploymentError(f"{self._file.name}: {where}: {what}")

    def _known(self, where: str, found: dict[str, Any], *names: str) -> None:
        unknown = [key for key in found if key not in names]
        if unknown:
            raise self._error(
                where, f"{unknown[0]!r} means nothing here; known are {', '.join(names)}"
            )

    def _table(self, where: str, found: Any, *names: str) -> dict[str, Any]:
        if not isinstance(found, dict):
            raise self._error(where, f"a table is needed, got {found!r}")
        self._known(where, found, *names)
        return found

    def _need(self, where: str, found: dict[str, Any], name: str) -> Any:
        if name not in found:
            raise self._error(where, f"{name!r} is missing")
        return found[name]

    def _path(self, text: object) -> Path:
        return (self._file.parent / str(text)).resolve()

    def _length(self, where: str, value: Any) -> int:
        try:
            return microseconds(value)
        except Exception as error:
            raise self._error(where, str(error)) from None

    def _choice(self, where: str, value: Any, choices: type[E]) -> E:
        try:
            return choices(value)
        except ValueError:
            known = ", ".join(str(each.value) for each in choices)
            raise self._error(where, f"it is one of {known}; got {value!r}") from None

    def _endpoint(self, where: str, text: Any) -> Endpoint:
        if isinstance(text, str):
            host, colon, port = text.rpartition(":")
            if not colon:
                return Endpoint(text or _LOOPBACK)
            if port.isdigit() and int(port) < 65_536:
                return Endpoint(host or _LOOPBACK, int(port))
        raise self._error(where, f"write it as host or host:port, got {text!r}")


def _items(found: dict[str, Any], key: str) -> list[tuple[str, Any]]:
    value = found.get(key, {})
    return list(value.items()) if isinstance(value, dict) else []
