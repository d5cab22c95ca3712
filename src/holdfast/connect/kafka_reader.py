"""Reads the partitions of a topic, each as a lane, from offsets that others keep.

The consumer belongs to no group: which partitions there are is known from the topic, which offset
is next from the position. Offsets move on when a chunk is handed out, never before. What a broker
that is away keeps from being read is a problem that passes; records that are gone are not.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import chain, compress, pairwise, repeat
from operator import is_not
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from holdfast.connect.judging import Int64s
from holdfast.connect.kafka_client import client_config, kafka
from holdfast.connect.kafka_topic import TopicState, TopicWatch
from holdfast.connect.record_formats import Decoder, RegistryFailed
from holdfast.connect.source import Chunk, Position, Reader, Reject
from holdfast.errors import InputError
from holdfast.frames import TIME

if TYPE_CHECKING:
    from holdfast.connect.kafka_source import KafkaSource

_MOST_RECORDS = 20_000
# A read waits so long for the first record, and no longer.
_WAIT_SECONDS = 0.005
# How much is fetched ahead, and how soon again once there is room: by default after a second, in
# which there would be nothing to read.
FETCHING = {
    "fetch.wait.max.ms": 100,
    "queued.max.messages.kbytes": 32_768,
    "fetch.queue.backoff.ms": 5,
}
# Offset: from the first record that is there.
_BEGINNING = -2
_PLACES = pa.schema(
    [
        pa.field("kafka_topic", pa.string()),
        pa.field("kafka_partition", pa.int32()),
        pa.field("kafka_offset", pa.int64()),
    ]
)
_SHOWN_BYTES = 1_000


@dataclass(frozen=True)
class _Part:
    """Records of one partition that were received and not yet handed out, and their offsets."""

    partition: int
    messages: Sequence[Any]
    offsets: Int64s

    @property
    def end(self) -> int:
        """The offset after the last."""
        return int(self.offsets[-1]) + 1


class KafkaReader(Reader):
    """An open topic."""

    def __init__(self, source: KafkaSource, schema: pa.Schema, position: Position | None) -> None:
        self._source = source
        self._wanted = [name for name in schema.names if name.startswith("kafka_")]
        fields = [each for each in schema if each.name not in self._wanted]
        self._decoder = Decoder(source.format, pa.schema(fields), source.topic)
        self._topic_id: str | None = position["topic_id"] if position else None
        # By partition, the offset of the next record that is to be handed out.
        offsets = position["offsets"] if position else {}
        self._offsets: dict[int, int] = {int(number): at for number, at in offsets.items()}
        # Where the source ends, if it does. One that goes on from where it was followed has no end
        # yet, and one that is followed from now on has none any more.
        ends = position.get("ends") if position and not source.follow else None
        self._ends: dict[int, int] | None = ends and {int(key): at for key, at in ends.items()}
        self._assigned: set[int] = set()
        # By partition, where it ended, if all before that was received.
        self._at_end: dict[int, int] = {}
        # Partitions that are ahead of the others and bring nothing for now.
        self._held: set[int] = set()
        # Partitions that began anew after a loss, and the offset that was wanted.
        self._lost: dict[int, int] = {}
        self._parts: deque[_Part] = deque()
        self._rejects: list[Reject] = []
        self._problem: str | None = None
        self._using = threading.Lock()
        self._closed = False
        from_end = position is None and source.starting_offsets == "latest"
        wants_ends = from_end or (self._ends is None and not source.follow)
        self._watch = TopicWatch(source.topic, source.servers, source.config, wants_ends)
        self._consumer = kafka().Consumer(
            {
                **FETCHING,
                **client_config(source.servers, source.config),
                # The library wants a name; nothing is read from it.
                "group.id": source.group or "holdfast",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "allow.auto.create.topics": False,
                "isolation.level": "read_committed",
                "error_cb": self._failed,
            }
        )

    # -- what is known of it ------------------------------------------------------------

    @property
    def problem(self) -> str | None:
        return self._problem or self._watch.problem

    @property
    def lanes(self) -> Sequence[str]:
        return [str(number) for number in self._offsets]

    @property
    def behind(self) -> Collection[str]:
        if self.problem is not None:
            return self.lanes
        return [str(number) for number in self._offsets if number not in self._at_end]

    @property
    def finished(self) -> Collection[str]:
        if self._ends is None:
            return ()
        return [
            str(number)
            for number, offset in self._offsets.items()
            if offset >= self._ends.get(number, 0)
        ]

    @property
    def places(self) -> pa.Schema:
        return _PLACES

    @property
    def position(self) -> Position:
        offsets = {str(number): offset for number, offset in self._offsets.items()}
        ends = None
        if self._ends is not None:
            ends = {str(number): offset for number, offset in self._ends.items()}
        return {"topic_id": self._topic_id, "offsets": offsets, "ends": ends}

    def hold(self, lanes: Collection[str]) -> None:
        wanted = {int(lane) for lane in lanes} & self._assigned
        with self._using:
            if wanted == self._held or self._closed:
                return
            self._consumer.resume(self._places(self._held - wanted))
            self._consumer.pause(self._places(wanted - self._held))
            self._held = wanted

    def look_further(self) -> None:
        with self._using:
            if not self._source.follow:
                self._ends = None
                self._watch.want_ends()

    def _places(self, partitions: Collection[int]) -> list[Any]:
        return [kafka().TopicPartition(self._source.topic, number) for number in partitions]

    def checkpointed(self, position: Position) -> None:
        if self._source.group is not None:
            offsets = [
                kafka().TopicPartition(self._source.topic, int(number), offset)
                for number, offset in position["offsets"].items()
                if offset >= 0
            ]
            with self._using:
                if offsets and not self._closed:
                    self._consumer.commit(offsets=offsets, asynchronous=True)

    def close(self) -> None:
        with self._using:
            self._closed = True
            self._decoder.close()
            self._consumer.close()

    # -- reading ------------------------------------------------------------------------

    def read(self) -> Chunk | None:
        with self._using:
            if self._closed:
                return None
            state = self._watch.look()
            if state is not None:
                self._changed(state)
            if not self._parts:
                self._receive()
            chunk = self._next_chunk()
            if self._ends is not None and not self._parts:
                self.ended = len(self.finished) == len(self._ends)
            return chunk

    def _next_chunk(self) -> Chunk | None:
        if self._rejects:
            rejects, self._rejects = self._rejects, []
            return Chunk(pa.table({}), rejects, self.lanes[0])
        if not self._parts:
            return None
        part = self._parts[0]
        try:
            chunk = self._chunk(part)
        except RegistryFailed as error:
            self._problem = str(error)  # the same records are tried again
            return None
        self._parts.popleft()
        self._offsets[part.partition] = part.end
        self._pass_marks(part.partition)
        return chunk

    def _chunk(self, part: _Part) -> Chunk:
        values = list(map(kafka().Message.value, part.messages))
        decoded = self._decoder.decode(values)
        rejects = [
            Reject(reason, self._shown(part.messages[number], values[number]))
            for number, reason in sorted(decoded.bad.items())
        ]
        table = decoded.table
        if decoded.bad:
            good = [part.messages[number] for number in decoded.good]
            part = _Part(part.partition, good, part.offsets[list(decoded.good)])
        for name, column in self._columns(part).items():
            table = table.append_column(name, column)
        return Chunk(table if part.messages else pa.table({}), rejects, str(part.partition))

    def _columns(self, part: _Part) -> dict[str, pa.Array]:
        """The record's own columns: those that are declared, and its place."""
        message, count = kafka().Message, len(part.messages)
        found = {
            "kafka_topic": pa.repeat(self._source.topic, count),
            "kafka_partition": pa.repeat(pa.scalar(part.partition, pa.int32()), count),
            "kafka_offset": pa.array(part.offsets),
        }
        if "kafka_timestamp" in self._wanted:
            stamps = map(message.timestamp, part.messages)
            times = np.fromiter((stamp[1] for stamp in stamps), np.int64, count)
            found["kafka_timestamp"] = pa.array(times).cast(pa.timestamp("ms", tz="UTC")).cast(TIME)
        if "kafka_key" in self._wanted:
            keys = list(map(message.key, part.messages))
            found["kafka_key"] = pa.array(keys, pa.binary())
        return found

    def _shown(self, message: Any, value: bytes | None) -> dict[str, object]:
        return {
            "kafka_topic": self._source.topic,
            "kafka_partition": message.partition(),
            "kafka_offset": message.offset(),
            "value": value and value[:_SHOWN_BYTES].decode("utf-8", "replace"),
        }

    def _receive(self) -> None:
        """What the library has fetched, as parts in the order of partitions."""
        if not self._assigned:
            self._consumer.poll(0)  # only so that it can say what is wrong
            return
        messages = self._consumer.consume(_MOST_RECORDS, _WAIT_SECONDS)
        errors = list(map(kafka().Message.error, messages))
        # By identity: the library's errors cannot be compared with None.
        if not any(map(is_not, errors, repeat(None))):
            self._sort(messages)
            return
        self._sort([each for each, error in zip(messages, errors, strict=True) if error is None])
        for message, error in zip(messages, errors, strict=True):
            if error is not None:
                self._noted(error, message)

    def _sort(self, records: Sequence[Any]) -> None:
        """By partition. The library gives long runs of each, which stay whole lists."""
        if not records:
            return
        self._problem = None
        message, count = kafka().Message, len(records)
        partitions = np.fromiter(map(message.partition, records), np.int32, count)
        offsets = np.fromiter(map(message.offset, records), np.int64, count)
        edges = [0, *(np.flatnonzero(np.diff(partitions)) + 1).tolist(), count]
        runs: dict[int, list[slice]] = {}
        for first, end in pairwise(edges):
            runs.setdefault(int(partitions[first]), []).append(slice(first, end))
        for partition, mine in sorted(runs.items()):
            found = list(chain.from_iterable(records[run] for run in mine))
            self._take(_Part(partition, found, np.concatenate([offsets[run] for run in mine])))

    def _take(self, part: _Part) -> None:
        partition = part.partition
        if partition in self._lost:
            self._tell_lost(partition, int(part.offsets[0]))
        # What was fetched before an assignment changed may come once more.
        wanted = part.offsets >= self._offsets[partition]
        end = (self._ends or {}).get(partition)
        if end is not None:
            wanted &= part.offsets < end
        if not wanted.all():
            messages = list(compress(part.messages, wanted))
            part = _Part(partition, messages, part.offsets[wanted])
        if part.messages:
            self._at_end.pop(partition, None)
            self._parts.append(part)

    # -- what else the cluster says -----------------------------------------------------

    def _noted(self, error: Any, message: Any) -> None:
        codes = kafka().KafkaError
        partition = message.partition()
        match error.code():
            case codes._PARTITION_EOF:
                self._reached_end(partition, message.offset())
            case codes._AUTO_OFFSET_RESET | codes.OFFSET_OUT_OF_RANGE:
                self._gone(partition)
            case _:
                self._failed(error)

    def _reached_end(self, partition: int, offset: int) -> None:
        self._problem = None
        if partition in self._lost:
            self._tell_lost(partition, offset)
        received = [each.end for each in self._parts if each.partition == partition]
        if not received or offset >= received[-1]:
            self._at_end[partition] = offset
            self._pass_marks(partition)

    def _pass_marks(self, partition: int) -> None:
        """Behind the last record there may be marks of transactions: nothing to read there."""
        end = self._at_end.get(partition)
        if end is not None and not any(part.partition == partition for part in self._parts):
            self._offsets[partition] = max(self._offsets[partition], end)

    def _failed(self, error: Any) -> None:
        """Called by the library, too."""
        codes = kafka().KafkaError
        away = (codes._TRANSPORT, codes._ALL_BROKERS_DOWN, codes._TIMED_OUT, codes._RESOLVE)
        # How the next try failed differs a little each time; that nobody answers is one problem.
        text = error.str()
        if error.code() in away:
            text = f"no broker answers at {self._source.servers}"
        self._problem = f"{self._source}: {text}; it is tried again"
        self._watch.soon()

    def _changed(self, state: TopicState) -> None:
        """The first look at the topic, or another one."""
        if self._topic_id is not None and state.topic_id != self._topic_id:
            self._made_again(state)
        is_new = self._topic_id is None
        self._topic_id = state.topic_id
        if self._ends is None and not self._source.follow:
            if not state.ends:
                return  # they are asked for
            self._ends = dict(state.ends)
        for number in state.partitions:
            if number not in self._offsets and (self._ends is None or number in self._ends):
                from_end = is_new and self._source.starting_offsets == "latest"
                self._offsets[number] = state.ends[number] if from_end else _BEGINNING
        gone = [number for number in self._offsets if number not in state.partitions]
        if gone:
            raise InputError(f"partition {gone[0]} of topic {self._source.topic!r} is gone")
        fresh = [number for number in self._offsets if number not in self._assigned]
        if fresh:
            self._assign(fresh)

    def _assign(self, partitions: Sequence[int]) -> None:
        topic = self._source.topic
        self._consumer.incremental_assign(
            [kafka().TopicPartition(topic, number, self._offsets[number]) for number in partitions]
        )
        self._assigned.update(partitions)

    def _made_again(self, state: TopicState) -> None:
        """Offsets of a topic that is gone mean nothing in this one."""
        if self._source.fail_on_data_loss:
            raise InputError(
                f"topic {self._source.topic!r} was deleted and made again since it was read (its "
                f"id was {self._topic_id}, now it is {state.topic_id}): what was not read of the "
                f"old one is gone, and offsets begin anew. To go on with the new one, start with "
                f"fail_on_data_loss=false; to begin anew, with a new state or data directory"
            )
        self._rejects.append(
            Reject(
                "the topic was deleted and made again; what was not read of it is gone",
                {"kafka_topic": self._source.topic, "offsets": str(self._offsets)},
            )
        )
        self._consumer.unassign()
        self._assigned, self._held, self._at_end, self._lost = set(), set(), {}, {}
        self._parts.clear()
        self._offsets = dict.fromkeys(state.partitions, _BEGINNING)
        if not self._source.follow and not state.ends:
            self._ends = None
            self._watch.want_ends()

    def _gone(self, partition: int) -> None:
        """The record that is next was deleted, or never was."""
        wanted = self._offsets[partition]
        self._watch.soon()
        if self._source.fail_on_data_loss:
            raise InputError(
                f"partition {partition} of topic {self._source.topic!r} has no offset {wanted} any "
                f"more: records were deleted before they were read, by retention or with the "
                f"topic. To go on with what is there, start with fail_on_data_loss=false"
            )
        self._lost[partition] = wanted
        self._offsets[partition] = _BEGINNING
        self._consumer.incremental_unassign(self._places([partition]))
        self._held.discard(partition)
        self._assign([partition])

    def _tell_lost(self, partition: int, found: int) -> None:
        wanted = self._lost.pop(partition)
        place = {"kafka_topic": self._source.topic, "kafka_partition": partition}
        self._rejects.append(
            Reject(
                f"records were deleted before they were read: {wanted} was next, {found} is there",
                {**place, "kafka_offset": wanted},
            )
        )
