"""A race has no favourite: whatever a replica has published arrives, whatever became of the others.

Two checks, sampled, of everyone who reads a racing fragment. At every replica of it that stands,
over links that stand, the reader has a feed. And if that feed has been open for a while, the reader
has what the replica published a moment ago, however far behind, silent or slow the others are, the
one it follows among them. Following one replica and changing over would fail here: noticing takes
longer than the moment.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from holdfast.core.consistency import NodeState
from holdfast.core.settings import SECOND_US
from holdfast.simulation.checkers import Violation

if TYPE_CHECKING:
    from holdfast.core.upstream import Upstream
    from holdfast.simulation.world import World


class Race:
    """Knows who reads racing fragments."""

    def __init__(self, world: World) -> None:
        self._world = world
        spec = world.spec
        timing = spec.timing
        streams = {
            stream: fragment.addresses
            for fragment in spec.fragments
            if fragment.race
            for stream, _ in fragment.plan.outputs
        }
        reads = {name: one.inputs for name, one in spec.replica_settings().items()}
        reads |= {one.address: (one.input,) for one in spec.clients}
        self._readers = [
            (reader, one.stream, producer)
            for reader, inputs in reads.items()
            for one in inputs
            for producer in streams.get(one.stream, ())
        ]
        # How long a feed takes to be opened, by somebody who has to hear of the replica first.
        self._settle_us = (timing.misses_until_down + 4) * timing.heartbeat_interval_us
        self._settle_us += 3 * SECOND_US
        # How long a message takes, and not how long it takes to notice that none comes.
        self._arrival_us = 2 * timing.heartbeat_interval_us
        # How long it takes to notice that a collected feed is needed, beyond a reader's patience,
        # and until what it brings is there; and how long what was published is remembered.
        self._revival_us = 4 * timing.heartbeat_interval_us + SECOND_US // 4
        longest_us = max(2 * timing.heartbeat_interval_us, timing.alpha_x_us // 3)
        self._remembered_us = self._revival_us + longest_us
        self._published: dict[tuple[str, str], deque[tuple[int, int]]] = {
            (producer, stream): deque() for _, stream, producer in self._readers
        }
        self._well_since: dict[str, int] = {}
        self._missing: dict[tuple[str, str, str], int] = {}

    def sample(self) -> None:
        if not self._readers:
            return
        now, gone = self._world.clock.now, self._world.authority.gone
        if gone:
            self._readers = [one for one in self._readers if not gone.keys() & {one[0], one[2]}]
            for key in [key for key in self._published if key[0] in gone]:
                del self._published[key]
        for name in {producer for producer, _ in self._published}:
            if not self._serves(name):
                self._well_since[name] = now
        for (producer, stream), published in self._published.items():
            replica = self._world.replicas[producer].replica
            if replica is None:
                published.clear()
                continue
            published.append((now, replica.provider.streams[stream].boundary))
            while len(published) > 1 and published[1][0] <= now - self._remembered_us:
                published.popleft()
        for reader, stream, producer in self._readers:
            self._check(reader, stream, producer, now)

    def _serves(self, name: str) -> bool:
        process = self._world.replicas[name]
        replica = process.replica
        return (
            process.running
            and not process.slow
            and replica is not None
            and replica.state is not NodeState.RECOVERING
        )

    def _check(self, reader: str, stream: str, producer: str, now: int) -> None:
        process, link_since = (
            self._world.processes[reader],
            self._world.link_stands_since(producer, reader),
        )
        if link_since is None or not process.running or process.slow:
            return
        consumer = process.consumer
        if consumer is None:
            return
        ends = (process.disturbed_at, self._world.processes[producer].disturbed_at)
        since = max(link_since, self._well_since.get(producer, 0), *ends)
        if now - since < self._settle_us:
            self._missing.pop((reader, stream, producer), None)
            return
        upstream: Upstream = consumer.upstreams[stream]
        if producer in upstream.revival.spared:
            self._missing.pop((reader, stream, producer), None)
            self._check_spared(upstream, producer, now)
            return
        begins = self._world.replicas[producer].driver.served[stream].first_id
        if process.disk_lost and upstream.copy.next_id < begins:
            # It needs what this one has not, as it joined; a state that it may take is with others.
            self._missing.pop((reader, stream, producer), None)
            return
        feed = next((one for one in upstream.feeds() if one.peer == producer), None)
        if feed is None:
            # One that broke is opened again when its replica is next heard of.
            missing = self._missing.setdefault((reader, stream, producer), now)
            if now - missing < self._settle_us:
                return
            raise Violation(
                "race",
                f"{reader} has no feed of {stream} at {producer}, which has stood since "
                f"{since / 1e6:.3f} s; now {now / 1e6:.3f} s\n{upstream.story()}",
            )
        self._missing.pop((reader, stream, producer), None)
        when, boundary = self._published_before(producer, stream, now - self._arrival_us)
        late = when <= now - self._arrival_us and now - feed.opened_at > SECOND_US
        if late and upstream.copy.boundary < boundary:
            raise Violation(
                "race",
                f"{reader} has {stream} up to {upstream.copy.boundary / 1e6:.3f} s, though "
                f"{producer} published up to {boundary / 1e6:.3f} s at {when / 1e6:.3f} s; now "
                f"{now / 1e6:.3f} s\n{upstream.story()}",
            )

    def _check_spared(self, upstream: Upstream, producer: str, now: int) -> None:
        """What a collected feed would have brought long ago is here without it."""
        stream = upstream.copy.stream
        before = now - self._revival_us - upstream.revival.patience_us
        when, boundary = self._published_before(producer, stream, before)
        if when <= before and upstream.copy.boundary < boundary:
            raise Violation(
                "revival",
                f"{upstream.name} has it up to {upstream.copy.boundary / 1e6:.3f} s and revives no "
                f"feed at {producer}, which published up to {boundary / 1e6:.3f} s at "
                f"{when / 1e6:.3f} s; now {now / 1e6:.3f} s\n{upstream.story()}",
            )

    def _published_before(self, producer: str, stream: str, time: int) -> tuple[int, int]:
        """The last that a producer was seen to have published by some time, or the first."""
        published = self._published[producer, stream]
        found = published[0]
        for one in published:
            if one[0] > time:
                break
            found = one
        return found
