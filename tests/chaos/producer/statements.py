"""The statements of a run's tables and change stream, in the database's dialect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidegate.local_stack.demo.bank import Dialect

_POSTGRESQL = {
    "INT64": "bigint",
    "STRING(MAX)": "text",
    "STRING(40)": "varchar(40)",
    "FLOAT64": "double precision",
    "BOOL": "boolean",
    "BYTES(MAX)": "bytea",
    "TIMESTAMP": "timestamptz",
    "NUMERIC": "numeric",
}


@dataclass(frozen=True, slots=True)
class Statements:
    """Types are named as GoogleSQL does; names keep their case in both dialects."""

    dialect: Dialect = Dialect.GOOGLESQL

    def create_table(self, table: str, columns: Mapping[str, str]) -> str:
        """Return the statement that creates a table with its key and these columns."""
        listed = {"Shop": "INT64", "Sku": "STRING(40)", **columns}
        texts = [
            f"{self._name(name)} {self._type(kind)}{' NOT NULL' if name in ('Shop', 'Sku') else ''}"
            for name, kind in listed.items()
        ]
        key = f"PRIMARY KEY ({self._name('Sku')}, {self._name('Shop')})"
        if self._is_postgresql:
            return f"CREATE TABLE {self._name(table)} ({', '.join([*texts, key])})"
        return f"CREATE TABLE {self._name(table)} ({', '.join(texts)}) {key}"

    def drop_table(self, table: str) -> str:
        """Return the statement that drops a table."""
        return f"DROP TABLE {self._name(table)}"

    def add_column(self, table: str, column: str, kind: str) -> str:
        """Return the statement that adds a column."""
        added = f"{self._name(column)} {self._type(kind)}"
        return f"ALTER TABLE {self._name(table)} ADD COLUMN {added}"

    def drop_column(self, table: str, column: str) -> str:
        """Return the statement that drops a column."""
        return f"ALTER TABLE {self._name(table)} DROP COLUMN {self._name(column)}"

    def create_stream(self, stream: str, *, has_moves: bool) -> str:
        """Return the statement that creates a change stream of all tables."""
        options = "value_capture_type = 'OLD_AND_NEW_VALUES', retention_period = '7d'"
        if has_moves:
            options += ", partition_mode = 'MUTABLE_KEY_RANGE'"
        clause = "WITH" if self._is_postgresql else "OPTIONS"
        return f"CREATE CHANGE STREAM {self._name(stream)} FOR ALL {clause} ({options})"

    @property
    def _is_postgresql(self) -> bool:
        return self.dialect is Dialect.POSTGRESQL

    def _name(self, name: str) -> str:
        # Quoted: PostgreSQL folds other names to lower case.
        return f'"{name}"' if self._is_postgresql else name

    def _type(self, kind: str) -> str:
        return _POSTGRESQL[kind] if self._is_postgresql else kind
