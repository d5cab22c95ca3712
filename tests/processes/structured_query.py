"""Two queries of Structured Streaming: one writes files into a source, one reads an output.

python -m tests.processes.structured_query DIRECTORY runs both until it is killed.
"""

from __future__ import annotations

import sys
from pathlib import Path

import holdfast
from holdfast.spark.session import get_session


def main(directory: Path) -> None:
    spark = get_session("local[1]", {"spark.driver.memory": "512m"})
    spark.dataSource.register(holdfast.DataSource)
    deployment = str(directory / "deployment.toml")
    files = spark.readStream.schema("number long, text string").option("maxFilesPerTrigger", 1)
    writes = (
        files.json(str(directory / "files"))
        .writeStream.format("holdfast")
        .option("deployment", deployment)
        .option("source", "load")
        .option("producer", "spark")
        .option("journal", str(directory / "journal"))
        .option("checkpointLocation", str(directory / "writes"))
        .start()
    )
    reads = (
        spark.readStream.format("holdfast")
        .option("deployment", deployment)
        .option("output", "even")
        .option("client", "spark")
        .load()
        .writeStream.format("parquet")
        .option("path", str(directory / "found"))
        .option("checkpointLocation", str(directory / "reads"))
        .start()
    )
    while writes.isActive and reads.isActive:
        writes.awaitTermination(1)
    for query in (writes, reads):
        if query.exception() is not None:
            raise SystemExit(str(query.exception()))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
