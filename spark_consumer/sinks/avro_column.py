"""Avro bodies as columns, decoded by Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom
from pyspark.sql.classic.column import Column as ClassicColumn


def avro_column(body: Column, writer: Mapping[str, Any], options: Mapping[str, str]) -> Column:
    """Return what bodies hold that were written with a schema, as `from_avro` of PySpark does.

    Its options are a value here.  There they are an expression, which is evaluated whenever a plan
    is compared with others, by threads of Spark's own as well; all copies of a plan share its
    builder, which two threads fill at once now and then: DUPLICATED_MAP_KEY ended the query.
    """
    return F.call_function("from_avro", body, F.lit(json.dumps(writer)), _value(options))


def _value(options: Mapping[str, str]) -> Column:
    session: Any = SparkSession.active()
    jvm = session._jvm  # noqa: SLF001 - the only way to a map that is no expression
    given = jvm.java.util.HashMap()
    for name, value in options.items():
        given.put(name, value)
    text = jvm.org.apache.spark.sql.types.DataTypes.StringType
    literal = jvm.org.apache.spark.sql.catalyst.expressions.Literal.create(
        jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(given),
        jvm.org.apache.spark.sql.types.DataTypes.createMapType(text, text, False),  # noqa: FBT003 - Spark's own
    )
    return ClassicColumn(jvm.org.apache.spark.sql.classic.ExpressionUtils.column(literal))
