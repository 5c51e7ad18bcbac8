"""Names of the output's tables in the session's catalog.

Each kind of table has its own schema, so that two tables never need the same name: `<schema>` holds
the mirrors, `<schema>_changelog` and `<schema>_history` the other tables.  A table keeps its name;
the dot of a named schema becomes two underscores.

A name only refers to a folder: the gate writes by path, with or without names, and neither state,
plan nor manifest contains them.  So a name is made after its table, by every run that does not find
it, and never replaced; a table that a kill left without a name gets it from the next run: at its
start, or with the interrupted release.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import unquote

from delta.tables import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import SparkSession

from tidegate.schemas.errors import ConfigError, UnreachableError
from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.core.sink_names import CHANGELOG, HISTORY, MIRROR
from tidegate.spark_consumer.core.topic_schemas import TopicSchemas
from tidegate.spark_consumer.sinks.manifest import MANIFEST_FOLDER, newest_manifest
from tidegate.spark_consumer.sinks.port import (
    AdmittingSink,
    Merge,
    MergingSink,
    Release,
    Sink,
    TableSink,
    TableVersion,
)
from tidegate.spark_consumer.sinks.sql import quoted, text_literal

SCHEMAS = {MIRROR: "", CHANGELOG: "_changelog", HISTORY: "_history"}
"""Suffix of the schema's name for the tables of a sink."""

_SCHEMA = re.compile(r"\w+(\.\w+)*")
_CAUSE_MAX = 300

_LOCATION = re.compile(r"^Location: (.+)$", re.MULTILINE)


class CatalogNames:
    """The names of one output's tables below a schema, `<schema>` or `<catalog>.<schema>`.

    Every method blocks, and raises ConfigError if the catalog refuses the call, UnreachableError if
    it does not answer.
    """

    def __init__(self, spark: SparkSession, schema: str) -> None:
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
            if not self._spark.catalog.databaseExists(quoted_name(schema)):
                self._spark.sql(f"CREATE SCHEMA IF NOT EXISTS {quoted_name(schema)}")
        except (PySparkException, Py4JJavaError) as error:
            raise _refused(
                "catalog: the schema cannot be created",
                "Create it yourself, or name one of a catalog that the session has",
                error,
                schema=schema,
            ) from error

    def register(self, sink: str, table: str, *, address: str) -> None:
        """Give a table its name; does nothing for one that has it, or that does not exist yet.

        `address` is the whole path of the table.  Raises ConfigError if the name belongs to a table
        elsewhere, or to a view.
        """
        if (sink, table) in self._registered:
            return
        name = self.name(sink, table)
        try:
            if not DeltaTable.isDeltaTable(self._spark, address):
                return
            location = location_of(self._spark, name)
            if location is None:
                text = text_literal(address)
                create = (
                    f"CREATE TABLE IF NOT EXISTS {quoted_name(name)} USING DELTA LOCATION {text}"
                )
                self._spark.sql(create)
                # Another run may have made the name at the same time, for another output.
                location = location_of(self._spark, name)
        except (PySparkException, Py4JJavaError) as error:
            raise _refused(
                "catalog: the table cannot be registered",
                "The tables themselves are complete; see the cause, or leave the catalog out",
                error,
                name=name,
                location=address,
            ) from error
        if location is None or plain_location(location) != plain_location(address):
            raise ConfigError(
                "catalog: the name is taken",
                hint=(
                    "Drop or rename what has the name, or choose another schema; the output is "
                    "complete up to the release before"
                ),
                name=name,
                found=location or "no location",
                expected=address,
            )
        self._registered.add((sink, table))


def is_schema(text: str) -> bool:
    """Whether a text has the form `<schema>` or `<catalog>.<schema>`."""
    return _SCHEMA.fullmatch(text) is not None


def location_of(spark: SparkSession, name: str) -> str | None:
    """Return the location of a table of the catalog: "" for a view, None for an unknown name."""
    if not spark.catalog.tableExists(quoted_name(name)):
        return None
    rows = spark.sql(f"DESCRIBE TABLE EXTENDED {quoted_name(name)}").collect()
    # What describes the table comes after its columns, and one of these may be called Location.
    locations = [row["data_type"] for row in rows if row["col_name"] == "Location"]
    return str(locations[-1]) if locations else ""


