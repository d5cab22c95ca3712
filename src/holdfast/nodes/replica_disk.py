"""What a replica has on disk, and makes of it: logs, a record with its state, window states.

On disk are a log for each output (``kept/stream_store.py``) and, beside the logs, a record with as
much of the state as the fragment's way of keeping it says (``kept/state.py``). A copy whose
checkpoints are not persisted has neither. What other replicas are sent of the state follows from
the same choices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from holdfast.core.ending import was_whole
from holdfast.core.events import Event
from holdfast.core.records import Found, LoggedStream, RecoveryRecord
from holdfast.core.settings import (
    Delivery,
    Keeping,
    Protection,
    ReplicaSettings,
    StandbySettings,
)
from holdfast.kept.consumers import read_consumers
from holdfast.kept.continuous_recovery import read_extent
from holdfast.kept.continuous_state import KeptWindows
from holdfast.kept.handed_over import logged_windows
from holdfast.kept.shipper import Sent, SentPieces, SentStates, SentWhole
from holdfast.kept.state import keep_state
from holdfast.kept.stream_store import StreamStore
from holdfast.log import LogOptions
from holdfast.network import Network
from holdfast.packed import PackedState
from holdfast.plans.fragment_plans import FragmentPlan
from holdfast.routes import state_keys
from holdfast.spark.chains import Workshop
from holdfast.spark.dividing import united
from holdfast.spark.engine import Engine
from holdfast.spark.merging import Merge


class ReplicaDisk:
    """The directory of one replica."""

    def __init__(
        self,
        settings: ReplicaSettings,
        pair: StandbySettings | None,
        plan: FragmentPlan,
        directory: Path,
        workshop: Workshop,
        load: Callable[[], Network | Merge],
        options: LogOptions,
        post: Callable[[Event], None],
        on_problem: Callable[[str, str | None], None],
    ) -> None:
        self._settings = settings
        self._pair = pair
        self._directory = directory
        self._workshop = workshop
        self._load = load
        self._shard = plan.shard
        self._post = post
        persists = pair is None or pair.persist
        self.state = keep_state(
            settings.keeping,
            directory / "state" if persists else None,
            plan.description,
            workshop,
            plan.earlier,
            settings.delivery,
            self._divide,
            self._into_log,
        )
        # Whether results that somebody may still need are in the logs.
        self.logs_results = persists and settings.delivery is Delivery.EXACTLY_ONCE
        schemas = {output.stream: output.schema for output in plan.outputs} if persists else {}
        self.store = StreamStore(
            directory / "streams", schemas, options, post, self.state, on_problem=on_problem
        )
        self.found = self._look()

    def _divide(self, states: Sequence[PackedState]) -> PackedState:
        """What is this shard's of the states of those that had its slots before."""
        network, shard = self._load(), self._shard
        assert shard is not None, "only a shard takes a part"
        assert not isinstance(network, Merge), "what merges has no state"
        return united(states, state_keys(network), shard.slots)

    def _into_log(self, packed: PackedState, boundary: int) -> LoggedStream:
        """What the log is to have of a state that was taken over."""
        return logged_windows(self._workshop.engine(), self._window_stream, packed, boundary)

    def _look(self) -> Found:
        record = self.state.record
        if record is not None:
            if self._settings.delivery is Delivery.EXACTLY_ONCE:
                self.store.check_reaches(dict(record.outputs), self._directory / "state")
            if self._settings.keeping is Keeping.WINDOWS:
                self._note_windows(record)
        logged = tuple(self.store.logged(stream, complete=False) for stream in self.store.logs)
        consumers = read_consumers(self._directory)
        ended = was_whole(self.state.ended, self.store.ends())
        return Found(record, self.state.found(), logged, consumers, ended)

    # -- window states ------------------------------------------------------------------

    @property
    def _window_stream(self) -> str:
        """The stream in whose log the window states are."""
        return self._settings.outputs[0].stream

    @property
    def _two_wrote(self) -> bool:
        """Whether another copy's window states may be in the log, too."""
        return self._pair is not None or bool(self._settings.partners)

    def _note_windows(self, record: RecoveryRecord) -> None:
        log = self.store.logs[self._window_stream]
        extent = read_extent(log, record.boundary, record.extent, self._two_wrote)
        self.store.note_windows(self._window_stream, extent.places())

    def windows(self, engine: Engine) -> KeptWindows:
        """The window states of an engine's state, in the log."""
        stream = self._window_stream
        log = self.store.logs[stream]
        return KeptWindows(engine, self._settings.address, log, stream, self._post, self._two_wrote)

    # -- what others get ------------------------------------------------------------------

    def sent(self, lent: bool) -> Sent:
        """How a state is sent to another replica; ``lent``: to one that joins, or takes over."""
        if self._settings.keeping is Keeping.WINDOWS:
            return SentPieces(self.store, self._window_stream, self._workshop)
        if lent or self._pair is None:
            return SentWhole(self._workshop, self._settings.keeping)
        return SentStates(self._workshop, self._pair.protection is Protection.HYBRID)
