"""All tables of a database, with what its change streams watch of each."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from tidegate.producer.description import SourceField, SourceObject, StreamDescription
from tidegate.schemas.tables import Column, ColumnType, TableSchema


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
        for table in sorted(tables, key=lambda one: one.name)
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
