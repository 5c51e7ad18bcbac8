"""Where an output is, from a folder or from the schema that its tables are registered in."""

from __future__ import annotations

import re
from collections.abc import Iterator

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.sinks.delta.catalog_names import (
    SCHEMAS,
    is_schema,
    quoted,
)
from tidegate.spark_consumer.sinks.manifest import MANIFEST_FOLDER

_LOCATION = re.compile(r"^Location: (.+)$", re.MULTILINE)


def output_of(spark: SparkSession, place: str) -> str:
    """Return the folder of an output, which may be named by the schema of its mirrors.

    A text with a slash or a colon is a folder, and so is one that is no schema with tables of an
    output.  Raises ConfigError for a text that is both, and for a schema with several outputs.
    """
    if not is_schema(place):
        return place
    outputs = sorted(set(_outputs(spark, place)))
    if not outputs:
        return place
    if len(outputs) > 1:
        raise ConfigError(
            "the schema has tables of several outputs",
            hint="Give the folder",
            schema=place,
            outputs=outputs,
        )
    if Storage(spark, place).names(MANIFEST_FOLDER):
        raise ConfigError(
            "this is the name of a schema and of a folder",
            hint=f"Give the folder as ./{place}, or {outputs[0]} for the schema's output",
            name=place,
        )
    return outputs[0]


def _outputs(spark: SparkSession, schema: str) -> Iterator[str]:
    """Yield the output of each table that lies where a sink would have put it."""
    for sink, added in SCHEMAS.items():
        for location in _locations(spark, f"{schema}{added}"):
            head, _, _table = location.rstrip("/").rpartition("/")
            output, _, folder = head.rpartition("/")
            if folder == sink:
                yield output


def _locations(spark: SparkSession, schema: str) -> list[str]:
    """Return where a schema's tables are; none if the session has no such schema."""
    try:
        if not spark.catalog.databaseExists(quoted(schema)):
            return []
        # All of them in one statement: a schema may have hundreds.
        rows = spark.sql(f"SHOW TABLE EXTENDED IN {quoted(schema)} LIKE '*'").collect()
    except (PySparkException, Py4JJavaError):
        return []  # no catalog of this name
    found = (_LOCATION.search(row["information"]) for row in rows)
    return [one[1].strip() for one in found if one is not None]
