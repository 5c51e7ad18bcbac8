"""PostgreSQL DDL of schema objects: the clauses that GoogleSQL writes in another way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spanner_simulator.core.schema.definitions import ForeignKey
from spanner_simulator.core.schema.object_text import ObjectText
from spanner_simulator.core.schema.schema_objects import ChangeStream, Index, Table
from spanner_simulator.core.schema.statements import (
    ColumnDefinition,
    KeyColumn,
    OptionValue,
)

# Options of a change stream are printed in this order, however they were given.
_STREAM_OPTIONS = (
    "value_capture_type",
    "retention_period",
    "exclude_insert",
    "exclude_update",
    "exclude_delete",
    "exclude_ttl_deletes",
    "allow_txn_exclusion",
    "partition_mode",
)


class PostgresText(ObjectText):
    """Prints PostgreSQL."""

    dialect = "POSTGRESQL"
    key_space = " "
    storing = "INCLUDE"
    stream_separator = "\n"

    def database_options(self, name: str, options: Mapping[str, OptionValue]) -> list[str]:
        """ALTER DATABASE for each option that is set."""
        return [
            f'ALTER DATABASE {self.quoted(name)} SET "spanner.{key}" = {self._option(value)}'
            for key, value in options.items()
        ]

    def proto_bundle(self, names: Sequence[str]) -> list[str]:  # noqa: ARG002  # only GoogleSQL has one
        """Nothing."""
        return []

    def table(self, one: Table, *, without: Sequence[ForeignKey] = ()) -> str:
        """CREATE TABLE with the key among the columns."""
        lines = [*(self._column(column) for column in one.columns)]
        lines += [f"PRIMARY KEY({self._list(one.key_names)})"] if one.key else []
        lines += self._constraints(one, without)
        text = f"CREATE TABLE {self.quoted(one.name)} (\n  " + ",\n  ".join(lines) + "\n)"
        text += "".join(f" {clause}" for clause in self._interleave(one))
        if one.row_deletion is not None:
            days = one.row_deletion.older_than_days
            text += f" TTL INTERVAL '{days} DAYS' ON {self._part(one.row_deletion.column)}"
        return text

    def _column(self, column: ColumnDefinition) -> str:
        kind = column.value_type.ddl("POSTGRESQL")
        text = f"{self._part(column.name)} "
        text += "spanner.commit_timestamp" if column.commit_timestamp else kind
        if column.default is not None:
            text += f" DEFAULT {column.default}"
        if column.generated is not None:
            how = "STORED" if column.is_stored else "VIRTUAL"
            text += f" GENERATED ALWAYS AS ({column.generated}) {how}"
        return text if column.is_nullable else text + " NOT NULL"

    def _key_column(self, part: KeyColumn) -> str:
        text = super()._key_column(part)
        usual = "FIRST" if part.descending else "LAST"
        return text if part.nulls in (None, usual) else f"{text} NULLS {part.nulls}"

    def _index_head(self, one: Index) -> str:
        # An index has the schema of its table, and is named without it.
        name = one.name.rpartition(".")[2]
        return f"{self.quoted(name)} ON {self.quoted(one.table)} ({self._key(one.key)})"

    def _index_tail(self, one: Index) -> str:
        text = ""
        if one.interleave_in is not None:
            text += f" INTERLEAVE IN {self.quoted(one.interleave_in)}"
        return text + self._not_null(one)

    def _stream_options(self, one: ChangeStream) -> str:
        in_order = sorted(one.options, key=lambda option: _STREAM_OPTIONS.index(option[0]))
        return f"WITH ({self._options(in_order)})"

    def _membership(self, role: str, parent: str) -> str:
        return f"GRANT {self.quoted(parent)} TO {self.quoted(role)}"

    def _grant(self, role: str, privileges: str, kind: str, name: str) -> str:
        where = f"{kind} {self.quoted(name)}"
        if kind == "TABLE FUNCTION":
            where = f"FUNCTION spanner.{self.quoted(name)}"
        return f"GRANT {privileges} ON {where} TO {self.quoted(role)}"
