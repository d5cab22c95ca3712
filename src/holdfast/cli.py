"""The ``holdfast`` command."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from holdfast.commands.log import add_log
from holdfast.commands.parser import add_commands
from holdfast.errors import HoldfastError, InputError
from holdfast.saying import said

_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit code is 0, 1 for an error, 2 for wrong usage."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["simulate"]:  # it has a parser of its own
        from holdfast.simulation.main import run

        return run(given[1:])
    options = _parser().parse_args(given)
    try:
        code: int = options.command(options)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # Whoever read has enough, as head has; what is left has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except HoldfastError as error:
        print(f"holdfast: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return _INTERRUPTED
    except Exception as error:
        if not type(error).__module__.startswith("pyspark"):
            raise
        print(f"holdfast: Spark could not run the network: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="holdfast", description="Stream processing on Spark that keeps answering."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_run(commands.add_parser("run", help="run a query network", description=_RUN_HELP))
    describe = commands.add_parser("describe", help="print or draw a query network")
    describe.add_argument(
        "network",
        metavar="NETWORK.py",
        help="or a DEPLOYMENT.toml: also how X of its outputs is divided",
    )
    describe.add_argument("--draw", metavar="FILE", help="also draw it: an .svg or .png file")
    describe.set_defaults(command=_describe)
    demo = commands.add_parser("demo", help="failures, live: a source cut, a replica killed")
    demo.add_argument("--seconds", type=float, default=24, help="how long (default: 24)")
    demo.add_argument("--servers", type=int, default=12, help="how many servers (default: 12)")
    demo.add_argument("--picture", default="holdfast-demo.png", help="where to draw the picture")
    demo.add_argument("--web", action="store_true", help="also on a page, until ctrl-c")
    demo.add_argument("--spark-master", metavar="URL", help="default: local[*]")
    demo.set_defaults(command=_demo)
    prepare = commands.add_parser("prepare", help="make Spark start faster here, once")
    prepare.set_defaults(command=_prepare)
    commands.add_parser("simulate", help="the protocols in a simulated world full of failures")
    add_commands(commands)
    add_log(commands)
    return parser


_RUN_HELP = """Runs the network that a Python file defines as `network`. The file may bind its
sources and outputs itself, in dicts `sources` and `outputs`, and its state directory, in `state`;
the options here come first."""


def _add_run(run: argparse.ArgumentParser) -> None:
    run.add_argument("network", metavar="NETWORK.py")
    run.add_argument(
        "--source",
        action="append",
        default=[],
        metavar="NAME=KIND:WHERE",
        help="csv:PATH, jsonl:PATH, parquet:PATH, directory:PATH, socket:HOST:PORT, rate:NUMBER or "
        "kafka:TOPIC,servers=HOST:PORT; "
        "options follow after commas: load=csv:load.csv,lateness=10 s",
    )
    run.add_argument(
        "--output",
        action="append",
        default=[],
        metavar="NAME=KIND:WHERE",
        help="console, jsonl:PATH, parquet:DIRECTORY, sqlite:PATH, call:FILE.py:FUNCTION, kafka:, "
        "postgres:, delta: or iceberg: (docs/connectors.md); console if not given",
    )
    run.add_argument("--state", metavar="DIR", help="checkpoint there and go on from there")
    run.add_argument("--checkpoint-interval", metavar="TIME", default="10 seconds")
    run.add_argument("--bucket", metavar="TIME", help="in place of the network's own")
    run.add_argument("--advance-tuples", metavar="N", type=int, default=100_000)
    run.add_argument("--dead-letters", metavar="FILE", help="default: in the state directory")
    run.add_argument("--spark-master", metavar="URL", help="default: local[*]")
    run.add_argument("--quiet", action="store_true", help="no progress")
    run.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    from holdfast.cluster.networks import network_of
    from holdfast.connect.specs import parse_sink, parse_source
    from holdfast.single.progress import Progress
    from holdfast.single.reports import Observer
    from holdfast.single.run import run
    from holdfast.times import microseconds

    # What is wrong with the options is said before Spark takes seconds to start.
    sources = dict(parse_source(text) for text in options.source)
    outputs = dict(parse_sink(text) for text in options.output)
    microseconds(options.checkpoint_interval)
    bucket = microseconds(options.bucket) if options.bucket else None
    module = load(options.network, options.spark_master, drivers=1)
    network = network_of(module, Path(options.network))
    if bucket is not None:
        network.bucket = bucket
    run(
        network,
        {**getattr(module, "sources", {}), **sources},
        {**getattr(module, "outputs", {}), **outputs},
        state=options.state or getattr(module, "state", None),
        checkpoint_interval=options.checkpoint_interval,
        advance_tuples=options.advance_tuples,
        dead_letters=options.dead_letters,
        observer=Observer() if options.quiet else Progress(network.name),
    )
    return 0


def _describe(options: argparse.Namespace) -> int:
    budget: list[str] = []
    file = options.network
    if file.endswith((".toml", ".json")):
        from holdfast.deployment import load_deployment

        deployment = load_deployment(file)
        file = str(deployment.network)
    from holdfast.cluster.networks import network_of

    network = network_of(load(file, None), Path(file))
    if file != options.network:
        from holdfast.cluster.planning import plan_of
        from holdfast.plans.topology import Topology

        topology = Topology(deployment, plan_of(network))
        budget = ["", *topology.budget()]
        early = sorted(topology.early & set(network.outputs))
        if early:
            budget.append(
                f"without an order (ordered=False) the moment it is there: {', '.join(early)}"
            )
    print("\n".join([network.describe(), *budget]))
    if options.draw:
        network.draw(options.draw)
        print(f"\ndrawn into {options.draw}")
    return 0


def _prepare(options: argparse.Namespace) -> int:
    from holdfast.commands.prepare import make_archive
    from holdfast.spark.class_archive import archive_path

    if archive_path() is None:
        with said("Preparing Spark to start faster, once; this takes half a minute", _say):
            make_archive()
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _demo(options: argparse.Namespace) -> int:
    from holdfast.demo.run import run_demo

    with said("── Spark starts, to read the query", lambda text: print(text, flush=True)):
        start_spark(options.spark_master)
    return run_demo(options.seconds, options.servers, options.picture, options.web)


def load(path: str, spark_master: str | None, drivers: int | None = None) -> ModuleType:
    """Run a network's file, on a Spark session made for it."""
    from holdfast.cluster.networks import load_module

    file = Path(path).resolve()
    if not file.is_file():
        raise InputError(f"there is no file {path!r}; name the Python file with the network")
    return load_module(file, lambda: start_spark(spark_master, drivers))


def start_spark(master: str | None, drivers: int | None = None) -> None:
    """Make the Spark session, without the dozen lines the JVM greets with.

    The JVM keeps the standard error it is born with; it goes to a file of which the end is
    shown if Spark does not start.
    """
    from holdfast.spark.session import get_session

    sys.stderr.flush()
    terminal = os.dup(2)
    with tempfile.TemporaryFile() as log:
        os.dup2(log.fileno(), 2)
        try:
            get_session(master, drivers=drivers)
        except Exception as error:
            log.seek(0)
            tail = log.read().decode(errors="replace").splitlines()[-20:]
            raise HoldfastError("\n".join(["Spark did not start:", *tail, str(error)])) from None
        finally:
            os.dup2(terminal, 2)
            os.close(terminal)


if __name__ == "__main__":
    sys.exit(main())
