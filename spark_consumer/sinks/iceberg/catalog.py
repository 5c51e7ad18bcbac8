"""Where the Iceberg tables of a query are, and each of them through Iceberg's Java API.

Tables are in a catalog, with a namespace for each kind.  Without a catalog of the session it is a
Hadoop catalog below `<output>/iceberg`, which the session gets under its own name.  A Hadoop
catalog commits by a rename that must not replace a file, so an output in an object store needs a
catalog.  The API is in the driver: no call here starts a Spark job.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

from py4j.protocol import Py4JJavaError

from tidegate.schemas.errors import ConfigError, UnreachableError
from tidegate.spark_consumer.sinks.iceberg.snapshot_log import IcebergSnapshot
from tidegate.spark_consumer.sinks.sql import quoted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


ICEBERG_FOLDER = "iceberg"
"""The warehouse in the output."""

_CATALOG_CLASS = "org.apache.iceberg.spark.SparkCatalog"
_OBJECT_STORES = ("s3", "s3a", "s3n", "gs", "oss", "cosn", "wasb", "wasbs", "abfs", "abfss")

_Result = TypeVar("_Result")

STAGED_AS = "wap.id"
"""Iceberg's key, in a snapshot's summary, of the name that its writer staged it under."""

_PUBLISHED_AS = "published-wap-id"
"""The same key in the copy of a snapshot that was published on top of other snapshots."""

_RECENT = 64
"""How many of the newest snapshots are searched for one that was just staged."""

_BYTES = "total-files-size"

_OVERTAKEN = (
    "CherrypickAncestorCommitException",
    "CommitFailedException",
    "DuplicateWAPCommitException",
    "ValidationException",
)
"""Iceberg's errors where another commit came first; then nothing was published."""


@dataclass(frozen=True, slots=True)
class IcebergPlace:
    """`warehouse` is the Hadoop catalog's; empty: the session has the catalog already."""

    catalog: str
    namespace: str
    warehouse: str = ""

    @classmethod
    def of(
        cls, output: str, *, prefix: str, catalog: str = "", namespace: str = ""
    ) -> IcebergPlace:
        """Return the place that the settings name; raises ConfigError for an object store."""
        namespace = namespace or re.sub(r"\W", "_", prefix, flags=re.ASCII)
        if catalog:
            return cls(catalog, namespace)
        scheme = output.partition(":")[0]
        if scheme in _OBJECT_STORES:
            raise ConfigError(
                "an Iceberg table in an object store needs a catalog",
                hint=(
                    "Set iceberg_catalog to one of the session's, such as Glue, REST, Hive or JDBC"
                ),
                output=output,
            )
        warehouse = f"{output.rstrip('/')}/{ICEBERG_FOLDER}"
        # Two queries of one session may have two outputs.
        digest = hashlib.sha256(warehouse.encode()).hexdigest()[:12]
        return cls(f"tidegate_{digest}", namespace, warehouse)

    def settings(self) -> dict[str, str]:
        """Return the session settings of the catalog; none for one that the session has."""
        if not self.warehouse:
            return {}
        name = f"spark.sql.catalog.{self.catalog}"
        return {
            name: _CATALOG_CLASS,
            f"{name}.type": "hadoop",
            f"{name}.warehouse": self.warehouse,
            # A cached table would hide the commits of other writers and other sessions.
            f"{name}.cache-enabled": "false",
        }

    def register(self, spark: SparkSession) -> None:
        """Set the catalog in a session that lacks it; a streaming query has its own session."""
        for name, value in self.settings().items():
            if spark.conf.get(name, None) != value:
                spark.conf.set(name, value)

    def levels(self, kind: str) -> tuple[str, ...]:
        """Return the namespace of a kind of table, level by level."""
        *above, last = self.namespace.split(".")
        return (*above, f"{last}_{kind}")

    def identifier(self, kind: str, table: str) -> str:
        """Return the whole name of a table, as SQL takes it."""
        return quoted(self.catalog, *self.levels(kind), table)

    def namespace_identifier(self, kind: str) -> str:
        """Return the whole name of a namespace, as SQL takes it."""
        return quoted(self.catalog, *self.levels(kind))

    def path(self, kind: str, table: str) -> str:
        """Return a table's name in manifests: its path in the output, or its whole name."""
        if self.warehouse:
            return "/".join((ICEBERG_FOLDER, *self.levels(kind), table))
        return self.identifier(kind, table)


class JavaCatalog:
    """One kind of tables of a place, as a session reaches them."""

    def __init__(self, spark: SparkSession, place: IcebergPlace, kind: str) -> None:
        """Take the session, which gets the place's catalog if it lacks it."""
        place.register(spark)
        self._jvm = cast("Any", spark._jvm)  # noqa: SLF001 - pyspark has no public way to Java's classes
        self._session: Any = spark._jsparkSession  # noqa: SLF001 - likewise
        load = self._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergCatalog
        # Spark looks the catalog's settings up in the active session, whichever one is passed.
        with _active(self._jvm.SparkSession, self._session):
            self._catalog: Any = _called(lambda: load(self._session, place.catalog), place.catalog)
        levels = place.levels(kind)
        gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 - likewise
        names = gateway.new_array(self._jvm.String, len(levels))
        for position, level in enumerate(levels):
            names[position] = level
        self._namespace: Any = self._jvm.org.apache.iceberg.catalog.Namespace.of(names)

    def names(self) -> list[str]:
        """Return the names of the tables; none if there is no such namespace."""

        def names() -> list[str]:
            try:
                identifiers = self._catalog.listTables(self._namespace)
            except Py4JJavaError as error:
                if _kind(error) == "NoSuchNamespaceException":
                    return []
                raise
            return sorted(str(identifier.name()) for identifier in identifiers)

        return _called(names, str(self._namespace.toString()))

    def table(self, name: str) -> JavaTable:
        """Return a table, not read yet; it may not exist."""
        identifier = self._jvm.org.apache.iceberg.catalog.TableIdentifier.of(self._namespace, name)
        return JavaTable(self._jvm, self._catalog, identifier)


