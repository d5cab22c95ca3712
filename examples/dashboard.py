"""A dashboard over SQLite: what is tentative is there at once, in another colour, and with why.

In a deployment a client fills the database:

    [clients.screen]
    output = "busy"
    sink = "sqlite:busy.db,key=server,tentative=true"

Its view `busy` has one row for each server: the tentative one while it stands, else the stable one.
Here the sink is told by hand what such a client tells it while the source `load` is away.
"""

import json
import sqlite3
from datetime import UTC, datetime

import pyarrow as pa

from holdfast import Missing, Why, write_sqlite

YELLOW, PLAIN = "\033[33m", "\033[0m"
QUERY = """
    SELECT server, round(cpu, 1), is_stable, why FROM busy ORDER BY cpu DESC
"""


def show(title: str) -> None:
    """The dashboard's query: a column says which rows may still change."""
    print(title)
    for server, cpu, is_stable, why in sqlite3.connect("busy.db").execute(QUERY):
        if is_stable:
            print(f"  {server:8} {cpu:5}")
            continue
        told = json.loads(why)
        lacks = ", ".join(each["stream"] for each in told["missing"])
        print(f"{YELLOW}  {server:8} {cpu:5}  without {lacks}, on {told['share']:.0%}{PLAIN}")


def rows(second: int, cpu: dict[str, float], first_id: int | None = None) -> pa.Table:
    """Results as a client gets them; stable ones have ids."""
    at = datetime(2026, 3, 1, 12, 0, second, tzinfo=UTC)
    columns = {
        "stime": pa.array([at] * len(cpu), pa.timestamp("us", "UTC")),
        "server": list(cpu),
        "cpu": list(cpu.values()),
    }
    ids = {} if first_id is None else {"seq": list(range(first_id, first_id + len(cpu)))}
    return pa.table({**ids, **columns})


schema = pa.schema([("server", pa.string()), ("cpu", pa.float64())])
sink = write_sqlite("busy.db", key="server", tentative=True).open("busy", schema, None)

sink.write(rows(10, {"berlin": 71.0, "quito": 64.5}, first_id=0))
sink.flush()
show("all is well")

since = int(datetime(2026, 3, 1, 12, 0, 12, tzinfo=UTC).timestamp() * 1e6)
sink.write_tentative(rows(20, {"quito": 88.0}), Why((Missing("load", since),), 0.6))
sink.flush()
show("load is missing")

sink.undo(since + 10_000_000)
sink.write(rows(20, {"berlin": 93.5, "quito": 79.5}, first_id=2))
sink.flush()
show("load is back")
