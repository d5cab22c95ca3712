"""One SparkSession for all tests of a process."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from holdfast.spark.session import get_session


@pytest.fixture(scope="session")
def spark() -> SparkSession:
    return get_session("local[2]")
