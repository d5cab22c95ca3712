"""One SparkSession for all tests of a process."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, settings
from pyspark.sql import SparkSession

from holdfast.spark.session import get_session

# Tests on Spark cost a few jobs per example: few examples, no deadline, and no shrinking, which
# would take minutes; examples are small to begin with.
settings.register_profile(
    "spark",
    deadline=None,
    max_examples=int(os.environ.get("HOLDFAST_EXAMPLES", "6")),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@pytest.fixture(scope="session")
def spark() -> SparkSession:
    return get_session("local[2]")
