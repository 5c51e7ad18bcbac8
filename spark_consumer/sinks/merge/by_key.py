"""The mirror by key: every source table's rows, merged by the batch that reads their changes.

It does not wait for the watermark, so a part of a transaction may be in the tables.  Rows agree
with the source table once everything up to a commit time was read.  Exactly once: a batch that a
table's commits name is not merged again.

A row's state follows from the set of its key's changes that were read, whatever their order: the
newest change that captured a column gives its value, and an INSERT or DELETE captures every column.
So the result depends neither on how changes are cut into batches, nor on how often a batch comes,
nor on which of a table's two topics is read first: a row that was read on demand, as of a time T,
may come in a later batch than an UPDATE after T.  Therefore a row stores the order keys of the
columns that UPDATEs captured since its INSERT or DELETE.  The order is Kafka's, or that of the
source's order column if there is one (`fold.with_source_order`).

A deleted key keeps a row without values, with the order key of the DELETE; otherwise an older
change that comes later would bring the row back.  A key with UPDATEs only has the values that these
captured, and is not yet a row of the source table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import structlog
from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom
from pyspark.sql.types import BinaryType, MapType, StringType, StructField, StructType

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.core.sink_names import MIRROR_BY_KEY
from tidegate.spark_consumer.sinks.delta.layout import TableLayout, refuse_lost_texts, text_columns
from tidegate.spark_consumer.sinks.delta.tables import SinkTables
from tidegate.spark_consumer.sinks.handed_batch import HandedBatch
from tidegate.spark_consumer.sinks.merge.fold import (
    DELETE,
    REPLACE,
    fold,
    folded_value,
    updated_at,
    with_source_order,
)
from tidegate.spark_consumer.sinks.merge.scope import (
    MirrorScope,
    key_names,
    mirror_columns,
    mirror_schema,
)
from tidegate.spark_consumer.sinks.merge.sink import expressions, merge_settings
from tidegate.spark_consumer.sinks.port import AnyTable, DecodedTable, Release, TableVersion
from tidegate.spark_consumer.sinks.sql import (
    checkpointed,
    free,
    quoted,
    session_settings,
    text_literal,
)
from tidegate.spark_consumer.sinks.tables import Commit, fold_settings, for_each_table

ROW_STATE = "row_state"
"""Column: `present`, `deleted`, or `incomplete` (UPDATEs of a row whose INSERT was not read)."""

ORDER_KEY = "order_key"
"""Column: the order key of the row's newest change, or what its source orders changes by."""

COLUMN_UPDATES = "column_updates"
"""Column: the columns that UPDATEs captured since the row's INSERT or DELETE; NULL without any.

`base_order_key` is the order key of that INSERT or DELETE (NULL: none was read), and `columns` has
by column that of the newest UPDATE which captured it.
"""

_PRESENT, _DELETED, _INCOMPLETE = "present", "deleted", "incomplete"
_STATE_COLUMNS = (ROW_STATE, ORDER_KEY, COLUMN_UPDATES)
_UPDATES_TYPE = StructType(
    [
        StructField("base_order_key", BinaryType()),
        StructField("columns", MapType(StringType(), BinaryType())),
    ]
)
_BEFORE_ALL = "X''"

_TABLE_BASE = (
    f"CASE WHEN t.{COLUMN_UPDATES} IS NULL THEN t.{ORDER_KEY} "
    f"ELSE t.{COLUMN_UPDATES}.base_order_key END"
)
"""The order key of the row's INSERT or DELETE; rows of an earlier version have one for all."""

_NEWEST = f"greatest(s.{ORDER_KEY}, t.{ORDER_KEY})"

_FIRST_STATE = (
    f"CASE WHEN s.action = '{REPLACE}' THEN '{_PRESENT}' WHEN s.action = '{DELETE}' AND NOT "
    f"s.updated_after_base THEN '{_DELETED}' ELSE '{_INCOMPLETE}' END"
)

_MERGED = ("numTargetRowsInserted", "numTargetRowsUpdated")

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class KeyMerge:
    """Clauses over `t` (table) and `s` (fold); columns are quoted, and values are by column."""

    same_key: str
    is_newer: str
    changed: Mapping[str, str]
    inserted: Mapping[str, str]


def keyed_schema(table: AnyTable) -> StructType:
    """Return the columns of a mirror by key and their types.

    Raises ConfigError if the source table has a column with a reserved name.
    """
    row = mirror_schema(table)
    taken = sorted(name for name in row.fieldNames() if name.lower() in _STATE_COLUMNS)
    if taken:
        raise ConfigError(
            "a table has columns with names that its mirror by key needs",
            hint=(
                "Leave the columns out of the stream (`columns_left_out` of the producer; a column "
                "that is dropped or renamed stays in the topic), or use the sink mirror"
            ),
            table=table.schemas.table,
            columns=taken,
        )
    types = (StringType(), BinaryType(), _UPDATES_TYPE)
    own_columns = [
        StructField(name, kind) for name, kind in zip(_STATE_COLUMNS, types, strict=True)
    ]
    return StructType([*own_columns, *row])


