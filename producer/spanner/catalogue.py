"""Change streams and tables as described by INFORMATION_SCHEMA.

Runs simple queries that every implementation of Spanner answers, and joins their results here.
Both dialects have the same views.  In PostgreSQL the parameter of a query is `$1`, a flag is YES or
NO, the default schema is `public`, and types have PostgreSQL's names.  Names are compared as they
are stored: PostgreSQL has folded those that were not quoted.  Names of tables in a named schema are
`schema.table`, as in data change records.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from google.cloud.spanner_v1.types import ExecuteSqlRequest, TypeCode

from tidegate.producer.description import (
    DIALECTS,
    GOOGLE_SQL,
    POSTGRESQL,
    SourceField,
    SourceObject,
    StreamDescription,
    filters_of,
)
from tidegate.producer.ports import Catalogue, Tasks
from tidegate.producer.spanner.chunk_sql import KeyOrder, KeyPart
from tidegate.schemas.instants import parse_rfc3339_ns
from tidegate.schemas.tables import Column, ColumnType, TableSchema

if TYPE_CHECKING:
    from tidegate.producer.spanner.channel import SpannerChannels


_TIMEOUT_S = 15.0
_SYSTEM_SCHEMAS = {"INFORMATION_SCHEMA", "SPANNER_SYS", "PG_CATALOG"}
_DEFAULT_SCHEMAS = {GOOGLE_SQL: "", POSTGRESQL: "public"}
_NEVER_CAPTURED = {"TOKENLIST"}
"""Types of columns that no change stream records: Spanner creates them for its search indexes."""

_DIALECT = (
    "SELECT option_value FROM information_schema.database_options "
    "WHERE option_name = 'database_dialect'"
)
_TIME_QUERIES = {GOOGLE_SQL: "SELECT CURRENT_TIMESTAMP() AS now", POSTGRESQL: "SELECT now() AS now"}
_STREAMS = "SELECT * FROM information_schema.change_streams"
_OPTIONS = (
    "SELECT option_name, option_value FROM information_schema.change_stream_options "
    "WHERE change_stream_name = {name}"
)
_STREAM_TABLES = (
    "SELECT table_schema, table_name, all_columns FROM information_schema.change_stream_tables "
    "WHERE change_stream_name = {name}"
)
_STREAM_COLUMNS = (
    "SELECT table_schema, table_name, column_name FROM information_schema.change_stream_columns "
    "WHERE change_stream_name = {name}"
)
_TABLES = "SELECT table_schema, table_name, table_type FROM information_schema.tables"
_COLUMNS = (
    "SELECT table_schema, table_name, column_name, spanner_type, ordinal_position, is_generated "
    "FROM information_schema.columns"
)
_NULLABLE = (
    "SELECT table_schema, table_name, column_name, is_nullable FROM information_schema.columns"
)
_KEYS = (
    "SELECT table_schema, table_name, column_name, ordinal_position "
    "FROM information_schema.index_columns WHERE index_name = 'PRIMARY_KEY'"
)
_KEY_ORDER = (
    "SELECT table_schema, table_name, column_name, ordinal_position, column_ordering, is_nullable "
    "FROM information_schema.index_columns WHERE index_name = 'PRIMARY_KEY' "
    "AND table_name = {name}"
)

Row = Mapping[str, Any]
_Watched = Mapping["_TableName", frozenset[str] | None]
"""For each table the columns that a stream lists, besides the key; None if it watches all."""


@dataclass(frozen=True, slots=True)
class _TableName:
    schema: str
    table: str

    @property
    def reported(self) -> str:
        return f"{self.schema}.{self.table}" if self.schema else self.table


class SpannerCatalogue:
    """The catalogue of one database; port: `ports.Catalogue`.  Every query has a short deadline."""

    def __init__(self, channels: SpannerChannels, *, timeout_s: float = _TIMEOUT_S) -> None:
        self._channels = channels
        self._timeout_s = timeout_s
        self._known_dialect = ""

    def describe(self, stream: str) -> StreamDescription:
        """Return a change stream and its tables; `exists` is false if there is no such stream."""
        dialect = self._dialect()
        if dialect not in DIALECTS:
            return StreamDescription(
                name=stream,
                dialect=dialect,
                exists=False,
                others=(),
                watches_all=False,
                options={},
                tables=(),
            )
        streams = {row["change_stream_name"]: row for row in self._rows(_STREAMS)}
        exists = stream in streams
        watches_all = exists and _is_set(streams[stream]["all"])
        watched = self._watched(stream, watches_all=watches_all) if exists else {}
        options = self._options(stream)
        return StreamDescription(
            name=stream,
            dialect=dialect,
            exists=exists,
            others=tuple(sorted(streams)),
            watches_all=watches_all,
            options=options,
            tables=self._tables(watched, filters_of(options)) if watched else (),
        )

    def table(self, name: str, *, stream: str, read_ns: int | None = None) -> TableSchema | None:
        """Return a table as a change stream watches it, now or at a time; None if it is missing.

        All columns count as watched if the stream no longer watches the table: its records may
        remain.
        """
        schema, _, table = name.rpartition(".")
        qualified = _TableName(schema, table)
        watched = self._watched(stream, watches_all=False, read_ns=read_ns)
        tables = self._tables(
            {qualified: watched.get(qualified)},
            filters_of(self._options(stream, read_ns=read_ns)),
            only_table=table,
            read_ns=read_ns,
        )
        return tables[0] if tables else None

    def every_table(self) -> tuple[TableSchema, ...]:
        """Return the users' tables by name, whether a change stream watches them or not."""
        return self._tables(self._watched("", watches_all=True), ())

    def nullable_columns(self) -> frozenset[tuple[str, str]]:
        """Return the reported name of the table and the name of each column that may be NULL."""
        return frozenset(
            (self._name(row).reported, row["column_name"])
            for row in self._rows(_NULLABLE)
            if _is_set(row["is_nullable"])
        )

    def key_order(self, name: str, *, read_ns: int | None = None) -> KeyOrder:
        """Return the order of a table's rows, now or at a time; empty for a missing table."""
        schema, _, table = name.rpartition(".")
        rows = [
            row
            for row in self._rows(_KEY_ORDER, read_ns, name=table)
            if self._name(row) == _TableName(schema, table) and row["ordinal_position"] is not None
        ]
        parts = tuple(
            KeyPart(
                row["column_name"],
                is_descending=row["column_ordering"].upper().startswith("DESC"),
                is_nullable=_is_set(row["is_nullable"]),
            )
            for row in sorted(rows, key=lambda row: int(row["ordinal_position"]))
        )
        return KeyOrder(self._dialect(), parts)

    def now_ns(self) -> int:
        """Return the service's time in nanoseconds since 1970, not that of this host.

        0 in a database of another dialect, of which nothing is read.
        """
        sql = _TIME_QUERIES.get(self._dialect(), "")
        return next((parse_rfc3339_ns(row["now"]) for row in self._rows(sql)), 0) if sql else 0

    def _dialect(self) -> str:
        """Return the database's dialect, which never changes."""
        if not self._known_dialect:
            # No row: older databases, which are GoogleSQL.
            dialect = next((row["option_value"] for row in self._rows(_DIALECT)), GOOGLE_SQL)
            self._known_dialect = dialect
        return self._known_dialect

    def _name(self, row: Row) -> _TableName:
        """Return a row's table; in the default schema it has no schema in its name."""
        schema = row["table_schema"] or ""
        is_default = schema == _DEFAULT_SCHEMAS[self._dialect()]
        return _TableName("" if is_default else schema, row["table_name"])

    def _options(self, stream: str, *, read_ns: int | None = None) -> dict[str, str]:
        return {
            row["option_name"]: row["option_value"]
            for row in self._rows(_OPTIONS, read_ns, name=stream)
        }

    def _watched(self, stream: str, *, watches_all: bool, read_ns: int | None = None) -> _Watched:
        """Return the tables that a stream watches: all, or those that it names."""
        if watches_all:
            names = [
                self._name(row) for row in self._rows(_TABLES) if row["table_type"] == "BASE TABLE"
            ]
            return {name: None for name in names if name.schema.upper() not in _SYSTEM_SCHEMAS}
        columns: dict[_TableName, set[str]] = {}
        for row in self._rows(_STREAM_COLUMNS, read_ns, name=stream):
            columns.setdefault(self._name(row), set()).add(row["column_name"])
        return {
            name: None if _is_set(row["all_columns"]) else frozenset(columns.get(name, ()))
            for row in self._rows(_STREAM_TABLES, read_ns, name=stream)
            for name in [self._name(row)]
        }

    def _tables(
        self,
        wanted: _Watched,
        excludes: tuple[str, ...],
        *,
        only_table: str = "",
        read_ns: int | None = None,
    ) -> tuple[TableSchema, ...]:
        """Return the wanted tables that exist, by name; `only_table` narrows the queries.

        Columns that no change stream records are left out.
        """
        columns_sql, keys_sql, bound = _COLUMNS, _KEYS, {}
        if only_table:
            columns_sql += " WHERE table_name = {name}"
            keys_sql += " AND table_name = {name}"
            bound = {"name": only_table}
        key_positions = {
            (self._name(row), row["column_name"]): int(row["ordinal_position"])
            for row in self._rows(keys_sql, read_ns, **bound)
            # A column that an index only stores has no position.
            if row["ordinal_position"] is not None
        }
        columns: dict[_TableName, list[Column]] = {}
        for row in self._rows(columns_sql, read_ns, **bound):
            name = self._name(row)
            if name not in wanted:
                continue
            kind = _column_type(row, self._dialect())
            if kind.code not in _NEVER_CAPTURED:
                columns.setdefault(name, []).append(
                    _column(row, kind, key_positions.get((name, row["column_name"])), wanted[name])
                )
        return tuple(
            TableSchema(
                name.reported,
                tuple(sorted(columns[name], key=lambda column: column.ordinal)),
                excludes=excludes,
            )
            for name in sorted(columns, key=lambda name: name.reported)
        )

    def _rows(self, sql: str, read_ns: int | None = None, **bound: str) -> Iterator[dict[str, Any]]:
        """Run a query and yield its rows by lower-case column names; `{name}` is its parameter."""
        is_postgresql = bool(bound) and self._dialect() == POSTGRESQL
        marker, parameter = ("$1", "p1") if is_postgresql else ("@name", "name")
        request = ExecuteSqlRequest.pb()(sql=sql.replace("{name}", marker))
        if read_ns is None:
            request.transaction.single_use.read_only.strong = True
        else:
            request.transaction.single_use.read_only.read_timestamp.FromNanoseconds(read_ns)
        for value in bound.values():
            request.params[parameter] = value
            request.param_types[parameter].code = TypeCode.STRING
        result = self._channels.execute_sql(request, timeout_s=self._timeout_s)
        names = [field.name.lower() for field in result.metadata.row_type.fields]
        for row in result.rows:
            yield dict(zip(names, (_plain(value) for value in row.values), strict=True))


