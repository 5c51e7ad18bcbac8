"""Names of the output's tables in the session's catalog.

A schema belongs to each kind of table, so that no two tables want one name, whatever tables the
database has: `<schema>` holds the mirrors, `<schema>_changelog` and `<schema>_history` the others.
A table keeps its name; the dot of a named schema becomes two underscores.

A name is a way to a folder and nothing more: the gate writes by path, with or without names.  So a
name is made after its table, again by every run that does not find it, and never replaced.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

from delta.tables import DeltaTable
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import SparkSession

from tidegate.schemas.errors import ConfigError, UnreachableError
from tidegate.spark_consumer.core.cadence import CHANGELOG, HISTORY, MIRROR
from tidegate.spark_consumer.sinks import sql_names
from tidegate.spark_consumer.sinks.sql_names import text_literal

SCHEMAS = {MIRROR: "", CHANGELOG: "_changelog", HISTORY: "_history"}
"""What is added to the schema's name for the tables of a sink."""

_SCHEMA = re.compile(r"\w+(\.\w+)*")
_CAUSE_MAX = 300


class CatalogNames:
    """The names of one output's tables below a schema, `<schema>` or `<catalog>.<schema>`.

    Everything blocks, and raises ConfigError for what the catalog refuses, and UnreachableError for
    what it does not answer.
    """

    def __init__(self, spark: SparkSession, schema: str) -> None:
        """Take the session whose catalog it is."""
        self._spark = spark
        self._schema = schema
        self._registered: set[tuple[str, str]] = set()

    def name(self, sink: str, table: str) -> str:
        """Return the whole name of a table of a sink."""
        return f"{self.schema(sink)}.{table.replace('.', '__')}"

    def schema(self, sink: str) -> str:
        """Return the schema of the tables of a sink."""
        return f"{self._schema}{SCHEMAS[sink]}"

    def create_schema(self, sink: str) -> None:
        """Create the schema of a sink's tables unless it is there."""
        schema = self.schema(sink)
        try:
            if not self._spark.catalog.databaseExists(quoted(schema)):
                self._spark.sql(f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)}")
        except (PySparkException, Py4JJavaError) as error:
            raise _refused(
                "catalog: the schema cannot be created",
                "Create it yourself, or name one of a catalog that the session has",
                error,
                schema=schema,
            ) from error

    def register(self, sink: str, table: str, *, address: str) -> None:
        """Give a table its name; does nothing for one that has it, or that does not exist yet.

        `address` is the whole path of the table.  Raises ConfigError if the name is that of a table
        elsewhere, or of a view.
        """
        if (sink, table) in self._registered:
            return
        name = self.name(sink, table)
        try:
            if not DeltaTable.isDeltaTable(self._spark, address):
                return
            found = location_of(self._spark, name)
            if found is None:
                where = text_literal(address)
                create = f"CREATE TABLE IF NOT EXISTS {quoted(name)} USING DELTA LOCATION {where}"
                self._spark.sql(create)
                # Another run may have made the name at the same time, for another output.
                found = location_of(self._spark, name)
        except (PySparkException, Py4JJavaError) as error:
            raise _refused(
                "catalog: the table cannot be registered",
                "The tables themselves are complete; see the cause, or leave the catalog out",
                error,
                name=name,
                location=address,
            ) from error
        if found is None or plain_location(found) != plain_location(address):
            raise ConfigError(
                "catalog: the name is taken",
                hint=(
                    "Drop or rename what has the name, or choose another schema; the output is "
                    "complete up to the release before"
                ),
                name=name,
                found=found or "no location",
                expected=address,
            )
        self._registered.add((sink, table))


def is_schema(text: str) -> bool:
    """Whether a text has the form `<schema>` or `<catalog>.<schema>`."""
    return _SCHEMA.fullmatch(text) is not None


def location_of(spark: SparkSession, name: str) -> str | None:
    """Return where a table of the catalog is: "" for a view, None if there is no such name."""
    if not spark.catalog.tableExists(quoted(name)):
        return None
    rows = spark.sql(f"DESCRIBE TABLE EXTENDED {quoted(name)}").collect()
    # What describes the table comes after its columns, of which one may be called Location.
    found = [row["data_type"] for row in rows if row["col_name"] == "Location"]
    return str(found[-1]) if found else ""


def plain_location(location: str) -> str:
    """Return a location as it can be compared: catalogs write the same one in several ways."""
    return re.sub(r"^file:/+|^/+", "file:/", unquote(location)).rstrip("/")


def quoted(name: str) -> str:
    """Return a name of several parts as SQL takes it."""
    return sql_names.quoted(*name.split("."))


def _refused(
    message: str, hint: str, error: Exception, **fields: str
) -> ConfigError | UnreachableError:
    text = str(getattr(error, "java_exception", error)).strip()
    cause = text.partition("\n")[0][:_CAUSE_MAX]
    if isinstance(error, AnalysisException | ParseException):
        return ConfigError(message, hint=hint, cause=cause, **fields)
    return UnreachableError(message, hint=hint, cause=cause, **fields)