class JavaTable:
    """A `SnapshotTable` that can also be changed."""

    def __init__(self, jvm: Any, catalog: Any, identifier: Any) -> None:
        self._jvm = jvm
        self._catalog = catalog
        self._identifier = identifier
        self._table: Any = None

    def load(self) -> bool:
        """Read the table as it is now; return whether it exists."""

        def load() -> bool:
            try:
                self._table = self._catalog.loadTable(self._identifier)
                self._table.refresh()
            except Py4JJavaError as error:
                if _kind(error) in ("NoSuchTableException", "NoSuchNamespaceException"):
                    return False
                raise
            return True

        return self._call(load)

    def properties(self) -> Mapping[str, str]:
        """Return the table properties as they were read."""
        return self._call(lambda: dict(self._table.properties()))

    def current(self) -> IcebergSnapshot | None:
        """Return the snapshot that readers see, as it was read."""
        return self._call(lambda: _snapshot(self._table.currentSnapshot()))

    def snapshot(self, number: int) -> IcebergSnapshot | None:
        """Return a snapshot as it was read, None if it was removed."""
        return self._call(lambda: _snapshot(self._table.snapshot(number)))

    def bytes(self) -> int:
        """Return the size of the table's files, by its newest snapshot."""

        def size() -> int:
            current = self._table.currentSnapshot()
            return 0 if current is None else int(current.summary().get(_BYTES) or 0)

        return self._call(size)

    def staged(self, marker: str) -> int | None:
        """Read the table; return the newest snapshot that was staged under this name, if any."""

        def staged() -> int | None:
            self._table.refresh()
            snapshots = self._table.operations().current().snapshots()
            count = len(snapshots)
            for position in range(count - 1, max(count - _RECENT, 0) - 1, -1):
                if snapshots[position].summary().get(STAGED_AS) == marker:
                    return int(snapshots[position].snapshotId())
            return None

        return self._call(staged)

    def commits(self) -> int:
        """Return how many snapshots the table has ever had, as it was read."""
        return self._call(lambda: int(self._table.operations().current().lastSequenceNumber()))

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """Set table properties in one commit."""

        def set_all() -> None:
            update = self._table.updateProperties()
            for name, value in properties.items():
                update = update.set(name, value)
            update.commit()

        self._call(set_all)

    def publish(self, snapshot: int | None, properties: Mapping[str, str], *, marker: str) -> bool:
        """Make a staged snapshot the current one and set properties, in one commit.

        None: an empty snapshot of that name is made instead.  Returns False if the table has a
        snapshot of this name already, or another commit came first.
        """

        def publish() -> None:
            transaction = self._table.newTransaction()
            if snapshot is None:
                transaction.newFastAppend().set(STAGED_AS, marker).commit()
            else:
                transaction.manageSnapshots().cherrypick(snapshot).commit()
            update = transaction.updateProperties()
            for name, value in properties.items():
                update = update.set(name, value)
            update.commit()
            transaction.commitTransaction()

        try:
            publish()
        except Py4JJavaError as error:
            if _kind(error) in _OVERTAKEN:
                return False
            raise _failure(error, str(self._identifier.toString())) from error
        return True

    def widen(self, schema: StructType) -> None:
        """Add the columns and fields that the table lacks as nullable, in one commit."""

        def widen() -> None:
            kind = self._jvm.org.apache.spark.sql.types.DataType.fromJson(schema.json())
            wanted = self._jvm.org.apache.iceberg.spark.SparkSchemaUtil.convert(kind)
            self._table.updateSchema().caseSensitive(False).unionByNameWith(wanted).commit()  # noqa: FBT003 - Java has no named arguments

        self._call(widen)

    def _call(self, action: Callable[[], _Result]) -> _Result:
        return _called(action, str(self._identifier.toString()))


def _snapshot(java_snapshot: Any) -> IcebergSnapshot | None:
    if java_snapshot is None:
        return None
    summary = java_snapshot.summary()
    marker = summary.get(_PUBLISHED_AS) or summary.get(STAGED_AS)
    parent = java_snapshot.parentId()
    return IcebergSnapshot(
        int(java_snapshot.snapshotId()),
        None if parent is None else int(parent),
        str(java_snapshot.operation()),
        None if marker is None else str(marker),
    )


def _kind(error: Py4JJavaError) -> str:
    return str(error.java_exception.getClass().getSimpleName())


@contextmanager
def _active(sessions: Any, session: Any) -> Iterator[None]:
    """Let a session be this thread's active one within the block."""
    before = sessions.getActiveSession()
    sessions.setActiveSession(session)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def _called(action: Callable[[], _Result], name: str) -> _Result:
    """Call into the JVM and translate its exceptions."""
    try:
        return action()
    except Py4JJavaError as error:
        raise _failure(error, name) from error


def _failure(error: Py4JJavaError, name: str) -> UnreachableError:
    message = "the Iceberg catalog rejected a request"
    hint = "Check the catalog's settings in the session, and its permissions"
    cause = str(error.java_exception.toString())
    return UnreachableError(message, hint=hint, table=name, cause=cause)
