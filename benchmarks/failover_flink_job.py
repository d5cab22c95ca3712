"""Hands the query of benchmark failover to a Flink cluster, and ends.

Runs with the Python of Flink's own environment (``scripts/flink``). What a job is told by its
client (checkpoints, restarts) is not taken from the cluster's settings, so it is given here, too.

    python -m benchmarks.failover_flink_job PORT INPUT SETTINGS (as JSON)
"""

from __future__ import annotations

import json
import sys

FILES = """
CREATE TABLE readings (number BIGINT, made BIGINT, `value` DOUBLE, arrived AS PROCTIME())
WITH ('connector' = 'filesystem', 'path' = 'file://{path}', 'format' = 'csv',
      'source.monitor-interval' = '100 ms')
"""
# The lines appear in the output of whichever TaskManager runs the job, as soon as they are made.
PRINTED = "CREATE TABLE results (number BIGINT, made BIGINT) WITH ('connector' = 'print')"
# The first of each number passes at once; numbers are forgotten after ten seconds.
QUERY = """
INSERT INTO results SELECT number, made FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY number ORDER BY arrived) AS place FROM readings
) WHERE place = 1
"""


def main(port: str, path: str, more: str) -> None:
    from pyflink.common import Configuration
    from pyflink.table import EnvironmentSettings, TableEnvironment

    settings = Configuration()
    for key, value in {
        **json.loads(more),
        "execution.target": "remote",
        "rest.address": "localhost",
        "rest.port": port,
        "table.exec.state.ttl": "10 s",
    }.items():
        settings.set_string(key, value)
    built = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(settings)
    tables = TableEnvironment.create(built.build())
    tables.execute_sql(FILES.format(path=path))
    tables.execute_sql(PRINTED)
    tables.execute_sql(QUERY)


if __name__ == "__main__":
    main(*sys.argv[1:])
