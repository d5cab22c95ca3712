"""JSON lines from a TCP server, results into Parquet files.

Run any server that sends JSON lines, for instance `nc -lk 9999`; this example brings one.
"""

import json
import socket
import tempfile
import threading
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import functions as F

import holdfast

network = holdfast.Network("tcp", bucket="1 second")
load = network.source("load", "at timestamp, server string, cpu double", stime="at")
load.groupBy(holdfast.window("5 seconds"), "server").agg(F.avg("cpu").alias("cpu")).output("load")


def serve(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    with listener, connection:
        for second in range(20):
            row = {"at": f"2026-03-01T12:00:{second:02}Z", "server": "berlin", "cpu": second / 20}
            connection.sendall(json.dumps(row).encode() + b"\n")


if __name__ == "__main__":
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=serve, args=[listener]).start()
    output = Path(tempfile.mkdtemp(), "load")
    source = holdfast.read_socket("127.0.0.1", listener.getsockname()[1])
    holdfast.run(network, {"load": source}, {"load": holdfast.write_parquet(output)})
    print(pq.read_table(output).to_pandas()[["stime", "server", "cpu"]])
