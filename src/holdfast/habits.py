"""What PySpark has and a stream has not: a word about it, instead of a bare AttributeError."""

from __future__ import annotations

from collections.abc import Mapping

STREAM: Mapping[str, str] = {
    "withWatermark": "how late rows may be is said of the source where it is bound: lateness",
    "writeStream": "name the output, .output('name'), and bind it to a sink where it is run",
    "write": "name the output, .output('name'), and bind it to a sink where it is run",
    "orderBy": "a stream is in the order of its tuple time; holdfast.top(...) in a window sorts",
    "sort": "a stream is in the order of its tuple time; holdfast.top(...) in a window sorts",
    "limit": "a stream has no end; holdfast.top(...) in a window, or groupBy(count_window(...))",
    "agg": "an endless stream needs a window: groupBy(holdfast.window('10 seconds')).agg(...)",
    "count": "an endless stream needs a window: groupBy(holdfast.window('10 seconds')).count()",
    "unionByName": "write a.union(b), which goes by the names of the columns",
    "unionAll": "write a.union(b), which goes by the names of the columns",
    "alias": "name columns with withColumnRenamed; in the condition of a join, left.x and right.x",
    "fillna": "write transform(lambda df: df.fillna(...))",
    "na": "write transform(lambda df: df.na.fill(...))",
    "dropna": "write transform(lambda df: df.dropna(...)), or filter('x IS NOT NULL')",
    "show": "run the network with an output to the console",
    "collect": "run the network with an output of holdfast.call(function)",
    "printSchema": "write network.describe(), or look at schema",
    "mapInPandas": "write groupBy(...).process(function, ...), or a pandas UDF in select",
    "mapInArrow": "write groupBy(...).process(function, ...), or an Arrow UDF in select",
    "applyInPandasWithState": "write groupBy(...).process(function, ...)",
}
_AGGREGATE = "write agg('{0}(x)'), or agg(F.{0}('x'))"
GROUPED: Mapping[str, str] = {
    **{name: _AGGREGATE.format(name) for name in ("sum", "avg", "mean", "min", "max")},
    "pivot": "a stream's columns are fixed; write a column for each value, withColumn, and agg",
    "applyInPandas": "write process(function, ...)",
    "applyInPandasWithState": "write process(function, ...)",
    "cogroup": "write a join",
}


def unknown(kind: str, name: str, habits: Mapping[str, str], columns: list[str]) -> AttributeError:
    """The error for an attribute that is none."""
    if name in habits:
        return AttributeError(f"a {kind} has no {name}: {habits[name]}")
    has = f", and the stream has no such column; it has {', '.join(columns)}" if columns else ""
    return AttributeError(f"{kind!r} object has no attribute {name!r}{has}")
