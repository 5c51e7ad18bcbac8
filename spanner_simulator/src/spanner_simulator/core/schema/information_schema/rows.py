"""The rows of the views of INFORMATION_SCHEMA, in GoogleSQL's form."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from spanner_simulator.core.schema.catalogue import Catalogue
from spanner_simulator.core.schema.schema_objects import ChangeStream, Index, Table
from spanner_simulator.core.schema.statements import ColumnDefinition, KeyColumn
from spanner_simulator.core.values import Value

# By lower-case column name; missing values are NULL.
ViewRow: TypeAlias = "dict[str, Value]"
_OWN: Final = "INFORMATION_SCHEMA"
_PRIMARY: Final[ViewRow] = {"index_name": "PRIMARY_KEY", "index_type": "PRIMARY_KEY"}


def _split(name: str) -> tuple[str, str]:
    """Schema ('' is the default one) and local name."""
    schema, _, own = name.rpartition(".")
    return schema, own


def _located(name: str, prefix: str = "table") -> ViewRow:
    """The three columns that name an object."""
    schema, own = _split(name)
    return {f"{prefix}_catalog": "", f"{prefix}_schema": schema, f"{prefix}_name": own}


def _option(name: str, value: object, text: str = "") -> ViewRow:
    """The three columns of an option."""
    kind = "BOOL" if isinstance(value, bool) else "INT64" if isinstance(value, int) else "STRING"
    return {"option_name": name, "option_type": kind, "option_value": text or str(value)}


def _yes(value: object) -> str:
    return "YES" if value else "NO"


def _text(value: int | None) -> str | None:
    return None if value is None else str(value)


# -- schemas, tables and columns


def _database_options(catalogue: Catalogue) -> Iterator[ViewRow]:
    where: ViewRow = {"catalog_name": "", "schema_name": ""}
    yield where | _option("database_dialect", catalogue.dialect)


def _schemata(catalogue: Catalogue) -> Iterator[ViewRow]:
    system = [_OWN, "SPANNER_SYS"]
    if catalogue.dialect == "POSTGRESQL":
        system.append("pg_catalog")
    for name in ("", *system, *catalogue.schemas.values()):
        yield {
            "catalog_name": "",
            "schema_name": name,
            "effective_timestamp": 0,
            "schema_owner": "",
        }


def _tables(catalogue: Catalogue) -> Iterator[ViewRow]:
    for table in catalogue.tables.values():
        row = _located(table.name) | {"table_type": "BASE TABLE", "spanner_state": "COMMITTED"}
        if table.interleave is not None:
            row["parent_table_name"] = _split(table.interleave.parent)[1]
            row["interleave_type"] = "IN PARENT"
            row["on_delete_action"] = table.interleave.on_delete
        policy = table.row_deletion
        if policy is not None:
            row["row_deletion_policy_expression"] = (
                f"INTERVAL '{policy.older_than_days} DAYS' ON {policy.column}"
                if catalogue.dialect == "POSTGRESQL"
                else f"OLDER_THAN({policy.column}, INTERVAL {policy.older_than_days} DAY)"
            )
        yield row


def _columns(catalogue: Catalogue) -> Iterator[ViewRow]:
    for table in catalogue.tables.values():
        for column in table.columns:
            yield _located(table.name) | _column(catalogue, table, column)


def _column(catalogue: Catalogue, table: Table, column: ColumnDefinition) -> ViewRow:
    is_generated = column.generated is not None
    is_postgres = catalogue.dialect == "POSTGRESQL"
    spanner_type = column.value_type.ddl(catalogue.dialect)
    if column.commit_timestamp and is_postgres:
        spanner_type = "spanner.commit_timestamp"
    row: ViewRow = {
        "column_name": column.name,
        "ordinal_position": table.ordinal_of[column.name],
        "column_default": column.default,
        "is_nullable": _yes(column.is_nullable),
        "spanner_type": spanner_type,
        "is_generated": "ALWAYS" if is_generated else "NEVER",
        "generation_expression": column.generated,
        "is_stored": _yes(column.is_stored) if is_generated else None,
        "spanner_state": "COMMITTED",
        "is_identity": _yes(column.identity),
        "is_hidden": column.is_hidden,
        "on_update_expression": column.on_update,
    }
    if column.identity is not None:
        skip = column.identity.skip or (None, None)
        row |= {
            "identity_generation": "BY DEFAULT",
            "identity_kind": "BIT_REVERSED_POSITIVE_SEQUENCE",
            "identity_start_with_counter": _text(column.identity.start),
            "identity_skip_range_min": _text(skip[0]),
            "identity_skip_range_max": _text(skip[1]),
        }
    if is_postgres:
        # The standard's type leaves the length out.
        row["data_type"] = "ARRAY" if column.value_type.element else spanner_type.partition("(")[0]
        row["character_maximum_length"] = column.value_type.length
    return row


def _column_options(catalogue: Catalogue) -> Iterator[ViewRow]:
    """In PostgreSQL spanner.commit_timestamp is a type, not an option."""
    for table in catalogue.tables.values() if catalogue.dialect != "POSTGRESQL" else ():
        for column in table.columns:
            if column.commit_timestamp:
                where = _located(table.name) | {"column_name": column.name}
                yield where | _option("allow_commit_timestamp", value=True, text="TRUE")


# -- keys and indexes


def _constraints(catalogue: Catalogue) -> Iterator[tuple[ViewRow, str, Table]]:
    for table in catalogue.tables.values():
        schema, own = _split(table.name)
        names = [(f"PK_{own}", "PRIMARY KEY")]
        required = [column.name for column in table.columns if not column.is_nullable]
        names += [(f"CK_IS_NOT_NULL_{own}_{name}", "CHECK") for name in required]
        names += [(check.name, "CHECK") for check in table.checks]
        for name, kind in names:
            row: ViewRow = {
                "constraint_catalog": "",
                "constraint_schema": schema,
                "constraint_name": name,
            }
            yield row | _located(table.name), kind, table


def _table_constraints(catalogue: Catalogue) -> Iterator[ViewRow]:
    for row, kind, _ in _constraints(catalogue):
        yield row | {
            "constraint_type": kind,
            "is_deferrable": "NO",
            "initially_deferred": "NO",
            "enforced": "YES",
        }


def _key_column_usage(catalogue: Catalogue) -> Iterator[ViewRow]:
    for row, kind, table in _constraints(catalogue):
        for position, name in enumerate(table.key_names if kind == "PRIMARY KEY" else (), start=1):
            yield row | {"column_name": name, "ordinal_position": position}


def _indexes(catalogue: Catalogue) -> Iterator[ViewRow]:
    for table in catalogue.tables.values():
        yield _located(table.name) | _PRIMARY | _index_kind(is_unique=True)
    for index in catalogue.indexes.values():
        kind = _index_kind(is_unique=index.is_unique, is_null_filtered=index.is_null_filtered)
        yield _located(index.table) | _index_name(index) | kind | {"index_state": "READ_WRITE"}


def _index_kind(*, is_unique: bool, is_null_filtered: bool = False) -> ViewRow:
    return {
        "parent_table_name": "",
        "is_unique": is_unique,
        "is_null_filtered": is_null_filtered,
        "spanner_is_managed": False,
    }


def _index_name(index: Index) -> ViewRow:
    return {"index_name": _split(index.name)[1], "index_type": "INDEX"}


def _index_columns(catalogue: Catalogue) -> Iterator[ViewRow]:
    """Key columns with their position, stored columns without."""
    for table in catalogue.tables.values():
        for row in _key(catalogue, table, table.key):
            yield row | _PRIMARY
    for index in catalogue.indexes.values():
        table, name = catalogue.table(index.table), _index_name(index)
        for row in _key(catalogue, table, index.key, is_filtered=index.is_null_filtered):
            yield row | name
        for column in index.storing:
            yield _index_column(catalogue, table, column) | name


def _key(
    catalogue: Catalogue, table: Table, key: Sequence[KeyColumn], *, is_filtered: bool = False
) -> Iterator[ViewRow]:
    for position, part in enumerate(key, start=1):
        yield _index_column(catalogue, table, part.name, is_filtered=is_filtered) | {
            "ordinal_position": position,
            "column_ordering": "DESC" if part.descending else "ASC",
        }


def _index_column(
    catalogue: Catalogue, table: Table, name: str, *, is_filtered: bool = False
) -> ViewRow:
    column = table.column(name)
    return _located(table.name) | {
        "column_name": name,
        "is_nullable": _yes(column.is_nullable and not is_filtered),
        "spanner_type": column.value_type.ddl(catalogue.dialect),
    }


# -- change streams


def _stream(stream: ChangeStream) -> ViewRow:
    return _located(stream.name, "change_stream")


def _change_streams(catalogue: Catalogue) -> Iterator[ViewRow]:
    for stream in catalogue.streams.values():
        everything = stream.watch is not None and stream.watch.everything
        yield _stream(stream) | {"all": everything}


def _change_stream_tables(catalogue: Catalogue) -> Iterator[ViewRow]:
    """Tables that are named; a stream on everything names none."""
    for stream in catalogue.streams.values():
        for table, columns in stream.watch.tables if stream.watch else ():
            yield _stream(stream) | _located(table) | {"all_columns": columns is None}


def _change_stream_columns(catalogue: Catalogue) -> Iterator[ViewRow]:
    for stream in catalogue.streams.values():
        for table, columns in stream.watch.tables if stream.watch else ():
            for column in columns or ():
                yield _stream(stream) | _located(table) | {"column_name": column}


def _change_stream_options(catalogue: Catalogue) -> Iterator[ViewRow]:
    """Options that were set, without those that have their defaults."""
    for stream in catalogue.streams.values():
        for name, value in stream.options:
            text = str(value).lower() if isinstance(value, bool) else ""
            yield _stream(stream) | _option(name, value, text)


ROWS: Final[dict[str, Callable[[Catalogue], Iterable[ViewRow]]]] = {
    "change_streams": _change_streams,
    "change_stream_tables": _change_stream_tables,
    "change_stream_columns": _change_stream_columns,
    "change_stream_options": _change_stream_options,
    "column_options": _column_options,
    "columns": _columns,
    "database_options": _database_options,
    "index_columns": _index_columns,
    "indexes": _indexes,
    "key_column_usage": _key_column_usage,
    "schemata": _schemata,
    "table_constraints": _table_constraints,
    "tables": _tables,
}
"""A view without an entry has no rows."""
