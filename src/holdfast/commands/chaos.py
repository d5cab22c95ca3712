"""``holdfast chaos``: make a part of a running deployment fail, and put it right again."""

from __future__ import annotations

import argparse
import signal
import time

from holdfast.commands.arguments import add_command

_SIGNALS = {"kill": signal.SIGKILL, "pause": signal.SIGSTOP, "resume": signal.SIGCONT}


def add_chaos(chaos: argparse.ArgumentParser) -> None:
    """Add the failures to the parser of ``holdfast chaos DEPLOYMENT.toml``."""
    failures = chaos.add_subparsers(required=True, metavar="FAILURE")
    for name, text in (
        ("kill", "kill -9 a process and its JVM; its supervisor starts it again"),
        ("pause", "stop a process and its JVM where they are"),
        ("resume", "let a paused process go on"),
    ):
        parser = add_command(failures, name, text, _signal)
        parser.add_argument("process")
        parser.add_argument("--jvm", action="store_true", help="only its JVM")
        parser.set_defaults(number=_SIGNALS[name])
    cut = add_command(failures, "cut", "cut the link between two nodes", _cut)
    cut.add_argument("--one-way", action="store_true", help="only what the first sends is lost")
    cut.add_argument("--seconds", type=float, help="heal it after so long (default: stays cut)")
    heal = add_command(failures, "heal", "heal a link, all links of a node, or every link", _heal)
    heal.add_argument("source", metavar="NODE", nargs="?")
    heal.add_argument("target", metavar="NODE", nargs="?")
    delay = add_command(failures, "delay", "make the link between two nodes longer", _delay)
    for each in (cut, delay):
        each.add_argument("source", metavar="NODE")
        each.add_argument("target", metavar="NODE")
    delay.add_argument(
        "delay", metavar="MS", type=float, help="each message takes so long; 0: none"
    )
    delay.add_argument(
        "--jitter", metavar="MS", type=float, default=0.0, help="up to so much longer (default: 0)"
    )
    delay.add_argument(
        "--bandwidth", metavar="KIB", type=float, default=0.0, help="a second (default: any)"
    )
    delay.add_argument(
        "--lost-every",
        metavar="SECONDS",
        type=float,
        default=0.0,
        help="connections break after so long, on the mean (default: they do not)",
    )
    delay.add_argument("--one-way", action="store_true", help="only what the first sends")
    slow = add_command(failures, "slow", "leave a process only a share of its time", _load)
    slow.add_argument("process")
    slow.add_argument("--share", type=float, default=0.1, help="of its time (default: 0.1)")
    slow.add_argument("--seconds", type=float, default=10.0, help="how long (default: 10)")
    usual = {"fraction": 1.0, "period": 1.0, "arrivals": "regular", "burners": None, "seed": None}
    slow.set_defaults(server=None, **usual)
    load = add_command(failures, "load", "load the CPUs, or starve one process, in bursts", _load)
    load.add_argument("process", nargs="?", help="starve this one (default: load the machine)")
    load.add_argument("--server", help="load the machine of this server (default: this one)")
    load.add_argument("--seconds", type=float, default=10.0, help="how long (default: 10)")
    load.add_argument("--fraction", type=float, default=0.5, help="of time (default: 0.5)")
    load.add_argument(
        "--period", type=float, default=1.0, metavar="SECONDS", help="of bursts (default: 1)"
    )
    load.add_argument("--arrivals", choices=["regular", "poisson"], default="regular")
    load.add_argument("--burners", type=int, help="processes that burn (default: one a CPU)")
    load.add_argument("--share", type=float, default=0.0, help="left to the process (default: 0)")
    load.add_argument("--seed", type=int, help="of the arrivals")


def _signal(options: argparse.Namespace) -> int:
    from holdfast.cluster.chaos import check_chaos
    from holdfast.cluster.supervisor import send_signal
    from holdfast.deployment import load_deployment

    deployment = load_deployment(options.deployment)
    check_chaos(deployment)
    pid = send_signal(deployment, options.process, options.number, jvm=options.jvm)
    what = f"the JVM of {options.process}" if options.jvm else options.process
    print(f"{options.number.name}: {what}, process {pid}")
    return 0


def _cut(options: argparse.Namespace) -> int:
    from holdfast.cluster.chaos import cut, heal
    from holdfast.deployment import load_deployment

    deployment = load_deployment(options.deployment)
    ends = (options.source, options.target)
    cut(deployment, *ends, one_way=options.one_way)
    arrow = "->" if options.one_way else "--"
    print(f"cut: {options.source} {arrow} {options.target}")
    if options.seconds is not None:
        try:
            time.sleep(options.seconds)
        finally:
            heal(deployment, *ends, one_way=options.one_way)
            print(f"healed: {options.source} {arrow} {options.target}")
    return 0


def _heal(options: argparse.Namespace) -> int:
    from holdfast.cluster.chaos import heal
    from holdfast.deployment import load_deployment

    silent = heal(load_deployment(options.deployment), options.source, options.target)
    print(f"healed: {' -- '.join(filter(None, (options.source, options.target))) or 'every link'}")
    if silent:
        print(f"{', '.join(silent)} did not answer; heal again when they are up")
    return 1 if silent else 0


def _delay(options: argparse.Namespace) -> int:
    from holdfast.cluster.chaos import delay
    from holdfast.deployment import load_deployment
    from holdfast.flight.distance import Distance

    distance = Distance(options.delay, options.jitter, options.bandwidth, options.lost_every)
    deployment = load_deployment(options.deployment)
    ends = (options.source, options.target)
    silent = delay(deployment, *ends, distance, one_way=options.one_way)
    arrow = "->" if options.one_way else "--"
    print(f"{options.source} {arrow} {options.target}: {options.delay:g} ms")
    if silent:
        print(f"{', '.join(silent)} did not answer; say it again when they are up")
    return 1 if silent else 0


def _load(options: argparse.Namespace) -> int:
    from holdfast.cluster.chaos import disturb
    from holdfast.cluster.disturbances import Disturbance
    from holdfast.deployment import load_deployment

    disturbance = Disturbance(
        options.seconds,
        options.process,
        options.share,
        options.fraction,
        options.period,
        options.arrivals,
        options.burners,
        options.seed,
    )
    what = options.process or (f"server {options.server}" if options.server else "this machine")
    print(f"disturbing {what} for {options.seconds:g} s", flush=True)
    disturb(load_deployment(options.deployment), disturbance, server=options.server)
    return 0
