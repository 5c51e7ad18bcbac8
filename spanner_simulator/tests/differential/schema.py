"""The schema that a workload believes in, and the DDL of its objects.

It is a model for choosing what to do next, not for judging: where it errs, both sides are still
asked the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from differential.kinds import GOOGLE, POSTGRES, Dialect, Kind


@dataclass(frozen=True, slots=True)
class Column:
    """A column; `default` and `generated` are SQL text."""

    name: str
    kind: Kind
    nullable: bool = True
    default: str | None = None
    generated: str | None = None
    commit_timestamp: bool = False
    hidden: bool = False

    @property
    def is_written(self) -> bool:
        return self.generated is None

    def ddl(self, dialect: Dialect) -> str:
        kind = self.kind.ddl(dialect)
        if self.commit_timestamp and dialect == POSTGRES:
            kind = "SPANNER.COMMIT_TIMESTAMP"
        text = f"{self.name} {kind}"
        if not self.nullable:
            text += " NOT NULL"
        if self.default is not None:
            text += f" DEFAULT ({self.default})"
        if self.generated is not None:
            text += f" AS ({self.generated}) STORED"
        text += " HIDDEN" * self.hidden
        if self.commit_timestamp and dialect == GOOGLE:
            text += " OPTIONS (allow_commit_timestamp = true)"
        return text


@dataclass(frozen=True, slots=True)
class Index:
    """A secondary index; columns with whether they descend."""

    name: str
    table: str
    columns: tuple[tuple[str, bool], ...]
    unique: bool = False
    storing: tuple[str, ...] = ()
    null_filtered: bool = False

    def ddl(self, dialect: Dialect) -> str:
        parts = ", ".join(name + (" DESC" if desc else "") for name, desc in self.columns)
        unique = "UNIQUE " if self.unique else ""
        filtered = "NULL_FILTERED " if self.null_filtered else ""
        word = "STORING" if dialect == GOOGLE else "INCLUDE"
        storing = f" {word} ({', '.join(self.storing)})" if self.storing else ""
        return f"CREATE {unique}{filtered}INDEX {self.name} ON {self.table} ({parts}){storing}"

    def readable(self, table: Table) -> tuple[str, ...]:
        """Columns that the index has."""
        names = {name for name, _ in self.columns} | {*table.key_names, *self.storing}
        return tuple(sorted(names))


@dataclass(frozen=True, slots=True)
class Table:
    """A table; key parts with whether they descend."""

    name: str
    columns: tuple[Column, ...]
    key: tuple[tuple[str, bool], ...]
    parent: str | None = None
    cascade: bool = False

    def column(self, name: str) -> Column:
        return next(one for one in self.columns if one.name == name)

    @property
    def key_names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.key)

    @property
    def values(self) -> tuple[Column, ...]:
        """Columns outside the key."""
        return tuple(one for one in self.columns if one.name not in self.key_names)

    def ddl(self, dialect: Dialect) -> str:
        parts = [column.ddl(dialect) for column in self.columns]
        if dialect == GOOGLE:
            keys = ", ".join(name + (" DESC" if desc else "") for name, desc in self.key)
            text = f"CREATE TABLE {self.name} ({', '.join(parts)}) PRIMARY KEY ({keys})"
            joint = ", INTERLEAVE IN PARENT"
        else:
            parts.append(f"PRIMARY KEY ({', '.join(self.key_names)})")
            text = f"CREATE TABLE {self.name} ({', '.join(parts)})"
            joint = " INTERLEAVE IN PARENT"
        if self.parent is not None:
            text += f"{joint} {self.parent} ON DELETE {'CASCADE' if self.cascade else 'NO ACTION'}"
        return text


@dataclass(frozen=True, slots=True)
class Stream:
    """A change stream; `watch` maps tables to column names, None for all columns; None is ALL."""

    name: str
    watch: dict[str, tuple[str, ...] | None] | None
    options: dict[str, str | bool] = field(default_factory=dict)

    def watch_text(self) -> str:
        if self.watch is None:
            return " FOR ALL"
        parts = [
            table if columns is None else f"{table}({', '.join(columns)})"
            for table, columns in self.watch.items()
        ]
        return " FOR " + ", ".join(parts) if parts else ""

    def create(self, dialect: Dialect) -> str:
        text = f"CREATE CHANGE STREAM {self.name}{self.watch_text()}"
        word = " OPTIONS" if dialect == GOOGLE else " WITH"
        return f"{text}{word} ({options_text(self.options)})" if self.options else text


def options_text(options: dict[str, str | bool]) -> str:
    """Options as both dialects list them."""
    return ", ".join(
        f"{name} = " + (f"'{held}'" if isinstance(held, str) else str(held).lower())
        for name, held in options.items()
    )


@dataclass(slots=True)
class Schema:
    """Everything that exists by now."""

    dialect: Dialect
    tables: dict[str, Table] = field(default_factory=dict)
    indexes: dict[str, Index] = field(default_factory=dict)
    streams: dict[str, Stream] = field(default_factory=dict)

    def children(self, table: str) -> list[Table]:
        return [one for one in self.tables.values() if one.parent == table]

    def read_indexes(self, table: str) -> list[Index]:
        """Indexes to read by; the emulator's unique ones in PostgreSQL leave rows with NULL out."""
        return [
            one
            for one in self.indexes.values()
            if one.table == table and (self.dialect == GOOGLE or not one.unique)
        ]

    def set_columns(self, table: str, columns: tuple[Column, ...]) -> None:
        self.tables[table] = replace(self.tables[table], columns=columns)