def _column(
    row: Row, kind: ColumnType, key_position: int | None, listed: frozenset[str] | None
) -> Column:
    name = row["column_name"]
    # Spanner's change streams record every key column, and no other generated one.
    is_recorded = (listed is None or name in listed) and row["is_generated"] != "ALWAYS"
    return Column(
        name=name,
        type=kind,
        ordinal=int(row["ordinal_position"]),
        key_position=key_position,
        is_watched=is_recorded or key_position is not None,
    )


def _column_type(row: Row, dialect: str) -> ColumnType:
    is_postgresql = dialect == POSTGRESQL
    read = ColumnType.from_postgresql_type if is_postgresql else ColumnType.from_spanner_type
    return read(row["spanner_type"] or "")


def _is_set(flag: Any) -> bool:
    """Whether a flag is set: a BOOL, or PostgreSQL's YES."""
    return flag is True or (isinstance(flag, str) and flag.upper() in {"YES", "TRUE"})


def _plain(value: Any) -> Any:
    """Return a result's value as text, boolean, number or None."""
    kind = value.WhichOneof("kind")
    return None if kind in {None, "null_value"} else getattr(value, kind)


_T = TypeVar("_T")


class TablesAt:
    """Tables at a time: reads the catalogue in a thread, and caches each table's last time.

    Google's page on the information schema allows reads of its views at an exact time.
    """

    def __init__(self, catalogue: Catalogue, *, stream: str, tasks: Tasks) -> None:
        """`stream` is the change stream that determines which columns are watched."""
        self._catalogue = catalogue
        self._stream = stream
        self._tasks = tasks
        self._tables: dict[str, tuple[int, TableSchema | None]] = {}

    async def table(self, name: str, *, read_ns: int) -> TableSchema | None:
        """Return a table as it was; None if there was none.  Raises QueryError and SchemaError."""
        former_ns, table = self._tables.get(name, (None, None))
        if former_ns != read_ns:
            table = await self._tasks.in_thread(
                lambda: self._catalogue.table(name, stream=self._stream, read_ns=read_ns)
            )
            self._tables[name] = (read_ns, table)
        return table

    async def in_thread(self, ask: Callable[[], _T]) -> _T:
        """Run another query of a catalogue in a thread."""
        return await self._tasks.in_thread(ask)