def key_merge(
    *, columns: Sequence[str], keys: Sequence[str], existing: Sequence[str] = ()
) -> KeyMerge:
    """Return the clauses for a fold of these columns with its places, which are order keys.

    The fold has the newest order key too.  A column that `existing` names and no change has any
    more keeps its value until a DELETE.
    """
    written = {name.lower() for name in (*_STATE_COLUMNS, *columns)}
    stale = [name for name in existing if name.lower() not in written]
    of_key = {key: f"s.key.{quoted(key)}" for key in keys}
    places = {name: n for n, name in enumerate(columns) if name not in of_key}
    newer = {name: _is_newer(name, n) for name, n in places.items()}
    values = {name: f"s.{folded_value(n)}" for name, n in places.items()}
    updates = {name: f"s.{updated_at(n)}" for name, n in places.items()}
    kept = {
        name: f"CASE WHEN {newer[name]} THEN {value} ELSE t.{quoted(name)} END"
        for name, value in values.items()
    }
    left = {
        name: f"CASE WHEN NOT ({_BASE_IS_NEWER} AND s.action = '{DELETE}') "
        f"THEN t.{quoted(name)} END"
        for name in stale
    }
    left_updates = {
        name: f"CASE WHEN {_table_update(name)} > {_or_first('s.base_ordinal')} "
        f"THEN {_table_update(name)} END"
        for name in stale
    }
    kept_updates = {
        name: f"CASE WHEN {newer[name]} THEN {update} ELSE {_table_update(name)} END"
        for name, update in updates.items()
    }
    return KeyMerge(
        same_key=" AND ".join(f"t.{quoted(key)} <=> {value}" for key, value in of_key.items()),
        is_newer=" OR ".join((f"s.{ORDER_KEY} > t.{ORDER_KEY}", _BASE_IS_NEWER, *newer.values())),
        changed=_quoted(
            {
                ROW_STATE: _STATE_AFTER,
                ORDER_KEY: _NEWEST,
                COLUMN_UPDATES: _updates({**kept_updates, **left_updates}, _NEWEST, _NEW_BASE),
                **kept,
                **left,
            }
        ),
        inserted=_quoted(
            {
                ROW_STATE: _FIRST_STATE,
                ORDER_KEY: f"s.{ORDER_KEY}",
                COLUMN_UPDATES: _updates(updates, f"s.{ORDER_KEY}", "s.base_ordinal"),
                **of_key,
                **values,
                **dict.fromkeys(stale, "NULL"),
            }
        ),
    )


def _or_first(order_key: str) -> str:
    return f"coalesce({order_key}, {_BEFORE_ALL})"


_BASE_IS_NEWER = f"(coalesce(s.base_ordinal > {_or_first(_TABLE_BASE)}, false))"
_NEW_BASE = f"CASE WHEN {_BASE_IS_NEWER} THEN s.base_ordinal ELSE {_TABLE_BASE} END"

_STATE_AFTER = (
    f"CASE WHEN {_BASE_IS_NEWER} AND s.action = '{REPLACE}' THEN '{_PRESENT}' "
    f"WHEN NOT {_BASE_IS_NEWER} AND t.{ROW_STATE} <> '{_DELETED}' THEN t.{ROW_STATE} "
    f"WHEN {_NEWEST} > {_or_first(_NEW_BASE)} THEN '{_INCOMPLETE}' ELSE '{_DELETED}' END"
)


def _table_update(column: str) -> str:
    return f"try_element_at(t.{COLUMN_UPDATES}.columns, {text_literal(column)})"


def _is_newer(column: str, position: int) -> str:
    """Return whether the fold has a newer change that captured the column than the row has."""
    of_fold = f"coalesce(s.{updated_at(position)}, s.base_ordinal)"
    of_row = f"coalesce({_table_update(column)}, {_TABLE_BASE}, {_BEFORE_ALL})"
    return f"(coalesce({of_fold} > {of_row}, false))"


def _updates(by_column: Mapping[str, str], newest: str, base: str) -> str:
    """Return the row's `column_updates`: NULL where no change is after its base."""
    entries = ", ".join(
        f"CASE WHEN ({value}) IS NOT NULL "
        f"THEN named_struct('name', {text_literal(name)}, 'at', {value}) END"
        for name, value in by_column.items()
    )
    columns = f"map_from_entries(array_compact(array({entries})))" if entries else "map()"
    typed = f"CAST({columns} AS MAP<STRING, BINARY>)"
    return (
        f"CASE WHEN {newest} > {_or_first(base)} "
        f"THEN named_struct('base_order_key', {base}, 'columns', {typed}) END"
    )


def _quoted(values: Mapping[str, str]) -> dict[str, str]:
    return {quoted(name): value for name, value in values.items()}


