"""One SparkSession for all tests of a process, and tests that go last."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from holdfast.spark.session import get_session


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "last: takes long, so it runs after all other tests")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.get_closest_marker("last") is not None)


@pytest.fixture(scope="session")
def spark() -> SparkSession:
    return get_session("local[2]")