def source_tables(
    tables: Iterable[TableSchema],
    nullable: Collection[tuple[str, str]],
    streams: Sequence[StreamDescription],
) -> tuple[SourceObject, ...]:
    """Return the tables by name; `nullable` holds (table, column) of columns that may be NULL."""
    watched = {stream.name: _watched_columns(stream) for stream in streams}

    def watching(table: str, column: str) -> tuple[str, ...]:
        return tuple(
            name for name, columns in watched.items() if column in columns.get(table, frozenset())
        )

    def field(table: str, column: Column) -> SourceField:
        return SourceField(
            name=column.name,
            type=_type_name(column.type),
            nullable=(table, column.name) in nullable,
            key_position=column.key_position,
            watched_by=watching(table, column.name),
        )

    return tuple(
        SourceObject(
            name=table.name,
            fields=tuple(field(table.name, column) for column in table.columns),
            watched_by=tuple(name for name, columns in watched.items() if table.name in columns),
        )
        for table in sorted(tables, key=lambda table: table.name)
    )


def _watched_columns(stream: StreamDescription) -> dict[str, frozenset[str]]:
    return {
        table.name: frozenset(column.name for column in table.columns if column.is_watched)
        for table in stream.tables
    }


def _type_name(kind: ColumnType) -> str:
    if kind.element is not None:
        return f"{kind.code}<{_type_name(kind.element)}>"
    return kind.annotation or kind.code
