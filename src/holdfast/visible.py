"""What a function of ``Stream.transform`` gets: a DataFrame without the system columns.

They belong to the tuple and go with it, whatever the function selects, renames or drops, so it need
not know of them. The functions of PySpark that look at one tuple at a time work on it as on any
DataFrame; what changes the number of tuples in other ways is refused where the network is built.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from holdfast.errors import NetworkError
from holdfast.frames import SYSTEM_COLUMNS


def keep_system_columns(
    frame: DataFrame, function: Callable[[DataFrame, Sequence[Column]], DataFrame]
) -> DataFrame:
    """A select whose system columns travel under other names, so that '*' stays clean.

    ``function`` gets the frame and the columns it is to select beside its own.
    """
    copies = [F.col(name).alias(_hidden(name)) for name in SYSTEM_COLUMNS]
    picked = function(frame, copies)
    hidden = {_hidden(name) for name in SYSTEM_COLUMNS}
    own = [name for name in picked.columns if name not in hidden and name not in SYSTEM_COLUMNS]
    system = [F.col(_hidden(name)).alias(name) for name in SYSTEM_COLUMNS]
    return picked.select(*system, *(F.col(f"`{name}`") for name in own))


def _hidden(name: str) -> str:
    return f"__{name}"


class VisibleFrame:
    """A DataFrame whose system columns nobody sees."""

    def __init__(self, whole: DataFrame) -> None:
        self._whole = whole

    @property
    def __class__(self) -> type:
        """It passes for a DataFrame, which is what functions expect."""
        return DataFrame

    @__class__.setter
    def __class__(self, value: type) -> None:
        raise TypeError("a frame stays what it is")

    @property
    def columns(self) -> list[str]:
        return [name for name in self._whole.columns if name not in SYSTEM_COLUMNS]

    @property
    def schema(self) -> StructType:
        fields = self._whole.schema.fields
        return StructType([each for each in fields if each.name not in SYSTEM_COLUMNS])

    @property
    def dtypes(self) -> list[tuple[str, str]]:
        return [each for each in self._whole.dtypes if each[0] not in SYSTEM_COLUMNS]

    def select(self, *columns: Any) -> VisibleFrame:
        given = columns[0] if len(columns) == 1 and isinstance(columns[0], list) else columns
        return VisibleFrame(
            keep_system_columns(self._whole, lambda df, more: df.select(*given, *more))
        )

    def selectExpr(self, *expressions: str) -> VisibleFrame:
        return self.select(*map(F.expr, expressions))

    def drop(self, *columns: Any) -> VisibleFrame:
        return VisibleFrame(self._whole.drop(*_without_system(columns, "drop")))

    def toDF(self, *names: str) -> VisibleFrame:
        old = self.columns
        if len(names) != len(old):
            raise NetworkError(f"toDF: there are {len(old)} columns, {old}, and names {names}")
        return self.select(
            *(F.col(f"`{one}`").alias(other) for one, other in zip(old, names, strict=True))
        )

    def transform(self, function: Callable[..., Any], *more: Any, **named: Any) -> Any:
        return function(self, *more, **named)

    def __getitem__(self, item: Any) -> Any:
        if isinstance(item, list | tuple):
            return self.select(*item)
        return _wrapped(self._whole[item])

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._whole, name)
        if not callable(found) or isinstance(found, Column):
            return found

        def call(*given: Any, **named: Any) -> Any:
            if name.startswith("withColumn"):
                _without_system(given, name)
            plain = {key: whole_of(each) for key, each in named.items()}
            return _wrapped(found(*map(whole_of, given), **plain))

        return call


def _without_system(given: Sequence[Any], label: str) -> Sequence[Any]:
    named = [each for each in given if isinstance(each, str) and each in SYSTEM_COLUMNS]
    if named:
        raise NetworkError(
            f"{label} {named[0]!r}: {named[0]} is a system column, which stays as it is"
        )
    return given


def _wrapped(found: Any) -> Any:
    return VisibleFrame(found) if type(found) is not VisibleFrame and _is_frame(found) else found


def _is_frame(found: Any) -> bool:
    return isinstance(found, DataFrame)


def whole_of(found: Any) -> Any:
    """The DataFrame behind it; anything else as it is."""
    return found._whole if type(found) is VisibleFrame else found
