"""Which columns a stream can have."""

from __future__ import annotations

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from holdfast.errors import NetworkError
from holdfast.frames import SYSTEM_COLUMNS


def checked_columns(schema: StructType, label: str) -> None:
    """Raise NetworkError for names and types a stream cannot have."""
    names = schema.fieldNames()
    if not names:
        raise NetworkError(f"{label}: a stream needs at least one column besides the system ones")
    for field in schema.fields:
        if field.name.lower() in SYSTEM_COLUMNS or field.name.startswith("__"):
            raise NetworkError(
                f"{label}: {field.name!r} is a reserved name; rename the column (reserved: "
                f"{', '.join(SYSTEM_COLUMNS)}, and names that start with __)"
            )
        if _has_map(field.dataType):
            raise NetworkError(
                f"{label}: column {field.name!r} is a MAP, which has no order and no hash; use "
                f"map_entries({field.name}) to make it an array of structs"
            )
    lower = [name.lower() for name in names]
    twice = [name for name in names if lower.count(name.lower()) > 1]
    if twice:
        raise NetworkError(f"{label}: two columns are called {twice[0]!r}; rename one with alias")


def _has_map(kind: DataType) -> bool:
    if isinstance(kind, ArrayType):
        return _has_map(kind.elementType)
    if isinstance(kind, StructType):
        return any(_has_map(field.dataType) for field in kind.fields)
    return isinstance(kind, MapType)
