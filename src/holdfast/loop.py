"""The loop of one driver: facts in, one at a time; orders carried out, in order.

A driver is pure: it decides, and touches nothing. The loop is the one thread that calls it. Any
thread may post an event; the loop hands it to the driver with the time, and gives the orders
that come back to ``carry_out``. Nothing in ``carry_out`` may wait: what takes time (jobs,
disks, peers) has threads of its own, which post their outcome.

Time is the node's clock: it goes on whatever happens to the machine's.
"""

from __future__ import annotations

import heapq
import itertools
import queue
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Protocol

from holdfast.clock import Clock
from holdfast.core.effects import Effect
from holdfast.core.events import Event, Started, TimerFired
from holdfast.core.machine import PeerError
from holdfast.core.messages import Message


class Driver(Protocol):
    """EntryPoint, Copy and Client of ``core``."""

    def handle(self, event: Event, now: int) -> list[Effect]: ...


Answer = Future[Message]
Work = tuple[Event, Answer | None] | Callable[[], None]


class Loop:
    """Runs a driver in a thread of its own."""

    def __init__(
        self,
        name: str,
        driver: Driver,
        carry_out: Callable[[Effect], None],
        on_fatal: Callable[[BaseException], None],
        on_peer_error: Callable[[PeerError], None] = lambda error: None,
        clock: Clock | None = None,
    ) -> None:
        self.clock = clock or Clock()
        self.name = name
        self.driver = driver
        self.answer: Answer | None = None
        self.events = 0
        self._carry_out = carry_out
        self._on_fatal = on_fatal
        self._on_peer_error = on_peer_error
        self._queue: queue.SimpleQueue[Work] = queue.SimpleQueue()
        self._timer_at: int | None = None
        self._later: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._last: Event | None = None
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=f"{name} loop", daemon=True)
        # Peers may call before the loop runs; this still comes first.
        self.post(Started())

    def start(self) -> None:
        self._thread.start()

    def stop(self, last: Event | None = None, timeout_s: float = 5.0) -> None:
        """Finish the event under way and stop; ``last`` is the last that the driver is told."""
        self._last = last
        self._stopping = True
        self._queue.put(lambda: None)
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)

    def post(self, event: Event, answer: Answer | None = None) -> None:
        """Hand an event to the driver; ``answer`` gets its direct reply."""
        self._queue.put((event, answer))

    def call(self, function: Callable[[], None]) -> None:
        """Run a function in the loop's thread."""
        self._queue.put(function)

    def call_later(self, delay_us: int, function: Callable[[], None]) -> None:
        """Run a function in the loop's thread after a while; call from that thread."""
        heapq.heappush(self._later, (self.now() + delay_us, next(self._order), function))

    def handle(self, event: Event, answer: Answer | None = None) -> None:
        """Give the driver an event now; only in the loop's thread.

        A timer that is due comes first: a driver may set another in its place only after it
        has had its time.
        """
        if isinstance(event, TimerFired):
            self._timer_at = None
        else:
            self.fire_due()
        self._drive(event, answer, self.now())

    def fire_due(self) -> None:
        """Let the driver have its timer if it is due; only in the loop's thread."""
        now = self.now()
        if self._timer_at is not None and self._timer_at <= now:
            self._timer_at = None
            self._drive(TimerFired(), None, now)

    def _drive(self, event: Event, answer: Answer | None, now: int) -> None:
        self.answer = answer
        try:
            for effect in self.driver.handle(event, now):
                self._carry_out(effect)
        except PeerError as error:
            self._on_peer_error(error)
            if answer is not None and not answer.done():
                answer.set_exception(error)
        finally:
            self.answer = None

    def set_timer(self, at: int) -> None:
        """Carry out SetTimer."""
        self._timer_at = at

    def now(self) -> int:
        return self.clock.now()

    @property
    def waiting(self) -> int:
        """How many events wait for the driver."""
        return self._queue.qsize()

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._turn()
            if self._last is not None:
                self.handle(self._last)
        except BaseException as error:
            self._on_fatal(error)

    def _turn(self) -> None:
        try:
            work = self._queue.get(timeout=self._wait_seconds())
        except queue.Empty:
            work = None
        if callable(work):
            work()
        elif work is not None:
            self.events += 1
            self.handle(*work)
        for function in self._due():
            function()

    def _due(self) -> Iterable[Callable[[], None]]:
        now = self.now()
        if self._timer_at is not None and now >= self._timer_at:
            yield lambda: self.handle(TimerFired())
        while self._later and self._later[0][0] <= now:
            yield heapq.heappop(self._later)[2]

    def _wait_seconds(self) -> float:
        times = [1_000_000 + self.now()]
        if self._timer_at is not None:
            times.append(self._timer_at)
        if self._later:
            times.append(self._later[0][0])
        return max(0.0, (min(times) - self.now()) / 1e6)
