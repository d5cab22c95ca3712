"""A stateful operator of your own: tells when a server's load crosses a line, up or down."""

from typing import Any

import pyarrow as pa

import holdfast


def crossings(key: dict[str, Any], tuples: pa.Table, was_high: Any) -> tuple[pa.Table, bool]:
    """Emit a tuple whenever the load goes from below 0.8 to above, or back."""
    high = [cpu > 0.8 for cpu in tuples["cpu"].to_pylist()]
    before = [bool(was_high), *high[:-1]]
    changed = pa.array([now != then for now, then in zip(high, before, strict=True)])
    emitted = pa.table(
        {"stime": tuples["stime"], "server": tuples["server"], "high": pa.array(high)}
    )
    return emitted.filter(changed), high[-1]


network = holdfast.Network("crossings", bucket="1 second")
load = network.source("load", "at timestamp, server string, cpu double", stime="at")
load.groupBy("server").process(
    crossings, output="server string, high boolean", state="boolean", forget_after="1 hour"
).output("crossings")

if __name__ == "__main__":
    holdfast.run(network, {"load": holdfast.read_csv("examples/load.csv")})
