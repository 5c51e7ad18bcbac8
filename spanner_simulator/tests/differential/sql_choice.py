"""Chooses SQL: DML and queries over a schema, in either dialect, with parameters."""

from __future__ import annotations

from random import Random
from typing import Any

from differential.kinds import GOOGLE, POSTGRES, Kind
from differential.kinds import value as choose_value
from differential.row_model import RowModel
from differential.schema import Column, Schema, Table
from differential.steps import Dml, Query

_NOT_COMPARED = {
    GOOGLE: ("JSON", "ARRAY", "FLOAT32"),
    # The emulator ends at some comparisons of floats.
    POSTGRES: ("JSON", "ARRAY", "FLOAT32", "FLOAT64", "NUMERIC"),
}
_UNGROUPED = ("JSON", "ARRAY", "FLOAT32", "FLOAT64")


class _Text:
    """SQL text under way, with the parameters that it binds."""

    def __init__(self, chance: Random, schema: Schema) -> None:
        self._chance = chance
        self.dialect = schema.dialect
        self.parameters: dict[str, tuple[Any, dict[str, Any] | None]] = {}

    def parameter(self, kind: Kind, data: Any) -> str:
        number = len(self.parameters) + 1
        self.parameters[f"p{number}"] = (data, kind.type_json(self.dialect))
        return f"@p{number}" if self.dialect == GOOGLE else f"${number}"

    def value(self, kind: Kind) -> str:
        return self.parameter(kind, choose_value(self._chance, kind, self.dialect))


