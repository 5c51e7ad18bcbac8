"""Bodies are decoded as PySpark's own function does, with options that are no expression."""

from __future__ import annotations

import io
import json

import fastavro
import pytest
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom
from pyspark.sql.avro.functions import from_avro

from tidegate.spark_consumer.sinks.avro_column import avro_column

pytestmark = pytest.mark.spark

WRITER = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "long"}]}
READER = {
    **WRITER,
    "fields": [*WRITER["fields"], {"name": "b", "type": ["null", "string"], "default": None}],
}


def body(a):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, WRITER, {"a": a})
    return bytearray(out.getvalue())


@pytest.mark.parametrize("mode", ["FAILFAST", "PERMISSIVE"])
def test_it_is_what_the_function_of_pyspark_returns(spark, mode):
    bodies = [body(n) for n in (0, 5, -7)] + ([bytearray()] if mode == "PERMISSIVE" else [])
    frame = spark.createDataFrame([(one,) for one in bodies], "body binary")
    options = {"mode": mode, "avroSchema": json.dumps(READER)}
    found = frame.select(avro_column(F.col("body"), WRITER, options).alias("r"))
    expected = frame.select(from_avro("body", json.dumps(WRITER), options).alias("r"))

    assert found.collect() == expected.collect()
    assert found.schema == expected.schema


def test_its_options_are_a_value_that_all_copies_of_a_plan_can_share(spark):
    """PySpark's are an expression, whose builder two threads must not use at once."""
    frame = spark.createDataFrame([(body(1),)], "body binary")

    def kinds(column):
        """The classes of what the function is given."""
        plan = frame.select(column.alias("r"))._jdf.queryExecution().analyzed()
        given = plan.projectList().head().child().children()
        return [given.apply(n).getClass().getSimpleName() for n in range(given.length())]

    options = {"mode": "FAILFAST"}
    assert kinds(from_avro("body", json.dumps(WRITER), options))[-1] == "CreateMap"
    assert kinds(avro_column(F.col("body"), WRITER, options))[-1] == "Literal"
