"""Chooses SQL: DML and queries over a schema, in either dialect, with parameters and literals."""

from __future__ import annotations

from random import Random
from typing import Any

from differential.kinds import GOOGLE, POSTGRES, Kind, literal
from differential.kinds import value as choose_value
from differential.row_model import RowModel
from differential.schema import Column, Index, Schema, Table
from differential.steps import Dml, Query

_NOT_COMPARED = ("JSON", "ARRAY", "FLOAT32")
_UNGROUPED = ("JSON", "ARRAY", "FLOAT32", "FLOAT64")


class _Text:
    """SQL text under way, with the parameters that it binds."""

    def __init__(self, chance: Random, schema: Schema) -> None:
        self._chance = chance
        self.dialect = schema.dialect
        self.parameters: dict[str, tuple[Any, dict[str, Any] | None]] = {}

    def bound(self, kind: Kind, data: Any) -> str:
        """A value in the text: as a parameter, or as a literal now and then."""
        simple = kind.code not in ("FLOAT32", "FLOAT64", "ARRAY", "JSON")
        if simple and self._chance.random() < 0.25:
            return literal(kind, data, self.dialect)
        return self.parameter(kind, data)

    def parameter(self, kind: Kind, data: Any) -> str:
        number = len(self.parameters) + 1
        name = f"p{number}"
        self.parameters[name] = (data, kind.type_json(self.dialect))
        return f"@{name}" if self.dialect == GOOGLE else f"${number}"


