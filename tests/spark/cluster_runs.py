"""Networks on executors that are processes of their own, with many tasks run twice at once.

Run as ``python -m tests.spark.cluster_runs DIRECTORY`` it prints the digests of a network with
every kind of state, then crashes it twice, with continuous checkpoints, and prints how often.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
from pathlib import Path

import pyspark

from holdfast.core.settings import Continuous
from holdfast.spark.engine import Engine
from holdfast.spark.session import get_session
from tests.spark.networks import digests, every_kind_of_state, some_rows
from tests.spark.support import Case, Row
from tests.spark.test_continuous import run_and_crash

MASTER = "local-cluster[2,1,1024]"
CONFIG = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    # Whatever takes longer than others is begun once more.
    "spark.speculation": "true",
    "spark.speculation.interval": "10ms",
    "spark.speculation.minTaskRuntime": "1ms",
    "spark.speculation.multiplier": "1.0",
    "spark.speculation.quantile": "0.1",
}


def left_row(rng: random.Random) -> Row:
    """A row for either source: that of ``r`` has fewer columns."""
    return some_rows(rng.randrange(2**31), 1)[0][1:]


if __name__ == "__main__":
    session = get_session(MASTER, CONFIG, Path(sys.argv[1]))
    print(json.dumps(digests(Engine(every_kind_of_state(session)))), flush=True)
    case = Case(7, 0, (700_000, 2_500_000), (1, 2))
    chosen = Continuous(recover_within_us=60_000, interval_us=1_000, period_us=100_000)
    fragment = run_and_crash(every_kind_of_state(session), case, chosen, 0, left_row)
    print(fragment.crashes, flush=True)
    application = session.sparkContext.applicationId
    session.stop()
    # What executors said is there, beside Spark's jars, if something went wrong.
    shutil.rmtree(Path(pyspark.__file__).parent / "work" / application)
