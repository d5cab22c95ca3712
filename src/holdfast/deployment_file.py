"""Reads the tables of a deployment file, with messages that name the place of what is wrong."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

from holdfast.clock import FOLLOW
from holdfast.connect.source import OFF
from holdfast.continuous_knobs import CONTINUOUS_KNOBS, KnobError, read_continuous
from holdfast.core.settings import (
    Bound,
    Checkpointing,
    Continuous,
    Delivery,
    Policy,
    Protection,
    Reconcile,
    StandbySettings,
    Then,
    Timing,
)
from holdfast.core.source_time import Late
from holdfast.delivery_knobs import read_delivery
from holdfast.deployment import (
    ARRIVED,
    LOOPBACK,
    MEASURED,
    MOVED,
    RESCALED,
    ClientSpec,
    CollectionSpec,
    Deployment,
    Endpoint,
    FragmentSpec,
    OutputSpec,
    SecuritySpec,
    SourceSpec,
)
from holdfast.deployment_checks import check_together, coordinates
from holdfast.deployment_shards import SHARD_KNOBS, read_shards
from holdfast.deployment_tables import TableReader
from holdfast.flight.distance import Distance, DistanceError, Distances, read_matrix

# What can be said of a source whose tuples bring their own time.
SOURCE_TIMES = ("lateness", "idle_after", "future_limit", "late")


class DeploymentReader(TableReader):
    """Turns TOML into a Deployment, with messages that name the place."""

    def __init__(self, file: Path) -> None:
        super().__init__(file)
        self._servers: dict[str, Endpoint] = {}
        self._spares: dict[str, int] = {}
        self._coordinates: dict[str, tuple[float, float]] = {}
        # An address of this machine, for clients that name none.
        self._own_host = LOOPBACK

    def deployment(self, found: dict[str, Any]) -> Deployment:
        self._known(
            "the file",
            {key: each for key, each in found.items() if key not in (MEASURED, MOVED)},
            "name",
            "network",
            "data",
            "timing",
            "security",
            "spark",
            "sources",
            "fragments",
            "outputs",
            "clients",
            "servers",
            "files",
            "chaos",
            "distances",
            "bounds",
            "collection",
        )
        self._servers = {name: self._server(name, each) for name, each in _items(found, "servers")}
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
            fragments=self._fragments(found),
            outputs={name: self._output(name, each) for name, each in _items(found, "outputs")},
            measured=found.get(MEASURED, {}),
            moved=frozenset(found.get(MOVED, ())),
            clients={name: self._client(name, each) for name, each in _items(found, "clients")},
            security=self._security(found),
            spark_master=str(spark.get("master", "local[2]")),
            spark_config={key: str(value) for key, value in spark.get("config", {}).items()},
            servers=self._servers,
            files=tuple(self._file_beside(each) for each in found.get("files", [])),
            spares=self._spares,
            coordinates=self._coordinates,
            follow_clock=self._follow_clock(found.get("timing", {})),
            chaos=self._flag("chaos", found.get("chaos", False)),
            distances=self._distances(found.get("distances")),
            bounds=self._bounds(found.get("bounds", {})),
            collection=self._collection(found.get("collection")),
        )
        check_together(deployment, self._error)
        security = replace(deployment.security, machines=deployment.machines())
        return replace(deployment, security=security)

    def _timing(self, found: dict[str, Any]) -> Timing:
        lengths = {
            "delay": "delay_us",
            "heartbeat": "heartbeat_interval_us",
            "partner_timeout": "partner_timeout_us",
            "postpone_lease": "postpone_lease_us",
            "record_interval": "record_interval_us",
            "retry": "retry_us",
            "stall": "stall_us",
        }
        plain = (
            "alpha",
            "misses_until_down",
            "redo_buckets",
            "partial_redo_buckets",
            "job_attempts",
            "tentative_frames",
        )
        self._table("timing", found, "follow_clock", *lengths, *plain)
        values: dict[str, Any] = {key: found[key] for key in plain if key in found}
        values["alpha_adapts"] = "alpha" not in found
        for key, name in lengths.items():
            if key in found:
                values[name] = self._length(f"timing.{key}", found[key])
        try:
            # The bucket is the network's; a tiny one stands in until that is known.
            return replace(Timing(bucket_us=1), **values)
        except (TypeError, ValueError) as error:
            raise self._error("timing", str(error)) from None

    def _bounds(self, found: Any) -> dict[str, Bound]:
        """What is kept for those who are away: of every stream, and of those that are named."""
        if not isinstance(found, dict):
            raise self._error("bounds", f"it is a table, got {found!r}")
        named = {name: each for name, each in found.items() if isinstance(each, dict)}
        common = {key: each for key, each in found.items() if key not in named}
        bounds = {"": self._bound("bounds", common)} if common else {}
        for name, each in named.items():
            bounds[name] = self._bound(f"bounds.{name}", {**common, **each})
        return bounds

    def _bound(self, where: str, found: dict[str, Any]) -> Bound:
        self._table(where, found, "bytes", "age", "then", "away")
        size, age = found.get("bytes"), found.get("age")
        away = found.get("away", "10 seconds")
        return Bound(
            None if size in (None, OFF) else self._size(f"{where}.bytes", size),
            None if age in (None, OFF) else self._length(f"{where}.age", age),
            self._choice(f"{where}.then", found.get("then", "block"), Then),
            self._length(f"{where}.away", away),
        )

    def _collection(self, found: Any) -> CollectionSpec | None:
        if found is None:
            return None
        where = "collection"
        self._table(where, found, "network_cost", "least", "every")
        least = found.get("least", 1)
        if isinstance(least, bool) or not isinstance(least, int) or least < 1:
            raise self._error(f"{where}.least", f"a number of replicas from 1 on, got {least!r}")
        cost = self._amount(f"{where}.network_cost", self._need(where, found, "network_cost"))
        every = self._length(f"{where}.every", found.get("every", "1 minute"), 1_000_000)
        return CollectionSpec(cost, least, every)

    def _amount(self, where: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < inf:
            raise self._error(where, f"a number that is not negative, got {value!r}")
        return float(value)

    def _follow_clock(self, found: dict[str, Any]) -> float:
        value = found.get("follow_clock", FOLLOW)
        if isinstance(value, int | float) and 0 <= value < 1:
            return float(value)
        raise self._error("timing.follow_clock", f"a share from 0 to below 1, got {value!r}")

    def _source(self, name: str, found: dict[str, Any]) -> SourceSpec:
        where = f"sources.{name}"
        self._table(where, found, "from", "listen", "keep", *SOURCE_TIMES)
        reads = found.get("from")
        endpoint = self._endpoint(f"{where}.listen", found.get("listen", LOOPBACK))
        if endpoint.server is None:
            self._own_host = endpoint.host
        return SourceSpec(
            name,
            endpoint,
            None if reads in (None, "producer", "producers") else str(reads),
            self._flag(f"{where}.keep", found.get("keep", False)),
            self._times(where, found),
        )

    def _times(self, where: str, found: dict[str, Any]) -> dict[str, Any]:
        """What is said of a source's own time, as ``connect.source.Source`` has it."""
        times: dict[str, Any] = {}
        for key in SOURCE_TIMES:
            if key not in found:
                continue
            if key == "late":
                times[key] = self._choice(f"{where}.late", found[key], Late).value
            elif key == "future_limit" and found[key] == OFF:
                times[key] = OFF
            else:
                times[key] = self._length(f"{where}.{key}", found[key], 0)
        return times

    def _fragments(self, tables: dict[str, Any]) -> dict[str, FragmentSpec]:
        """The fragments, those with shards as the fragments they become."""
        found: dict[str, FragmentSpec] = {}
        for name, table in _items(tables, "fragments"):
            parts = self._parts(f"fragments.{name}", table, self._fragment(name, table))
            twice = sorted(found.keys() & parts)
            if twice:
                raise self._error(
                    f"fragments.{name}", f"a shard would be called {twice[0]!r}, too; rename one"
                )
            found |= parts
        return found

    def _parts(
        self, where: str, table: dict[str, Any], spec: FragmentSpec
    ) -> dict[str, FragmentSpec]:
        try:
            return read_shards(table, spec, lambda each: self._endpoint(f"{where}.shards", each))
        except KnobError as error:
            raise self._error(f"{where}.{error.knob}", error.what) from None

    def _fragment(self, name: str, found: dict[str, Any]) -> FragmentSpec:
        where = f"fragments.{name}"
        given = found
        if isinstance(found, dict):
            given = {key: found[key] for key in found.keys() - {RESCALED, ARRIVED}}
        self._table(
            where,
            given,
            "replicas",
            "while_failed",
            "while_stabilizing",
            "reconcile",
            "colocate",
            "protection",
            "standby",
            "checkpoint",
            "on_error",
            "delivery",
            *SHARD_KNOBS,
            *CONTINUOUS_KNOBS,
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
        reconcile = self._choice(f"{where}.reconcile", found.get("reconcile", "restore"), Reconcile)
        self._check_protection(where, protection, len(endpoints) - found.get(ARRIVED, 0), reconcile)
        spec = FragmentSpec(
            name,
            endpoints,
            self._choice(f"{where}.while_failed", found.get("while_failed", "process"), Policy),
            self._choice(
                f"{where}.while_stabilizing", found.get("while_stabilizing", "process"), Policy
            ),
            reconcile,
            self._colocate(f"{where}.colocate", found.get("colocate"), len(endpoints)),
            self._standby(name, protection, found.get("standby")),
            self._continuous(where, found),
            self._on_error(where, found.get("on_error", "stop")),
            protection is Protection.RACE,
        )
        return replace(spec, delivery=self._delivery(where, found, spec.protection))

    def _delivery(self, where: str, found: dict[str, Any], protection: Protection) -> Delivery:
        try:
            return read_delivery(found, protection)
        except KnobError as error:
            raise self._error(f"{where}.{error.knob}", error.what) from None

    def _on_error(self, where: str, value: Any) -> str:
        if value not in ("stop", "dead-letter"):
            raise self._error(f"{where}.on_error", f"it is one of stop, dead-letter; got {value!r}")
        return str(value)

    def _continuous(self, where: str, found: dict[str, Any]) -> Continuous | None:
        try:
            return read_continuous(found)
        except KnobError as error:
            raise self._error(f"{where}.{error.knob}", error.what) from None

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
            Protection.RACE: replicas >= 2,
        }
        if not fits[protection]:
            raise self._error(
                f"{where}.replicas",
                f"none has one replica, active and race two or more, passive and hybrid two; "
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
                raise self._error(
                    where,
                    "only passive and hybrid fragments have copies that wait, to which checkpoints "
                    "are sent; all others keep their state themselves, now and then "
                    '(timing.record_interval) or in their log (checkpoint = "continuous")',
                )
            return None
        found = found or {}
        lengths = {
            "heartbeat": "heartbeat_interval_us",
            "promote_after": "promote_after_us",
            "checkpoint_interval": "checkpoint_interval_us",
            "read_state_after": "read_state_after_us",
        }
        plain = ("load_threshold", "slowdown")
        self._table(where, found, "send", "persist", "misses", "detector", *plain, *lengths)
        values: dict[str, Any] = {
            field: self._length(f"{where}.{key}", found[key])
            for key, field in lengths.items()
            if key in found
        }
        values |= {key: self._amount(f"{where}.{key}", found[key]) for key in plain if key in found}
        detector = found.get("detector", "heartbeat")
        if detector not in ("heartbeat", "benchmark"):
            raise self._error(
                f"{where}.detector", f"it is one of heartbeat, benchmark; got {detector!r}"
            )
        return StandbySettings(
            (f"{name}-1", f"{name}-2"),
            protection,
            self._choice(f"{where}.send", found.get("send", "sweeping"), Checkpointing),
            persist=self._flag(f"{where}.persist", found.get("persist", True)),
            misses_until_awake=self._count(
                f"{where}.misses", found.get("misses", 1 if protection is Protection.HYBRID else 3)
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

    def _output(self, name: str, found: dict[str, Any]) -> OutputSpec:
        where = f"outputs.{name}"
        self._table(where, found, "delay", "divide")
        delay_us = self._length(f"{where}.delay", self._need(where, found, "delay"))
        by = found.get("divide", "equal")
        if by not in ("equal", "measured"):
            raise self._error(f"{where}.divide", f"it is one of equal, measured; got {by!r}")
        return OutputSpec(delay_us, measured=by == "measured")

    def _client(self, name: str, found: dict[str, Any]) -> ClientSpec:
        where = f"clients.{name}"
        self._table(where, found, "output", "sink", "listen", "worth")
        sink = found.get("sink")
        output = str(self._need(where, found, "output"))
        listen = self._endpoint(f"{where}.listen", found.get("listen", self._own_host))
        worth = self._amount(f"{where}.worth", found.get("worth", 1))
        return ClientSpec(name, output, None if sink is None else str(sink), listen, worth)

    def _server(self, name: str, found: dict[str, Any]) -> Endpoint:
        where = f"servers.{name}"
        self._table(where, found, "listen", "spare", "at")
        if "at" in found:
            try:
                self._coordinates[name] = coordinates(str(found["at"]))
            except ValueError as error:
                raise self._error(f"{where}.at", str(error)) from None
        if "spare" in found:
            self._spares[name] = self._length(f"{where}.spare", found["spare"])
        endpoint = self._endpoint(f"{where}.listen", self._need(where, found, "listen"))
        if not endpoint.port:
            raise self._error(f"{where}.listen", "write it as host:port, with the server's port")
        return replace(endpoint, server=name)

    def _file_beside(self, text: object) -> Path:
        """A file that servers need, too: beside the deployment file or below."""
        path = self._path(text)
        if not path.is_file() or not path.is_relative_to(self._file.parent):
            raise self._error("files", f"there is no file {text!r} beside {self._file.name}")
        return path

    def _distances(self, found: Any) -> Distances:
        if found is None:
            return Distances()
        where = "distances"
        self._table(where, found, "matrix", "places", "jitter", "bandwidth", "lost_every")
        path = self._path(self._need(where, found, "matrix"))
        places = found.get("places", {})
        if not isinstance(places, dict) or not all(
            isinstance(each, str) for each in places.values()
        ):
            raise self._error(f"{where}.places", f'write {{ main-1 = "boston" }}, got {places!r}')
        jitter_ms = self._length(f"{where}.jitter", found.get("jitter", "0 ms"), 0) / 1e3
        bandwidth = found.get("bandwidth", 0.0)
        if isinstance(bandwidth, bool) or not isinstance(bandwidth, int | float):
            raise self._error(f"{where}.bandwidth", f"KiB a second, got {bandwidth!r}")
        lost_s = self._length(f"{where}.lost_every", found.get("lost_every", "0 ms"), 0) / 1e6
        try:
            matrix = read_matrix(path)
            # Says so at once if a link is longer than can be.
            Distance(max(matrix.values()), jitter_ms, bandwidth, lost_s)
        except DistanceError as error:
            raise self._error(where, str(error)) from None
        return Distances(places, matrix, jitter_ms, float(bandwidth), lost_s)

    def _security(self, tables: dict[str, Any]) -> SecuritySpec:
        names = ("token_file", "tokens", "certificate", "key", "authority")
        found = self._table("security", tables.get("security", {}), *names, "mutual", "directory")
        if "directory" in found:
            if len(found) > 1:
                raise self._error("security", "with a directory, nothing else is needed")
            return SecuritySpec.at(self._path(found["directory"]))
        paths: dict[str, Any] = {name: self._path(found[name]) for name in names if name in found}
        mutual = self._flag("security.mutual", found.get("mutual", True))
        if "token_file" in found and "tokens" in found:
            raise self._error(
                "security", "token_file is one token for every role, tokens one each; choose one"
            )
        shown = mutual and all(name in found for name in ("certificate", "key", "authority"))
        if "token_file" not in found and "tokens" not in found and not shown:
            paths["tokens"] = self._path(tables.get("data", "data")) / "tokens"
            return SecuritySpec(**paths, mutual=mutual, own_tokens=True)
        return SecuritySpec(**paths, mutual=mutual)

    # -- small things -------------------------------------------------------------------

    def _endpoint(self, where: str, text: Any) -> Endpoint:
        if isinstance(text, str):
            host, colon, port = text.rpartition(":")
            if not colon:
                host, port = text, "0"
            if port.isdigit() and int(port) < 65_536:
                server = self._servers.get(host)
                if server is not None:
                    return replace(server, port=int(port))
                return Endpoint(host or LOOPBACK, int(port))
        raise self._error(where, f"write it as host, host:port or a server's name, got {text!r}")


def _items(found: dict[str, Any], key: str) -> list[tuple[str, Any]]:
    value = found.get(key, {})
    return list(value.items()) if isinstance(value, dict) else []