def plain_location(location: str) -> str:
    """Return a location as it can be compared: catalogs write the same one in several ways."""
    return re.sub(r"^file:/+|^/+", "file:/", unquote(location)).rstrip("/")


def quoted_name(name: str) -> str:
    """Return a name of several parts as SQL takes it."""
    return quoted(*name.split("."))


def _refused(
    message: str, hint: str, error: Exception, **fields: str
) -> ConfigError | UnreachableError:
    text = str(getattr(error, "java_exception", error)).strip()
    cause = text.partition("\n")[0][:_CAUSE_MAX]
    if isinstance(error, AnalysisException | ParseException):
        return ConfigError(message, hint=hint, cause=cause, **fields)
    return UnreachableError(message, hint=hint, cause=cause, **fields)


def output_of(spark: SparkSession, place: str) -> str:
    """Return the folder of an output, which may be named by the schema of its mirrors.

    A text with a slash or a colon is a folder, and so is one that names no schema with tables of
    an output.  Raises ConfigError for a text that is both, and for a schema with several outputs.
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
        if not spark.catalog.databaseExists(quoted_name(schema)):
            return []
        # All of them in one statement: a schema may have hundreds.
        rows = spark.sql(f"SHOW TABLE EXTENDED IN {quoted_name(schema)} LIKE '*'").collect()
    except (PySparkException, Py4JJavaError):
        return []  # no catalog of this name
    matches = (_LOCATION.search(row["information"]) for row in rows)
    return [match[1].strip() for match in matches if match is not None]


def named(sink: Sink, names: CatalogNames, *, output: Storage) -> Sink:
    """Return a sink that does what this one does, and then registers its tables."""
    if isinstance(sink, MergingSink):
        return NamedMergingSink(sink, names, output=output)
    return NamedSink(sink, names, output=output)


class NamedSink:
    """A sink under its own name; every method also raises what `CatalogNames` raises."""

    def __init__(self, sink: Sink, names: CatalogNames, *, output: Storage) -> None:
        self._sink = sink
        self._names = names
        self._output = output

    @property
    def name(self) -> str:
        """The sink's own."""
        return self._sink.name

    def open(self, *, query_id: str, release_max: int) -> None:
        """Open the sink, then register the tables that the newest manifest names."""
        self._sink.open(query_id=query_id, release_max=release_max)
        self._names.create_schema(self.name)
        newest = newest_manifest(self._output, watermark_us=sys.maxsize)
        if newest is not None and newest.query_id == query_id:
            tables = newest.tables.items()
            self._register({t: sinks[self.name] for t, sinks in tables if self.name in sinks})

    def admit(self, tables: Iterable[TopicSchemas]) -> None:
        """Let the sink refuse tables."""
        if isinstance(self._sink, AdmittingSink):
            self._sink.admit(tables)

    def write(self, release: Release) -> Mapping[str, TableVersion]:
        """Write a release, then register the tables that have no names yet."""
        return self._register(self._sink.write(release))

    def heads(self) -> Mapping[str, int]:
        """Return the newest versions that the sink has read: its tables are maintained too."""
        return self._sink.heads() if isinstance(self._sink, TableSink) else {}

    def _register(self, versions: Mapping[str, TableVersion]) -> Mapping[str, TableVersion]:
        for table, version in versions.items():
            self._names.register(self.name, table, address=self._output.path(version.path))
        return versions


class NamedMergingSink(NamedSink):
    """The same for a sink that takes several releases at once."""

    def __init__(self, sink: MergingSink, names: CatalogNames, *, output: Storage) -> None:
        super().__init__(sink, names, output=output)
        self._merging = sink

    def merge(self, merge: Merge) -> Mapping[str, TableVersion]:
        """Merge releases, then register the tables that have no names yet."""
        return self._register(self._merging.merge(merge))

    def versions(self, release: int, tables: Iterable[TopicSchemas]) -> Mapping[str, TableVersion]:
        """Return the versions of tables at a release."""
        return self._merging.versions(release, tables)
