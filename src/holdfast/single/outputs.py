"""All outputs of a run: numbers their tuples and writes them to the sinks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.connect.console_sink import write_console
from holdfast.connect.sink import Sink, Writer
from holdfast.errors import StateError
from holdfast.frames import SYSTEM_COLUMNS, numbered
from holdfast.network import Network
from holdfast.single.inputs import check_names, check_same
from holdfast.spark.engine import input_schema


class Outputs:
    """The sinks of a network; an output without one goes to the console.

    Sinks are opened with the first tuples, because opening cuts off what an earlier run wrote
    after its last checkpoint.
    """

    def __init__(
        self,
        network: Network,
        sinks: Mapping[str, Sink],
        saved: Mapping[str, Any] | None,
        writer: str = "",
        finished: bool = False,
        notes: Callable[[str], Path] | None = None,
    ) -> None:
        """``writer`` is who writes, for sinks that keep the last tuple id themselves.

        notes     by output, the file in which its sink may note what it begins.
        finished  an earlier run has written what its windows had at the end of its input.
        """
        check_names("output", network, sinks, network.outputs)
        self._schemas = {
            name: input_schema(stream.operator) for name, stream in network.outputs.items()
        }
        self._own = {
            name: pa.schema([each for each in schema if each.name not in SYSTEM_COLUMNS])
            for name, schema in self._schemas.items()
        }
        self._sinks = {
            name: (sinks.get(name) or write_console()).known_as(writer, notes and notes(name))
            for name in network.outputs
        }
        self._finished = finished
        self._saved = {name: (saved or {}).get(name, {}) for name in network.outputs}
        for name, sink in self._sinks.items():
            if name in (saved or {}):
                check_same("output", name, self._saved[name]["sink"], sink.identity)
        self._writers: dict[str, Writer] = {}
        self.tuples = {name: int(self._saved[name].get("next_id", 0)) for name in self._schemas}

    def open(self) -> None:
        """Open every sink that is not open yet."""
        for name, sink in self._sinks.items():
            if name not in self._writers:
                if self._finished and not sink.can_go_back:
                    raise StateError(
                        f"output {name!r}: an earlier run came to the end of its input and wrote "
                        f"what its windows had by then; now there is more input, and {sink} cannot "
                        f"take that back. Let such a source go on waiting (follow), or start over "
                        f"with a new state directory"
                    )
                position = self._saved[name].get("position")
                self._writers[name] = sink.open(name, self._schemas[name], position)

    def write(self, tables: Mapping[str, pa.Table]) -> int:
        """Number and write the tuples of one advance; how many there were."""
        self.open()
        total = 0
        for name, table in tables.items():
            if table.num_rows:
                self._writers[name].write(numbered(self.tuples[name], table, self._own[name]))
                self.tuples[name] += table.num_rows
                total += table.num_rows
        return total

    @property
    def ready(self) -> bool:
        """Whether every sink can be flushed now."""
        return all(writer.ready for writer in self._writers.values())

    def flush(self) -> dict[str, Any]:
        """Make everything written durable; what the manifest keeps."""
        self.open()
        return {
            name: {
                "sink": self._sinks[name].identity,
                "position": writer.flush(),
                "next_id": self.tuples[name],
            }
            for name, writer in self._writers.items()
        }

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()
