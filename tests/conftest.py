"""One SparkSession for all tests of a process, and tests that start first."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from holdfast.spark.session import get_session


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "long: takes long, so its file starts first")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take long start first, so that no process is left alone with one at the end."""
    long = {item.path for item in items if item.get_closest_marker("long") is not None}
    items.sort(key=lambda item: item.path not in long)


@pytest.fixture(scope="session")
def spark() -> SparkSession:
    return get_session("local[2]")
