"""``holdfast up``: the command, in this terminal or in the background.

With ``--detach`` the same command runs in a session of its own, writing to
``data/supervisor.log``; this one shows what it writes until everything is up, or it ends.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def add_up(parser: argparse.ArgumentParser) -> None:
    """Add the options to the parser of ``holdfast up``."""
    parser.add_argument("--wait", type=float, default=120.0, metavar="SECONDS", help="to come up")
    parser.add_argument(
        "--detach", action="store_true", help="go on in the background when everything is up"
    )
    changed = parser.add_mutually_exclusive_group()
    for flag, text in (
        (
            "--keep-state",
            "a network of which only stateless parts have changed goes on with its state",
        ),
        ("--from-now", "a changed network goes on where the one before stopped, its windows empty"),
    ):
        changed.add_argument(
            flag, dest="change", action="store_const", const=flag, default="", help=text
        )
    # The file descriptor on which the one in the background says that everything is up.
    parser.add_argument("--ready-fd", type=int, help=argparse.SUPPRESS)
    parser.set_defaults(command=_up)


def _up(options: argparse.Namespace) -> int:
    return _detached(options) if options.detach else _here(options)


def _here(options: argparse.Namespace) -> int:
    from holdfast.cluster.change import Change
    from holdfast.cluster.supervisor import Supervisor
    from holdfast.deployment import load_deployment

    tell = _teller()
    supervisor = Supervisor(load_deployment(options.deployment), tell, Change(options.change))

    def stop(number: int, frame: Any) -> None:
        if not supervisor.stopping:
            tell(f"{signal.Signals(number).name}: stopping")
        supervisor.request_stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    try:
        supervisor.start()
        if not supervisor.stopping:
            supervisor.wait_ready(options.wait)
        if not supervisor.stopping:
            tell("all up; ctrl-c or holdfast down stops it")
            _say_ready(options.ready_fd)
            supervisor.run()
    finally:
        if supervisor.stop():
            tell("stopped")
    return 0


def _teller() -> Any:
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    started = time.monotonic()

    def tell(text: str) -> None:
        # Whoever listened may be gone, or have no room; the deployment goes on.
        with contextlib.suppress(OSError):
            when = f"[dim]{time.monotonic() - started:6.1f} s[/dim]"
            console.print(f"{when}  ", end="")
            console.print(text, soft_wrap=True, markup=False)

    return tell


def _say_ready(descriptor: int | None) -> None:
    if descriptor is not None:
        with contextlib.suppress(OSError):
            os.write(descriptor, b"up")
            os.close(descriptor)


def _detached(options: argparse.Namespace) -> int:
    from holdfast.cluster.children import supervisor_log
    from holdfast.deployment import load_deployment
    from holdfast.durable import make_private

    deployment = load_deployment(options.deployment)
    path = supervisor_log(deployment)
    make_private(path.parent)
    ours, theirs = os.pipe()
    with path.open("ab") as log, os.fdopen(ours, "rb", buffering=0) as ready:
        shown = log.tell()
        command = [sys.executable, "-m", "holdfast.cli", "up", options.deployment]
        command += ["--wait", str(options.wait), "--ready-fd", str(theirs)]
        command += [options.change] if options.change else []
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            pass_fds=[theirs],
        )
        os.close(theirs)
        os.set_blocking(ours, False)
        try:
            is_up = _watch(process, ready, path, shown)
        except KeyboardInterrupt:
            process.send_signal(signal.SIGTERM)
            process.wait(60.0)
            raise
    if not is_up:
        return process.wait() or 1
    process.returncode = 0  # it goes on, and is nobody's child any more
    print(
        f"{deployment.name} runs in the background, supervised by process {process.pid}; what it "
        f"says is in {path}; holdfast down stops it"
    )
    return 0


def _watch(process: subprocess.Popen[bytes], ready: Any, path: Path, shown: int) -> bool:
    """Show what it writes until it is up, or has ended; whether it is up."""
    while True:
        ended = process.poll() is not None
        is_up = bool(ready.read(2) == b"up")
        with path.open("rb") as file:
            file.seek(shown)
            text = file.read()
        shown += len(text)
        sys.stderr.write(text.decode(errors="replace"))
        sys.stderr.flush()
        if is_up or ended:
            return is_up
        time.sleep(0.1)