class SqlChoice:
    """Draws statements over the present schema."""

    def __init__(self, chance: Random, schema: Schema, rows: RowModel) -> None:
        self._chance = chance
        self._schema = schema
        self._rows = rows

    def _table(self) -> Table:
        return self._chance.choice(list(self._schema.tables.values()))

    # ------------------------------------------------------------ DML

    def dml(self, key_of: Any) -> Dml:
        """A statement; `key_of(table, is_new=)` chooses a key for it."""
        table = self._table()
        draw = self._chance.random()
        if draw < 0.45:
            return self._insert(table, key_of)
        text = _Text(self._chance, self._schema)
        able = [one for one in table.values if one.is_written]
        if draw < 0.8 and able:
            some = self._chance.sample(able, min(len(able), self._chance.randrange(1, 4)))
            sets = ", ".join(f"{one.name} = {self._assigned(text, table, one)}" for one in some)
            where = self._where(text, table, key_of)
            return self._returning(f"UPDATE {table.name} SET {sets} WHERE {where}", table, text)
        where = self._where(text, table, key_of, deletes=True)
        return self._returning(f"DELETE FROM {table.name} WHERE {where}", table, text)

    def _insert(self, table: Table, key_of: Any) -> Dml:
        chance = self._chance
        text = _Text(chance, self._schema)
        some = [
            one
            for one in table.values
            if one.is_written
            and (one.commit_timestamp or not one.nullable or chance.random() < 0.6)
            and (one.default is None or chance.random() < 0.5)
        ]
        rows = []
        for _ in range(chance.choice((1, 1, 2))):
            key = key_of(table, is_new=True)
            self._rows.write(table, key, "insert")
            parts = [
                text.parameter(table.column(name).kind, data)
                for name, data in zip(table.key_names, key, strict=True)
            ]
            parts += [self._written(text, column) for column in some]
            rows.append(f"({', '.join(parts)})")
        names = ", ".join((*table.key_names, *(one.name for one in some)))
        sql = f"INSERT INTO {table.name} ({names}) VALUES {', '.join(rows)}"
        return self._returning(sql, table, text)

    def _written(self, text: _Text, column: Column) -> str:
        chance = self._chance
        if column.commit_timestamp:
            google = text.dialect == GOOGLE
            return "PENDING_COMMIT_TIMESTAMP()" if google else "SPANNER.PENDING_COMMIT_TIMESTAMP()"
        if column.default is not None and chance.random() < 0.2:
            return "DEFAULT"
        if column.nullable and chance.random() < 0.15:
            return "NULL" if chance.random() < 0.5 else text.parameter(column.kind, None)
        return text.value(column.kind)

    def _assigned(self, text: _Text, table: Table, column: Column) -> str:
        same = [one.name for one in table.columns if one.kind == column.kind and one is not column]
        if same and self._chance.random() < 0.15 and not column.commit_timestamp:
            return self._chance.choice(same)
        if column.kind == Kind("STRING") and self._chance.random() < 0.2:
            return f"{column.name} || {text.parameter(column.kind, '+')}"
        return self._written(text, column)

    def _where(self, text: _Text, table: Table, key_of: Any, *, deletes: bool = False) -> str:
        """By key mostly; now and then every row, or a comparison of another column."""
        draw = self._chance.random()
        if draw < 0.05:
            if deletes:
                for key in self._rows.held(table.name):
                    self._rows.remove(table.name, key)
            return "TRUE"
        if draw < 0.25:
            return self._condition(text, table)
        key = key_of(table, is_new=False)
        if deletes:
            self._rows.remove(table.name, key)
        return " AND ".join(
            f"{name} IS NULL"
            if part is None
            else f"{name} = {text.parameter(table.column(name).kind, part)}"
            for name, part in zip(table.key_names, key, strict=True)
        )

    def _returning(self, sql: str, table: Table, text: _Text) -> Dml:
        if self._chance.random() > 0.3:
            return Dml(sql, text.parameters)
        word = "THEN RETURN" if text.dialect == GOOGLE else "RETURNING"
        names = [one.name for one in table.columns if not one.commit_timestamp]
        some = self._chance.sample(names, self._chance.randrange(1, len(names) + 1))
        return Dml(f"{sql} {word} {', '.join(some)}", text.parameters, returns=True)

    # ------------------------------------------------------------ queries

    def _condition(self, text: _Text, table: Table) -> str:
        """A condition on a column."""
        chance = self._chance
        able = [one for one in table.columns if one.kind.code not in _NOT_COMPARED[text.dialect]]
        if not able:
            return "TRUE"
        column = chance.choice(able)
        name, kind = column.name, column.kind
        draw = chance.random()
        if draw < 0.15:
            return f"{name} IS {chance.choice(('NULL', 'NOT NULL'))}"
        if draw < 0.3 and text.dialect == GOOGLE:
            return f"{name} IN UNNEST({text.value(Kind('ARRAY', element=kind))})"
        first, second = text.value(kind), text.value(kind)
        if draw < 0.4:
            return f"{name} IN ({first}, {second})"
        if draw < 0.5:
            return f"{name} BETWEEN {first} AND {second}"
        sign, joint = chance.choice(("=", "<>", "<", "<=", ">", ">=")), chance.choice(("AND", "OR"))
        return f"{name} {sign} {first} {joint} NOT ({name} = {second})"

    def query(self) -> Query:
        """A query of one of several shapes."""
        table = self._table()
        text = _Text(self._chance, self._schema)
        shapes = [self._rows_of, self._rows_of, self._grouped]
        if table.parent is not None:
            shapes += [self._joined, self._joined]
        return self._chance.choice(shapes)(table, text)

    def _tail(self, text: _Text, table: Table) -> str:
        return f" WHERE {self._condition(text, table)}" if self._chance.random() < 0.6 else ""

    def _rows_of(self, table: Table, text: _Text) -> Query:
        chance = self._chance
        names = [one.name for one in table.columns]
        some = ", ".join(chance.sample(names, chance.randrange(1, len(names) + 1)))
        what = "*" if chance.random() < 0.3 else some
        sql = f"SELECT {what} FROM {table.name}{self._tail(text, table)}"
        ordered = chance.random() < 0.6
        if ordered:
            parts = (f"{name}{chance.choice(('', ' DESC', ' ASC'))}" for name in table.key_names)
            sql += f" ORDER BY {', '.join(parts)}"
            if chance.random() < 0.5:
                sql += f" LIMIT {chance.randrange(1, 5)} OFFSET {chance.randrange(2)}"
        return Query(sql, text.parameters, is_ordered=ordered)

    def _grouped(self, table: Table, text: _Text) -> Query:
        able = [one.name for one in table.columns if one.kind.code not in _UNGROUPED]
        tail = self._tail(text, table)
        if not able or self._chance.random() < 0.3:
            sql = f"SELECT COUNT(*) AS n FROM {table.name}{tail}"
        else:
            name = self._chance.choice(able)
            having = " HAVING COUNT(*) > 1" if self._chance.random() < 0.3 else ""
            sql = f"SELECT {name}, COUNT(*) AS n FROM {table.name}{tail} GROUP BY {name}{having}"
        return Query(sql, text.parameters)

    def _joined(self, table: Table, text: _Text) -> Query:
        chance = self._chance
        parent = self._schema.tables[table.parent or ""]
        on = " AND ".join(f"a.{name} = b.{name}" for name in parent.key_names)
        names = [f"a.{one.name} AS a_{one.name}" for one in parent.columns]
        names += [f"b.{one.name} AS b_{one.name}" for one in table.columns]
        some = ", ".join(chance.sample(names, chance.randrange(1, len(names) + 1)))
        how = chance.choice(("JOIN", "LEFT JOIN"))
        sql = f"SELECT {some} FROM {parent.name} AS a {how} {table.name} AS b ON {on}"
        return Query(sql, text.parameters)
