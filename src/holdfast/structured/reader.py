"""An output of a deployment as a stream of Structured Streaming.

The offset of a query is the id of the next stable tuple, so a query that goes on from its
checkpoint gets each of them once, and in order. Producers keep what the query has not committed,
under the name of a client that the deployment names. A batch that Spark wants again after a restart
is read again by its ids.

With ``tentative`` the rows are those of ``connect.changes``: a column ``change`` says what each is.
What was tentative is not kept anywhere: a query that restarts is first told to take back what it
had been told, and a batch that comes again has its stable rows only.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import SimpleDataSourceStreamReader

from holdfast.client import Client
from holdfast.connect.changes import Changes
from holdfast.deployment import load_deployment
from holdfast.errors import HoldfastError, InputError
from holdfast.frames import SEQ, STIME, SYSTEM_COLUMNS, numbered
from holdfast.plans.plan import read_plan
from holdfast.stream_events import Boundary, ClientEvent, Tuples, Undo, Unordered

# How long a read waits for a first event, and for a next one.
_FIRST_SECONDS, _NEXT_SECONDS = 0.2, 0.02
_AGAIN_SECONDS = 120.0

Offset = dict[str, int]


def reader_of(
    deployment: str, output: str, client: str, tentative: bool, most_tuples: int
) -> OutputReader:
    """A reader; InputError if the deployment has no such output, or no such client of it."""
    found = load_deployment(deployment)
    plan = read_plan(found)
    fragments = plan.fragments.values()
    streams = {each.stream: each.schema for one in fragments for each in one.outputs}
    if output not in plan.outputs:
        known = sorted(plan.outputs)
        raise InputError(f"{deployment} has no output {output!r}; it has {known}")
    named = found.clients.get(client)
    if named is None or named.output != output or named.sink is not None:
        raise InputError(
            f"{deployment} must name the client {client!r}, so that tuples are kept until the "
            f'query has them: add [clients.{client}] with output = "{output}", and no sink'
        )
    own = pa.schema([field for field in streams[output] if field.name not in SYSTEM_COLUMNS])
    return OutputReader(
        str(Path(deployment).resolve()), output, client, own, tentative, most_tuples
    )


class OutputReader(SimpleDataSourceStreamReader):
    """Reads one output for one query."""

    def __init__(
        self,
        deployment: str,
        output: str,
        client: str,
        own: pa.Schema,
        tentative: bool,
        most_tuples: int,
    ) -> None:
        self._deployment, self._output, self._name = deployment, output, client
        self._own = own
        self._tentative = tentative
        self._most_tuples = most_tuples
        self._client: Client | None = None
        self._changes: Changes | None = None
        self.schema = (
            Changes(output, own, None).schema if tentative else pa.schema([SEQ, STIME, *own])
        )

    def initialOffset(self) -> Offset:
        return {"next_id": 0, "turn": 0, "tentative_until": 0}

    def read(self, start: Offset) -> tuple[Iterator[Any], Offset]:
        """What has come since ``start``, and where that ends."""
        tables: list[pa.Table] = []
        client = self._client_at(start, tables)
        tuples = 0
        wait_s = _FIRST_SECONDS
        while tuples < self._most_tuples:
            event = client.read(wait_s)
            if event is None:
                break
            wait_s = _NEXT_SECONDS
            table = self._rows(event)
            if table is not None:
                tables.append(table)
                tuples += table.num_rows
        if not tables:
            return iter([]), start
        until = 0 if self._changes is None else self._changes.tentative_until
        end = {"next_id": client.next_id, "turn": start["turn"] + 1, "tentative_until": until}
        return iter(_batches(tables)), end

    def readBetweenOffsets(self, start: Offset, end: Offset) -> Iterator[Any]:
        """The stable tuples of a batch that came before: it is wanted again."""
        # A name of its own: producers must not take its feeds for those of the running query.
        name = f"{self._name}-again"
        tables = []
        if self._tentative:
            self._changes = self._changes_since(start)
            tables += _told(self._changes.begin())
        deadline = time.monotonic() + _AGAIN_SECONDS
        with self._open(name, start["next_id"]) as client:
            while client.next_id < end["next_id"]:
                event = client.read(1.0)
                if isinstance(event, Tuples) and event.stable:
                    tables += _told(self._rows(event))
                elif time.monotonic() > deadline:
                    raise HoldfastError(
                        f"{self._output}: tuples {start['next_id']} to {end['next_id']} are wanted "
                        f"again; {client.next_id - start['next_id']} came in {_AGAIN_SECONDS:g} s"
                    )
        return iter(_batches([_before(table, end["next_id"]) for table in tables]))

    def commit(self, end: Offset) -> None:
        """The query has what is before ``end``: it is not kept any longer."""
        if self._client is not None:
            self._client.commit(end["next_id"])

    # -- the stream ---------------------------------------------------------------------

    def _open(self, name: str, next_id: int) -> Client:
        return Client.of(
            self._deployment, self._output, name=name, next_id=next_id, auto_commit=False
        )

    def _client_at(self, start: Offset, tables: list[pa.Table]) -> Client:
        """The client that goes on at ``start``."""
        if self._client is not None and self._client.next_id == start["next_id"]:
            return self._client
        if self._client is not None:
            self._client.close()
        self._client = self._open(self._name, start["next_id"])
        if self._tentative:
            self._changes = self._changes_since(start)
            tables += _told(self._changes.begin())
        return self._client

    def _changes_since(self, start: Offset) -> Changes:
        return Changes(self._output, self._own, {"tentative_until": start["tentative_until"]})

    def _rows(self, event: ClientEvent) -> pa.Table | None:
        """An event as rows; None if it has none."""
        changes = self._changes
        match event:
            case Tuples(True):
                table = numbered(event.first_id, event.table, self._own)
                return table if changes is None else changes.stable(table)
            case Tuples(False) if changes is not None:
                return changes.tentative(event.table.select(["stime", *self._own.names]), event.why)
            case Undo(below_stime) if changes is not None:
                return changes.undo(below_stime)
            case Tuples() | Unordered() | Undo() | Boundary():
                return None  # it reads in order

    def __getstate__(self) -> dict[str, Any]:
        """Spark sends readers to its workers: a connection does not go with them."""
        return {**self.__dict__, "_client": None, "_changes": None}


def _told(table: pa.Table | None) -> list[pa.Table]:
    return [] if table is None else [table]


def _before(table: pa.Table, next_id: int) -> pa.Table:
    """The rows of a table with ids below ``next_id``, and those without an id."""
    ids = table["seq"]
    return table.filter(pc.fill_null(pc.less(ids, next_id), True))


def _batches(tables: list[pa.Table]) -> list[pa.RecordBatch]:
    return [batch for table in tables for batch in table.combine_chunks().to_batches()]
