"""One local Spark session for all tests: starting it takes longer than most of them.

The fixtures of the gate's batches, and of releases for sinks, are here for all folders.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.spark.gate_rows import GATE_SCHEMA
from tests.spark.sinks.conftest import kit

__all__ = ["kit", "local_spark", "spark_jars"]

_HERE = Path(__file__).parent
_LONGEST = "test_any_schema_properties.py"
_NEEDED = (
    "spark-sql-kafka",
    "spark-token-provider-kafka",
    "kafka-clients",
    "commons-pool2",
    "spark-avro",
    "delta-spark",
    "delta-storage",
    "iceberg-spark-runtime",
)


def spark_jars() -> list[str]:
    """Jars that Spark needs beside its own: TIDEGATE_SPARK_JARS is a folder or a comma list."""
    named = os.environ.get("TIDEGATE_SPARK_JARS", "")
    if named and Path(named).is_dir():
        found = sorted(Path(named).glob("*.jar"))
    elif named:
        return named.split(",")
    else:
        from tidegate.local_stack.parts.jvm_parts import fetched_jvm_parts

        parts = fetched_jvm_parts()
        found = [] if parts is None else [*parts.spark_jars, *parts.iceberg_jars]
    return [str(jar) for jar in found if jar.name.startswith(_NEEDED)]


def local_spark(folder: Path, settings: dict[str, str]):
    """Start a session on two cores whose files stay in a folder."""
    from pyspark.sql import SparkSession

    from tidegate.local_stack.parts.programs import quick_start
    from tidegate.spark_consumer.sinks.delta.tables import DELTA_SESSION_SETTINGS

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("tidegate-tests")
    own = {
        **DELTA_SESSION_SETTINGS,
        "spark.jars": ",".join(spark_jars()),
        "spark.ui.enabled": "false",
        # As inside a streaming query, which switches it off.
        "spark.sql.adaptive.enabled": "false",
        # Most plans of tests run once, over a few rows: to compile them is a fifth of the CPU time.
        # The programs' own sessions in tests/integration compile.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        # A quarter less CPU time for a file of tests: little runs often enough to be compiled well.
        "spark.driver.extraJavaOptions": quick_start(),
        "spark.sql.shuffle.partitions": "2",
        # Each job describes its plan for the page that is switched off; this form is the shortest.
        "spark.sql.ui.explainMode": "simple",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        "spark.log.level": "ERROR",
    }
    for name, value in {**own, **settings}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the worlds of any schema, a single test that takes longest of all.

    The other files follow as xdist itself orders them, those of most tests first.
    """
    if all(item.path.is_relative_to(_HERE) for item in items):
        counts = Counter(item.path for item in items)
        items.sort(key=lambda item: (item.path.name != _LONGEST, -counts[item.path]))


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    if not spark_jars():
        pytest.skip("Spark's jars are not fetched: ./dev setup, or TIDEGATE_SPARK_JARS=<folder>")
    session = local_spark(tmp_path_factory.mktemp("spark"), {})
    yield session
    session.stop()


@pytest.fixture
def rows(spark):
    """Make a frame of gate rows."""
    return lambda *rows: spark.createDataFrame(list(rows), GATE_SCHEMA)


@pytest.fixture
def storage(spark, tmp_path):
    """The gate's folder, taken by this test."""
    from tidegate.spark_consumer.checkpoint.storage import Storage

    storage = Storage(spark, str(tmp_path / "gate"))
    storage.take()
    return storage


@pytest.fixture
def world(spark, tmp_path):
    """A checkpoint and an output, and the batches that Spark runs."""
    from tests.spark.batch.gate_world import GateWorld

    return GateWorld(spark, tmp_path)