@dataclass(frozen=True, slots=True)
class _Folded:
    """A checkpointed fold, and how many rows it has."""

    frame: DataFrame
    rows: int


class DeltaMirrorByKeySink:
    """Merges into `<output>/mirror_by_key/<table>`; a `BatchSink`."""

    name = MIRROR_BY_KEY

    def __init__(
        self,
        spark: SparkSession,
        output: str,
        *,
        accepted: Iterable[str] = (),
        layout: TableLayout | None = None,
    ) -> None:
        """Take the output's address, what `mirror_accepts` names, and the layout of new tables."""
        self._spark = spark
        self._scope = MirrorScope(accepted)
        self._tables = SinkTables(
            output, self.name, sink=self.name, layout=layout, is_by_batch=True
        )

    def open(self, *, query_id: str, release_max: int) -> None:
        """Refuse tables of another query, or ahead of this one's checkpoint, with ConfigError."""
        self._tables.open(self._spark, query_id=query_id, release_max=release_max)

    def take(self, batch: HandedBatch) -> None:
        """Merge the changes that the tables lack.

        Raises SchemaError for a column whose type changed, FilteredMirror if the change stream
        leaves out what the tables need, and ConfigError for a column with a reserved name.
        """
        commit = Commit.of_batch(batch, self.name)
        changed = [topic for topic, table in batch.tables.items() if table.rows]
        for table in batch.tables.values():
            spark, name, schema = table.spark, table.schemas.table, keyed_schema(table)
            if table.rows or not self._tables.log(spark, name).exists:
                self._scope.require(table.schemas, partial(self._tables.columns, spark, name))
                self._tables.prepare(spark, name, schema=schema, commit=commit)
        lacking = [topic for topic in changed if self._lacks(batch.tables[topic], commit)]
        if not lacking:
            return
        # The session of the batch's frames: a streaming query has another one.
        spark, folds = batch.tables[lacking[0]].spark, dict[str, _Folded]()
        tables = [batch.tables[topic] for topic in lacking]
        files = max(
            self._tables.files_of_merge(spark, table.schemas.table, rows=table.rows)
            for table in tables
        )

        def fold_table(topic: str) -> None:
            folds[topic] = _folded(batch.tables[topic])

        def merge(topic: str) -> None:
            self._merge(batch.tables[topic], folds[topic], commit=commit)

        # A fold reads the batch alone, a MERGE the table too, which may be large.
        with session_settings(spark, fold_settings(files, tables)):
            for_each_table(spark, lacking, fold_table)
        with session_settings(spark, merge_settings(files, commit)):
            for_each_table(spark, lacking, merge)

    def write(self, release: Release) -> Mapping[str, TableVersion]:
        """Write nothing; return the tables' versions, which have all changes of the release."""
        return self._tables.batch_versions(self._spark, release)

    def _lacks(self, table: DecodedTable, commit: Commit) -> bool:
        return self._tables.log(table.spark, table.schemas.table).written(commit) is None

    def _merge(self, table: DecodedTable, done: _Folded, *, commit: Commit) -> None:
        table_name, folded = table.schemas.table, done.frame
        log, columns = self._tables.log(table.spark, table_name), mirror_columns(table.schemas)
        keys = key_names(table.schemas)
        partitions = self._tables.partition_columns(table.spark, table_name)
        texts = text_columns(keyed_schema(table), partitions)
        # A row without values, of a DELETE, has its key too.
        values = {name: folded_value(columns.index(name)) for name in texts if name not in keys}
        values |= {name: f"key.{quoted(name)}" for name in texts if name in keys}
        address = self._tables.address(table_name)
        refuse_lost_texts(table_name, folded, values, address=address, partitions=partitions)
        mirror = DeltaTable.forPath(table.spark, address)
        clauses = key_merge(columns=columns, keys=keys, existing=mirror.toDF().columns)
        (
            mirror.alias("t")
            .merge(folded.alias("s"), clauses.same_key)
            .whenMatchedUpdate(clauses.is_newer, set=expressions(clauses.changed))
            .whenNotMatchedInsert(values=expressions(clauses.inserted))
            .execute()
        )
        log.follow()
        written = log.written(commit)
        metrics = {} if written is None else written.metrics
        older = done.rows - sum(int(metrics.get(part, "0")) for part in _MERGED)
        if older:
            _log.warning("changes older than their rows", table=table_name, batch=commit.release,
                         rows=older)  # fmt: skip
        free(folded)


def _folded(table: DecodedTable) -> _Folded:
    columns = mirror_columns(table.schemas)
    changes = with_source_order(table.frame, columns).withColumn("ordinal", F.col(ORDER_KEY))
    folded = fold(changes, columns, newest=[ORDER_KEY], with_places=True)
    frame, counts = checkpointed(folded, rows=F.count("*"))
    return _Folded(frame, **counts)