class SqlChoice:
    """Draws statements over the schema as it is by now."""

    def __init__(self, chance: Random, schema: Schema, rows: RowModel) -> None:
        self._chance = chance
        self._schema = schema
        self._rows = rows

    # ------------------------------------------------------------ DML

    def dml(self, key_of: Any) -> Dml:
        """A statement; `key_of(table, is_new=..)` chooses a key. The row model is told."""
        table = self._chance.choice(list(self._schema.tables.values()))
        match self._chance.random():
            case draw if draw < 0.4:
                return self._insert(table, key_of)
            case draw if draw < 0.8:
                return self._update(table, key_of)
            case _:
                return self._delete(table, key_of)

    def _insert(self, table: Table, key_of: Any) -> Dml:
        chance = self._chance
        text = _Text(chance, self._schema)
        draw = chance.random()
        # An insert that updates sets what it does not name to NULL, on the emulator.
        updates = draw < 0.1
        some = [
            one
            for one in table.values
            if one.is_written
            and (updates or one.commit_timestamp or not one.nullable or chance.random() < 0.6)
            and (updates or one.default is None or chance.random() < 0.5)
        ]
        columns = [table.column(name) for name in table.key_names] + some
        rows = []
        for _ in range(chance.choice((1, 1, 2))):
            # Of inserts that deal with what is there, half should find something.
            key = key_of(table, is_new=draw >= 0.2 or chance.random() < 0.5)
            self._rows.write(table, key, "insert")
            parts = [
                text.bound(part.kind, data)
                for part, data in zip(columns[: len(key)], key, strict=True)
            ]
            parts += [self._written(text, column) for column in some]
            rows.append(f"({', '.join(parts)})")
        names = ", ".join(one.name for one in columns)
        verb, tail = "INSERT", ""
        if updates:
            verb, tail = self._conflict(table, "UPDATE", columns)
        elif draw < 0.2:
            verb, tail = self._conflict(table, "IGNORE", columns)
        sql = f"{verb} INTO {table.name} ({names}) VALUES {', '.join(rows)}{tail}"
        return self._returning(sql, table, text)

    def _conflict(self, table: Table, what: str, columns: list[Column]) -> tuple[str, str]:
        if self._schema.dialect == GOOGLE:
            return f"INSERT OR {what}", ""
        on = f" ON CONFLICT ({', '.join(table.key_names)})"
        rest = [one.name for one in columns]
        if what == "IGNORE" or not rest:
            return "INSERT", f"{on} DO NOTHING"
        sets = ", ".join(f"{name} = excluded.{name}" for name in rest)
        return "INSERT", f"{on} DO UPDATE SET {sets}"

    def _written(self, text: _Text, column: Column) -> str:
        chance = self._chance
        if column.commit_timestamp:
            google = text.dialect == GOOGLE
            return "PENDING_COMMIT_TIMESTAMP()" if google else "SPANNER.PENDING_COMMIT_TIMESTAMP()"
        if column.default is not None and chance.random() < 0.2:
            return "DEFAULT"
        if column.nullable and chance.random() < 0.15:
            return "NULL" if chance.random() < 0.5 else text.parameter(column.kind, None)
        return text.bound(column.kind, self._rows.value(chance, column, text.dialect))

    def _update(self, table: Table, key_of: Any) -> Dml:
        chance = self._chance
        text = _Text(chance, self._schema)
        able = [one for one in table.values if one.is_written]
        if not able:
            return self._delete(table, key_of)
        sets = [
            f"{column.name} = {self._assigned(text, table, column)}"
            for column in chance.sample(able, min(len(able), chance.randrange(1, 4)))
        ]
        where = self._where(text, table, key_of)
        sql = f"UPDATE {table.name} SET {', '.join(sets)} WHERE {where}"
        return self._returning(sql, table, text)

    def _assigned(self, text: _Text, table: Table, column: Column) -> str:
        same = [one.name for one in table.columns if one.kind == column.kind and one is not column]
        if same and self._chance.random() < 0.15 and not column.commit_timestamp:
            return self._chance.choice(same)
        is_text = column.kind.code == "STRING" and column.kind.length is None
        if is_text and self._chance.random() < 0.2:
            return f"{column.name} || {text.parameter(Kind('STRING'), '+')}"
        if column.kind.code == "FLOAT64" and self._chance.random() < 0.2:
            return f"{column.name} + {text.parameter(column.kind, 1.0)}"
        return self._written(text, column)

    def _delete(self, table: Table, key_of: Any) -> Dml:
        text = _Text(self._chance, self._schema)
        sql = f"DELETE FROM {table.name} WHERE {self._where(text, table, key_of, deletes=True)}"
        return self._returning(sql, table, text)

    def _where(self, text: _Text, table: Table, key_of: Any, *, deletes: bool = False) -> str:
        """By key mostly; the whole key, a prefix, or a comparison of another column."""
        chance = self._chance
        draw = chance.random()
        if draw < 0.05:
            if deletes:
                for key in self._rows.held(table.name):
                    self._rows.remove(table.name, key)
            return "TRUE"
        if draw < 0.25:
            return self.condition(text, table)
        key = key_of(table, is_new=False)
        if deletes:
            self._rows.remove(table.name, key)
        return " AND ".join(
            f"{name} IS NULL"
            if part is None
            else f"{name} = {text.bound(table.key_kind(name), part)}"
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

    def condition(self, text: _Text, table: Table) -> str:
        """A condition on one or two columns."""
        chance = self._chance
        able = [one for one in table.columns if one.kind.code not in _NOT_COMPARED]
        if text.dialect == POSTGRES and len(able) > 1:
            # The emulator ends at some comparisons of floats.
            able = [one for one in able if one.kind.code != "FLOAT64"] or able
        column = chance.choice(able)
        name, kind = column.name, column.kind
        draw = chance.random()
        if draw < 0.15:
            return f"{name} IS {chance.choice(('NULL', 'NOT NULL'))}"
        if draw < 0.3 and text.dialect == GOOGLE:
            some = [choose_value(chance, kind, text.dialect) for _ in range(3)]
            return f"{name} IN UNNEST({text.parameter(Kind('ARRAY', element=kind), some)})"
        # The emulator's PostgreSQL has no IN for these, or ends at it.
        if draw < 0.4 and (text.dialect == GOOGLE or kind.code not in ("NUMERIC", "FLOAT64")):
            some = [choose_value(chance, kind, text.dialect) for _ in range(2)]
            return f"{name} IN ({', '.join(text.bound(kind, one) for one in some)})"
        if draw < 0.5 and (text.dialect == GOOGLE or kind.code != "FLOAT64"):
            low, high = (text.bound(kind, choose_value(chance, kind, text.dialect)) for _ in "ab")
            return f"{name} BETWEEN {low} AND {high}"
        sign = chance.choice(("=", "<>", "<", "<=", ">", ">="))
        first = f"{name} {sign} {text.bound(kind, choose_value(chance, kind, text.dialect))}"
        if chance.random() < 0.2:
            return f"{first} {chance.choice(('AND', 'OR'))} {self.condition(text, table)}"
        return f"NOT ({first})" if chance.random() < 0.1 else first

    def query(self) -> Query:
        """A query of one of several shapes."""
        chance = self._chance
        table = chance.choice(list(self._schema.tables.values()))
        shapes = [self._rows_of, self._rows_of, self._counted, self._grouped, self._computed]
        if table.parent is not None:
            shapes += [self._joined, self._joined]
        if self._schema.views:
            shapes += [self._viewed]
        if self._forced_indexes(table):
            shapes += [self._by_index]
        return chance.choice(shapes)(table)

    def _tail(self, text: _Text, table: Table) -> str:
        return f" WHERE {self.condition(text, table)}" if self._chance.random() < 0.6 else ""

    def _order(self, table: Table, alias: str = "") -> str:
        parts = [
            f"{alias}{name}{self._chance.choice(('', ' DESC', ' ASC'))}" for name in table.key_names
        ]
        return f" ORDER BY {', '.join(parts)}"

    def _rows_of(self, table: Table) -> Query:
        chance = self._chance
        text = _Text(chance, self._schema)
        names = [one.name for one in table.columns]
        some = "*"
        if chance.random() < 0.7:
            some = ", ".join(chance.sample(names, chance.randrange(1, len(names) + 1)))
        sql = f"SELECT {some} FROM {table.name}{self._tail(text, table)}"
        ordered = chance.random() < 0.6
        if ordered:
            sql += self._order(table)
            if chance.random() < 0.5:
                sql += f" LIMIT {chance.randrange(1, 5)}"
                if chance.random() < 0.3:
                    sql += f" OFFSET {chance.randrange(3)}"
        return Query(sql, text.parameters, is_ordered=ordered)

    def _counted(self, table: Table) -> Query:
        text = _Text(self._chance, self._schema)
        parts = ["COUNT(*) AS n"]
        for column in table.columns:
            code = column.kind.code
            if code == "INT64":
                parts.append(f"MIN({column.name}) AS least, COUNT(DISTINCT {column.name}) AS kinds")
                break
            if code in ("STRING", "DATE", "TIMESTAMP", "NUMERIC"):
                parts.append(f"MAX({column.name}) AS greatest, COUNT({column.name}) AS held")
                break
        sql = f"SELECT {', '.join(parts)} FROM {table.name}{self._tail(text, table)}"
        return Query(sql, text.parameters, is_ordered=True)

    def _grouped(self, table: Table) -> Query:
        text = _Text(self._chance, self._schema)
        able = [one.name for one in table.columns if one.kind.code not in _UNGROUPED]
        if not able:
            return self._counted(table)
        name = self._chance.choice(able)
        tail = self._tail(text, table)
        having = " HAVING COUNT(*) > 1" if self._chance.random() < 0.3 else ""
        sql = f"SELECT {name}, COUNT(*) AS n FROM {table.name}{tail} GROUP BY {name}{having}"
        return Query(sql, text.parameters)

    def _computed(self, table: Table) -> Query:
        """Expressions over whatever columns there are."""
        chance = self._chance
        text = _Text(chance, self._schema)
        google = text.dialect == GOOGLE
        parts = []
        for number, column in enumerate(table.columns):
            name = column.name
            match column.kind.code:
                case "INT64":
                    some = [
                        f"COALESCE({name}, 0)",
                        f"CASE WHEN {name} > 1 THEN 'big' ELSE 'low' END",
                    ]
                    some += [f"MOD({name}, 7)", f"{name} IS NULL"]
                    if google:
                        some += [f"IF({name} > 3, {name}, NULL)", f"CAST({name} AS STRING)"]
                    else:
                        some += [f"{name}::text", f"CAST({name} AS character varying)"]
                case "STRING":
                    some = [f"UPPER({name})", f"LENGTH({name})", f"SUBSTR({name}, 1, 2)"]
                    some += [
                        f"COALESCE({name}, 'none')",
                        f"{name} || '-'",
                        f"{name} LIKE 'a%'",
                    ]
                    if google:
                        some += [f"STARTS_WITH({name}, 'a')", f"TO_BASE64(CAST({name} AS BYTES))"]
                case "BOOL":
                    some = [f"NOT {name}", f"COALESCE({name}, FALSE)"]
                case "FLOAT64":
                    some = [f"{name} * 2", f"ABS({name})", f"{name} IS NOT NULL"]
                case "DATE" if google:
                    some = [f"EXTRACT(YEAR FROM {name})", f"DATE_TRUNC({name}, MONTH)"]
                case "TIMESTAMP" if google:
                    some = [
                        f"EXTRACT(YEAR FROM {name} AT TIME ZONE 'UTC')",
                        f"UNIX_SECONDS({name})",
                    ]
                case "ARRAY" if google:
                    some = [f"ARRAY_LENGTH({name})", f"ARRAY(SELECT x FROM UNNEST({name}) AS x)"]
                case "JSON" if google:
                    some = [f"TO_JSON_STRING({name})", f"JSON_VALUE({name}, '$.z')"]
                case "NUMERIC":
                    some = [f"COALESCE({name}, {literal(Kind('NUMERIC'), '2.5', text.dialect)})"]
                case _:
                    some = [f"{name} IS NULL"]
            parts.append(f"{chance.choice(some)} AS e{number}")
        sql = f"SELECT {', '.join(parts)} FROM {table.name}{self._tail(text, table)}"
        return Query(sql, text.parameters)

    def _joined(self, table: Table) -> Query:
        chance = self._chance
        text = _Text(chance, self._schema)
        parent = self._schema.tables[table.parent or ""]
        on = " AND ".join(f"a.{name} = b.{name}" for name in parent.key_names)
        how = chance.choice(("JOIN", "LEFT JOIN"))
        left, right = (parent, table) if how == "LEFT JOIN" else (table, parent)
        names = [f"a.{one.name} AS a_{one.name}" for one in left.columns]
        names += [f"b.{one.name} AS b_{one.name}" for one in right.columns]
        some = ", ".join(chance.sample(names, chance.randrange(1, len(names) + 1)))
        sql = f"SELECT {some} FROM {left.name} AS a {how} {right.name} AS b ON {on}"
        if chance.random() < 0.3:
            key = parent.key_names[0]
            sql = (
                f"SELECT {parent.key_names[0]} FROM {parent.name} AS a WHERE EXISTS "
                f"(SELECT 1 FROM {table.name} AS b WHERE b.{key} = a.{key})"
            )
        return Query(sql, text.parameters)

    def _viewed(self, _: Table) -> Query:
        view = self._chance.choice(list(self._schema.views.values()))
        text = _Text(self._chance, self._schema)
        return Query(f"SELECT * FROM {view.name}", text.parameters)

    def _by_index(self, table: Table) -> Query:
        chance = self._chance
        text = _Text(chance, self._schema)
        index = chance.choice(self._forced_indexes(table))
        hint = f"@{{FORCE_INDEX={index.name}}}"
        if text.dialect == POSTGRES:
            hint = f" /*@ FORCE_INDEX={index.name} */"
        some = ", ".join(index.readable(table))
        return Query(f"SELECT {some} FROM {table.name}{hint}", text.parameters)

    def _forced_indexes(self, table: Table) -> list[Index]:
        # Of a null-filtered one the emulator cannot tell whether it answers a query.
        return [one for one in self._schema.read_indexes(table.name) if not one.null_filtered]
