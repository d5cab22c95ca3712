"""Spark tasks that stay, so that a small bucket costs what it computes.

A Spark job for a small bucket takes some 25 ms, and about as much processor time, before and after
the few milliseconds in which its task computes: the driver serializes and schedules the task, a
worker unpacks it, the JVM moves both through its threads. None of it differs between buckets. So
tasks on columns stay. A *resident* is a Spark job of one task, begun when it is first needed, whose
task takes orders over a socket: which part of which job, from which files into which. It computes
what a task of a job for that bucket would, by the same function and from the same files.

    driver ──order──▶ task          the first order of a job brings the pickled task along
           ◀──done───

An error ends the resident: Spark's job fails with it, and what Spark says of it is what the
driver raises, as it would of a job for the bucket. The next bucket begins another one. So does a
worker that is killed.

To begin one takes as long as to start a Python worker, seconds where the cores are busy; to wait
for one that is at work, what a bucket takes. Who finds all of them busy has another begin, and
takes whichever is free first: several that wake in one process need not wait for their own.

Residents take none of the places of other jobs: a session has more places than cores
(``places``), and as many stay as there are more. Where all of them are busy, or there are none, as
in a session that somebody else has made and on a cluster, a bucket is a job.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import re
import socket
import struct
import threading
import uuid
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from pathlib import Path

from pyspark import SparkContext

from holdfast.errors import HoldfastError
from holdfast.spark.resident_task import CANNOT_LOAD, DONE, Order, ResidentTask

# How many jobs a resident has seen before another takes its place: it keeps what they need.
_MOST_JOBS = 100
_LOOK_SECONDS = 0.02
# How long a task may take to begin, and one that is over to be told of.
_BEGIN_SECONDS, _END_SECONDS = 60.0, 30.0
_CLOSE_SECONDS = 1.0
_SIZE = struct.Struct("!Q")
_LOCAL = re.compile(r"local\[(\d+)\]")


class ResidentLost(HoldfastError):
    """A task that stayed is gone, and Spark does not say why."""


def places(cores: int) -> int:
    """How many tasks a session for so many cores has room for: with residents, small and large."""
    return 3 * cores + 2


class Resident:
    """One task that stays, seen from the driver; used by one thread at a time."""

    def __init__(self, context: SparkContext, directory: Path) -> None:
        """Begin the job; ``wait`` for its task. ``directory`` is private to this user."""
        self._known: set[str] = set()
        self._over: Future[None] = Future()
        self._path = directory / f"{uuid.uuid4().hex[:16]}.res"
        # Where its task is to call, until it has.
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(self._path))
        self._socket.listen(1)
        self._socket.settimeout(_LOOK_SECONDS)
        threading.Thread(
            target=self._stay, args=(context,), name="holdfast-resident", daemon=True
        ).start()

    def wait(self, instead: Callable[[], bool] = lambda: False) -> bool:
        """Until its task is there, or ``instead`` holds: then it is to be waited for later."""
        listener = self._socket
        try:
            came = self._accept(listener, instead)
        except BaseException:
            listener.close()
            self._path.unlink(missing_ok=True)
            raise
        if came is None:
            return False
        listener.close()
        self._path.unlink(missing_ok=True)
        self._socket = came
        self._socket.settimeout(None)
        self._over.add_done_callback(lambda over: self.close())
        return True

    def _stay(self, context: SparkContext) -> None:
        """Spark's job, as long as its task stays."""
        try:
            staying = ResidentTask(str(self._path))
            task = context.parallelize([0], 1).mapPartitionsWithIndex(staying)
            task._jrdd.count()
        except BaseException as error:
            self._over.set_exception(error)
        else:
            self._over.set_result(None)

    def _accept(self, listener: socket.socket, instead: Callable[[], bool]) -> socket.socket | None:
        for _ in range(int(_BEGIN_SECONDS / _LOOK_SECONDS)):
            with contextlib.suppress(TimeoutError):
                return listener.accept()[0]
            if instead():
                return None
            if self._over.done():
                raise self._why()
        raise ResidentLost(
            f"Spark has not begun a task within {_BEGIN_SECONDS:.0f} s; is the JVM stopped?"
        )

    @property
    def is_usable(self) -> bool:
        return not self._over.done() and len(self._known) < _MOST_JOBS

    def order(self, job: str, pickled: Callable[[], bytes], order: Order) -> None:
        """Have the task do its part of a job; ``answer`` says whether it has, or is gone."""
        task = None if job in self._known else pickled()
        self._known.add(job)
        data = pickle.dumps((job, task, order))
        # Not here, if it is gone: others are at work by then, and have to be waited for.
        with contextlib.suppress(OSError):
            self._socket.sendall(_SIZE.pack(len(data)) + data)

    def answer(self) -> bool:
        """Wait for the task; False if it cannot load the job, which then has to be Spark's."""
        try:
            said = self._socket.recv(1)
        except OSError:
            said = b""
        if said == DONE:
            return True
        if said == CANNOT_LOAD:
            return False
        raise self._why()

    def _why(self) -> BaseException:
        """What Spark says of the end of the job."""
        try:
            error = self._over.exception(_END_SECONDS)
        except FutureTimeout:
            return ResidentLost(
                f"the worker of a task that stays is gone, and Spark has not said why within "
                f"{_END_SECONDS:.0f} s; is the JVM stopped?"
            )
        return error or ResidentLost("a task that stays was let go of while it was at work")

    def wait_for_end(self, timeout_s: float) -> None:
        """Wait until Spark's job is over, whatever becomes of it."""
        with contextlib.suppress(FutureTimeout):
            self._over.exception(timeout_s)

    def close(self) -> None:
        """Let the task end once it has done what it does."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._path.unlink(missing_ok=True)


class Residents:
    """The tasks that stay in one session."""

    def __init__(self, context: SparkContext) -> None:
        self._context = weakref.ref(context)
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._free: list[Resident] = []
        self._count = 0
        directory = context.getConf().get("spark.python.unix.domain.socket.dir")
        found = _LOCAL.fullmatch(str(context.master))
        room = int(found[1]) - context.defaultParallelism if found and directory else 0
        self._most = max(0, room)
        # Of a thread whose jobs begin residents of their own: how many it has begun.
        self._apart = threading.local()
        self._directory = Path(directory or ".")

    @contextlib.contextmanager
    def taken(self, count: int) -> Iterator[Sequence[Resident]]:
        """So many of them for a while; none if there are not so many."""
        found = self._take(count)
        try:
            yield found
        except BaseException:
            # One that others have not heard of yet would answer somebody else.
            self._leave(found)
            raise
        with self._lock:
            self._free.extend(found)

    @property
    def are_there(self) -> bool:
        """Whether tasks can stay in this session."""
        return self._most > 0

    @contextlib.contextmanager
    def one_beside(self, others: int) -> Iterator[Sequence[Resident]]:
        """One, while there are as many for ``others``; none if there is no room for it.

        For what takes longer than a bucket: those who come meanwhile are not to wait for theirs.
        """
        with self._lock:
            there = [each for each in self._free if each.is_usable][: self._count > others]
            self._free = [each for each in self._free if each not in there]
            full = not there and self._count >= self._most
        if not there and not full:
            with self.apart():
                there = self._take(1)
        try:
            yield there
        except BaseException:
            self._leave(there)
            raise
        with self._lock:
            # Buckets take the last ones: theirs know the runs.
            self._free[:0] = there

    @contextlib.contextmanager
    def apart(self) -> Iterator[None]:
        """Jobs of this thread begin residents of their own meanwhile, as far as there is room.

        For who warms up to work beside others: theirs are free now, and busy when it counts.
        """
        self._apart.begun = 0
        try:
            yield
        finally:
            self._apart.begun = None

    def _take(self, count: int) -> list[Resident]:
        with self._lock:
            tired = [each for each in self._free if not each.is_usable]
            self._free = [each for each in self._free if each.is_usable]
            self._count -= len(tired)
            missing = max(0, count - len(self._free), self._to_begin(count))
            if self._count + missing > self._most:
                found, missing = [], 0
            else:
                at = len(self._free) - (count - missing)
                found, self._free = self._free[at:], self._free[:at]
                self._count += missing
        for each in tired:
            each.close()
        context = self._context()
        begun: list[Resident] = []
        there = list(found)
        try:
            # All at once: each has a worker to start, and there are cores for it.
            while context is not None and len(begun) < missing:
                begun.append(Resident(context, self._directory))
            for at, each in enumerate(begun):
                if not each.wait(lambda: self._fill(there, count)):
                    self._wait_later(begun[at:])
                    break
                there.append(each)
        except BaseException:
            self._leave([*found, *begun], missing - len(begun))
            raise
        return there

    def _fill(self, there: list[Resident], count: int) -> bool:
        """Whether others have become free meanwhile, so many as are lacking; they are taken."""
        if getattr(self._apart, "begun", None) is not None:
            return False  # it begins its own so that they have begun
        lacking = count - len(there)
        with self._lock:
            found = [each for each in self._free if each.is_usable][-lacking:]
            if len(found) < lacking:
                return False
            self._free = [each for each in self._free if each not in found]
        there.extend(found)
        return True

    def _wait_later(self, begun: Sequence[Resident]) -> None:
        """Those that have begun for somebody who needs them no longer are there for the next."""

        def wait() -> None:
            for each in begun:
                try:
                    each.wait()
                except Exception:
                    self._leave([each])  # whoever needs one begins it, and is told
                    continue
                with self._lock:
                    self._free.insert(0, each)

        threading.Thread(target=wait, name="holdfast-resident-begins", daemon=True).start()

    def _to_begin(self, count: int) -> int:
        """How many of those that this thread takes are to be its own, and are not there yet."""
        begun = getattr(self._apart, "begun", None)
        if begun is None or count <= begun or self._count + count - begun > self._most:
            return 0
        self._apart.begun = count
        return count - int(begun)

    def close(self) -> None:
        """Let all that have nothing to do end, and wait a little for their jobs."""
        if os.getpid() != self._owner:
            return  # forked from who made them: it shares their connections, and has no say
        with self._lock:
            free, self._free, self._most = self._free, [], 0
        for each in free:
            each.close()
        for each in free:
            each.wait_for_end(_CLOSE_SECONDS)

    def _leave(self, residents: Sequence[Resident], never_begun: int = 0) -> None:
        with self._lock:
            self._count -= len(residents) + never_begun
        for each in residents:
            each.close()


_lock = threading.Lock()
_of_context: weakref.WeakKeyDictionary[SparkContext, Residents] = weakref.WeakKeyDictionary()


def residents_of(context: SparkContext) -> Residents:
    """The residents of a session, made with the first job."""
    with _lock:
        if context not in _of_context:
            made = _of_context[context] = Residents(context)
            # Before the JVM goes: a job that ends with it has Spark complain.
            atexit.register(made.close)
        return _of_context[context]
