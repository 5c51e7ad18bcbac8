"""GoogleSQL DDL of schema objects: the clauses that PostgreSQL writes in another way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spanner_simulator.core.schema.definitions import ForeignKey
from spanner_simulator.core.schema.object_text import ObjectText
from spanner_simulator.core.schema.schema_objects import ChangeStream, Index, Table
from spanner_simulator.core.schema.statements import ColumnDefinition, OptionValue


class GoogleText(ObjectText):
    """Prints GoogleSQL."""

    dialect = "GOOGLE_STANDARD_SQL"
    key_space = ""
    storing = "STORING"
    stream_separator = " "

    def database_options(self, name: str, options: Mapping[str, OptionValue]) -> list[str]:
        """One ALTER DATABASE for all options."""
        if not options:
            return []
        inside = self._options(list(options.items()))
        return [f"ALTER DATABASE {self.quoted(name)} SET OPTIONS ({inside})"]

    def proto_bundle(self, names: Sequence[str]) -> list[str]:
        """CREATE PROTO BUNDLE, a type to a line."""
        lines = "".join(f"  {self.quoted(name)},\n" for name in names)
        return [f"CREATE PROTO BUNDLE (\n{lines})"] if names else []

    def table(self, one: Table, *, without: Sequence[ForeignKey] = ()) -> str:
        """CREATE TABLE with the key behind the brackets and a comma after each clause."""
        lines = [*(self._column(column) for column in one.columns)]
        lines += self._constraints(one, without)
        text = f"CREATE TABLE {self.quoted(one.name)} (\n"
        text += "".join(f"  {line},\n" for line in lines)
        text += f") PRIMARY KEY({self._key(one.key)})"
        text += "".join(f",\n  {clause}" for clause in self._interleave(one))
        if one.row_deletion is not None:
            text += (
                f", ROW DELETION POLICY (OLDER_THAN({self._part(one.row_deletion.column)}, "
                f"INTERVAL {one.row_deletion.older_than_days} DAY))"
            )
        return text

    def _column(self, column: ColumnDefinition) -> str:
        text = f"{self._part(column.name)} {column.value_type.ddl()}"
        if not column.is_nullable:
            text += " NOT NULL"
        if column.default is not None:
            text += f" DEFAULT ({column.default})"
        if column.generated is not None:
            text += f" AS ({column.generated})" + (" STORED" if column.is_stored else "")
        if column.commit_timestamp:
            text += " OPTIONS (\n    allow_commit_timestamp = true\n  )"
        return text

    def _index_head(self, one: Index) -> str:
        return f"{self.quoted(one.name)} ON {self.quoted(one.table)}({self._key(one.key)})"

    def _index_tail(self, one: Index) -> str:
        text = self._not_null(one)
        if one.interleave_in is not None:
            text += f", INTERLEAVE IN {self.quoted(one.interleave_in)}"
        return text

    def _stream_options(self, one: ChangeStream) -> str:
        return f"OPTIONS ( {self._options(one.options)} )"

    def _membership(self, role: str, parent: str) -> str:
        return f"GRANT ROLE {self.quoted(parent)} TO ROLE {self.quoted(role)}"

    def _grant(self, role: str, privileges: str, kind: str, name: str) -> str:
        return f"GRANT {privileges} ON {kind} {self.quoted(name)} TO ROLE {self.quoted(role)}"
