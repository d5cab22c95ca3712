"""What can wait is done between jobs, one thing at a time, and never waits for ever."""

from __future__ import annotations

import threading
import time

from holdfast.kept.quiet import Quiet, Unhurried

PATIENCE = 60.0


def in_a_thread(work: Unhurried, done: threading.Event, go_on: threading.Event) -> threading.Thread:
    """Do a piece of work, which says that it is under way and ends when it is told to."""

    def run() -> None:
        with work:
            done.set()
            assert go_on.wait(PATIENCE)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def test_a_piece_begins_when_the_last_job_has_ended() -> None:
    quiet, begun, go_on = Quiet(), threading.Event(), threading.Event()
    go_on.set()
    with quiet.job():
        with quiet.job():
            thread = in_a_thread(Unhurried(quiet, PATIENCE), begun, go_on)
            assert not begun.wait(0.05)
        assert not begun.wait(0.05)
    assert begun.wait(PATIENCE)
    thread.join(PATIENCE)


def test_between_two_pieces_jobs_come_first() -> None:
    quiet = Quiet()
    work = Unhurried(quiet, PATIENCE)
    breathed = threading.Event()

    def run() -> None:
        with work:
            begun.set()
            assert has_job.wait(PATIENCE)
            work.breathe()
            breathed.set()

    begun, has_job = threading.Event(), threading.Event()
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert begun.wait(PATIENCE)
    with quiet.job():
        has_job.set()
        assert not breathed.wait(0.05)
    assert breathed.wait(PATIENCE)
    thread.join(PATIENCE)


def test_two_are_never_under_way_at_once() -> None:
    quiet = Quiet()
    first, second = threading.Event(), threading.Event()
    go_on = threading.Event()
    threads = [in_a_thread(Unhurried(quiet, PATIENCE), first, go_on)]
    assert first.wait(PATIENCE)
    threads.append(in_a_thread(Unhurried(quiet, PATIENCE), second, go_on))
    assert not second.wait(0.05)
    go_on.set()
    assert second.wait(PATIENCE)
    for thread in threads:
        thread.join(PATIENCE)


def test_who_has_waited_for_its_patience_goes_on_beside_whatever_runs() -> None:
    quiet = Quiet()
    other = Unhurried(quiet, PATIENCE)
    with other, quiet.job():
        work = Unhurried(quiet, 0.05)
        began = time.monotonic()
        with work:
            assert time.monotonic() - began >= 0.05
            # All of its patience is gone: neither the next piece nor a breath waits again.
            for _ in range(100):
                work.breathe()
        with work:
            pass
        assert time.monotonic() - began < PATIENCE
        assert not quiet.turn.acquire(blocking=False), "the other one still has its turn"
    with Unhurried(quiet, PATIENCE):
        assert not quiet.turn.acquire(blocking=False)


def test_how_long_jobs_ran_beside_it_is_counted_and_waiting_for_them_is_not() -> None:
    quiet = Quiet()
    work = Unhurried(quiet, PATIENCE)
    begun, ended = threading.Event(), threading.Event()

    def job(seconds: float) -> threading.Thread:
        def run() -> None:
            with quiet.job():
                begun.set()
                time.sleep(seconds)
            ended.set()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        assert begun.wait(PATIENCE)
        return thread

    waited_for = job(0.1)
    with work:
        assert work.beside_seconds == 0.0
        waited_for.join(PATIENCE)
        begun.clear()
        ended.clear()
        beside = job(0.05)
        assert ended.wait(PATIENCE)
    beside.join(PATIENCE)
    assert work.beside_seconds >= 0.05
    assert quiet.busy_seconds >= 0.15
    assert work.beside_seconds < quiet.busy_seconds
