"""CREATE TABLE and ALTER TABLE of GoogleSQL: text to statements."""

from __future__ import annotations

from dataclasses import dataclass, replace

from spanner_simulator.core.schema import statements as ddl
from spanner_simulator.core.schema.constraint_ddl import (
    constraint,
    on_delete,
    starts_constraint,
)
from spanner_simulator.core.schema.ddl_words import DdlWords, unsupported
from spanner_simulator.core.schema.definitions import (
    Check,
    ForeignKey,
    Interleave,
    RowDeletionPolicy,
)
from spanner_simulator.core.schema.proto_ddl import type_path
from spanner_simulator.core.values import TypeCode, ValueType
from spanner_simulator.errors import Code, SpannerError

_SCALARS: dict[str, TypeCode] = {
    "BOOL": "BOOL",
    "INT64": "INT64",
    "FLOAT32": "FLOAT32",
    "FLOAT64": "FLOAT64",
    "NUMERIC": "NUMERIC",
    "DATE": "DATE",
    "TIMESTAMP": "TIMESTAMP",
    "JSON": "JSON",
    "UUID": "UUID",
    "INTERVAL": "INTERVAL",
}
_REFUSED_TYPES = ("STRUCT", "TOKENLIST", "GEOGRAPHY")


@dataclass(slots=True)
class _Parts:
    """What stands between the brackets of CREATE TABLE."""

    columns: list[ddl.ColumnDefinition]
    inline_key: list[str]
    foreign_keys: list[ForeignKey]
    checks: list[Check]

    def add_constraint(self, found: ForeignKey | Check) -> None:
        if isinstance(found, Check):
            self.checks.append(found)
        else:
            self.foreign_keys.append(found)


def create_table(words: DdlWords) -> ddl.CreateTable:
    """CREATE TABLE, after those words."""
    if_not_exists = words.accept("IF", "NOT", "EXISTS")
    name = words.object_name()
    words.expect_symbol("(")
    parts = _Parts([], [], [], [])
    key: tuple[ddl.KeyColumn, ...] | None = None
    while words.starts_name():
        if key is None and words.accept("PRIMARY", "KEY"):
            key = key_columns(words)
        elif words.peek().is_keyword("SYNONYM") and words.peek(1).is_symbol("("):
            raise unsupported("SYNONYM in CREATE TABLE")
        elif starts_constraint(words):
            label = words.name() if words.accept("CONSTRAINT") else None
            parts.add_constraint(constraint(words, label))
        else:
            _column_of_table(words, parts)
        if not words.accept_symbol(","):
            break
    words.expect_symbol(")")
    if key is None and words.accept("PRIMARY", "KEY"):
        key = key_columns(words)
    key = _one_key(words, key, parts.inline_key)
    statement = ddl.CreateTable(
        name,
        tuple(parts.columns),
        key,
        if_not_exists,
        foreign_keys=tuple(parts.foreign_keys),
        checks=tuple(parts.checks),
    )
    return _table_clauses(words, statement)


def _column_of_table(words: DdlWords, parts: _Parts) -> None:
    column, is_key, _ = _column(words)
    parts.columns.append(column)
    if is_key:
        parts.inline_key.append(column.name)


def _one_key(
    words: DdlWords, key: tuple[ddl.KeyColumn, ...] | None, inline: list[str]
) -> tuple[ddl.KeyColumn, ...]:
    if len(inline) > 1:
        words.reject("Multiple columns declared as PRIMARY KEY")
    if key is None:
        if not inline:
            words.reject("Must specify either table or column PRIMARY KEY")
        return (ddl.KeyColumn(inline[0]),)
    if inline:
        words.reject("Cannot specify both table and column PRIMARY KEY")
    return key


def _table_clauses(words: DdlWords, statement: ddl.CreateTable) -> ddl.CreateTable:
    while words.accept_symbol(","):
        if statement.interleave is None and words.accept("INTERLEAVE", "IN"):
            statement = replace(statement, interleave=_interleave(words))
        elif statement.row_deletion is None and words.accept("ROW", "DELETION", "POLICY"):
            statement = replace(statement, row_deletion=_policy(words))
        elif words.peek().is_keyword("OPTIONS"):
            raise unsupported("OPTIONS of CREATE TABLE")
        elif statement.interleave is None:
            words.expect("INTERLEAVE")
        else:
            words.encountered("table_clause")
    return statement


def _interleave(words: DdlWords) -> Interleave:
    if not words.accept("PARENT"):
        return Interleave(words.object_name(), in_parent=False)
    parent = words.object_name()
    if words.accept("ON"):
        words.expect("DELETE")
        return Interleave(parent, on_delete=on_delete(words))
    return Interleave(parent)


def _policy(words: DdlWords) -> RowDeletionPolicy:
    words.expect_symbol("(")
    words.expect("OLDER_THAN")
    words.expect_symbol("(")
    column = words.name()
    words.expect_symbol(",")
    words.expect("INTERVAL")
    days = words.integer()
    words.expect("DAY")
    words.expect_symbol(")")
    words.expect_symbol(")")
    return RowDeletionPolicy(column, days)


def key_columns(words: DdlWords) -> tuple[ddl.KeyColumn, ...]:
    """Key parts in round brackets, possibly empty."""
    words.expect_symbol("(")
    key: list[ddl.KeyColumn] = []
    if words.accept_symbol(")"):
        return ()
    while True:
        name = words.name()
        descending = words.accept("DESC")
        if not descending:
            words.accept("ASC")
        key.append(ddl.KeyColumn(name, descending))
        if not words.accept_symbol(","):
            break
    words.expect_symbol(")")
    return tuple(key)


def _column(words: DdlWords) -> tuple[ddl.ColumnDefinition, bool, bool]:
    """A column, whether it is the key, and whether it has OPTIONS."""
    column = ddl.ColumnDefinition(words.name("column name"), _type(words))
    is_key = has_options = False
    if words.accept("NOT", "NULL"):
        column = replace(column, is_nullable=False)
    if words.accept("DEFAULT"):
        column = replace(column, default=words.expression_in_brackets())
    elif words.accept("AS"):
        generated = words.expression_in_brackets()
        column = replace(column, generated=generated, is_stored=words.accept("STORED"))
    elif words.peek().is_keyword("GENERATED", "AUTO_INCREMENT"):
        raise unsupported(f"{words.peek().text.upper()} of column {column.name}")
    if words.peek().is_keyword("HIDDEN", "PLACEMENT"):
        raise unsupported(f"{words.peek().text.upper()} of column {column.name}")
    if words.accept("PRIMARY", "KEY"):
        is_key = True
    if words.accept("OPTIONS"):
        column = replace(column, commit_timestamp=_commit_timestamp(words))
        has_options = True
    if words.accept("PRIMARY", "KEY"):
        is_key = True
    return column, is_key, has_options


def _commit_timestamp(words: DdlWords) -> bool:
    words.expect_symbol("(")
    value = False
    seen: set[str] = set()
    while True:
        name = words.name()
        words.expect_symbol("=")
        if name.lower() != "allow_commit_timestamp":
            words.reject(f"Option: {name} is unknown.")
        if name.lower() in seen:
            words.reject(f"Duplicate option: {name}")
        seen.add(name.lower())
        if words.accept("TRUE"):
            value = True
        elif not (words.accept("FALSE") or words.accept("NULL")):
            words.reject(
                f"Unexpected value for option: {name}. "
                "Supported option values are true, false, and null."
            )
        if not words.accept_symbol(","):
            break
    words.expect_symbol(")")
    return value


def _type(words: DdlWords) -> ValueType:
    word = words.peek()
    name = word.text.upper() if word.kind == "name" else ""
    is_path = words.peek(1).is_symbol(".")
    if name == "ARRAY":
        words.take()
        return _array(words)
    if name in ("STRING", "BYTES") and not is_path:
        words.take()
        return ValueType("STRING" if name == "STRING" else "BYTES", None, _length(words))
    code = _SCALARS.get(name)
    if code is not None and not is_path:
        words.take()
        return ValueType(code)
    if name in _REFUSED_TYPES and not is_path:
        raise unsupported(f"type {word.text}")
    if not words.starts_name():
        words.encountered("column_type")
    # A message or an enum: the catalogue knows which, and whether there is one of that name.
    return ValueType("PROTO", proto_name=type_path(words))


def _array(words: DdlWords) -> ValueType:
    words.expect_symbol("<")
    element = _type(words)
    words.expect_symbol(">")
    if element.code == "ARRAY":
        raise SpannerError(
            Code.INVALID_ARGUMENT, "Array of arrays type is not supported by the schema."
        )
    if words.peek().is_symbol("("):
        raise unsupported("vector_length of an ARRAY column")
    return ValueType("ARRAY", element)


def _length(words: DdlWords) -> int | None:
    words.expect_symbol("(")
    length = None if words.accept("MAX") else words.integer()
    words.expect_symbol(")")
    return length


# -- ALTER TABLE


def alter_table(words: DdlWords) -> ddl.Statement:
    """ALTER TABLE, after those words."""
    table = words.object_name()
    if words.accept("ADD"):
        return _add(words, table)
    if words.accept("DROP"):
        return _drop(words, table)
    if words.accept("REPLACE"):
        words.expect("ROW", "DELETION", "POLICY")
        return ddl.SetRowDeletion(table, "REPLACE", _policy(words))
    if words.accept("SET", "ON"):
        words.expect("DELETE")
        return ddl.SetOnDelete(table, on_delete(words))
    if words.accept("ALTER"):
        words.accept("COLUMN")
        return _alter_column(words, table)
    for refused in (("SET", "INTERLEAVE"), ("RENAME",), ("SET", "OPTIONS")):
        if words.accept(*refused):
            raise unsupported(f"ALTER TABLE {' '.join(refused)}")
    return words.encountered("alter_table_statement")


def _add(words: DdlWords, table: str) -> ddl.Statement:
    if words.accept("ROW", "DELETION", "POLICY"):
        return ddl.SetRowDeletion(table, "ADD", _policy(words))
    if words.peek().is_keyword("SYNONYM"):
        raise unsupported("ALTER TABLE ADD SYNONYM")
    if starts_constraint(words):
        label = words.name() if words.accept("CONSTRAINT") else None
        return ddl.AddConstraint(table, constraint(words, label))
    words.accept("COLUMN")
    if_not_exists = words.accept("IF", "NOT", "EXISTS")
    column, is_key, _ = _column(words)
    if is_key:
        words.reject("Unexpected PRIMARY KEY clause")
    return ddl.AddColumn(table, column, if_not_exists)


def _drop(words: DdlWords, table: str) -> ddl.Statement:
    if words.accept("ROW", "DELETION", "POLICY"):
        return ddl.SetRowDeletion(table, "DROP")
    if words.accept("CONSTRAINT"):
        return ddl.DropConstraint(table, words.name())
    if words.peek().is_keyword("SYNONYM"):
        raise unsupported("ALTER TABLE DROP SYNONYM")
    words.accept("COLUMN")
    return ddl.DropColumn(table, words.name())


def _alter_column(words: DdlWords, table: str) -> ddl.Statement:
    if words.peek(1).is_keyword("SET", "DROP"):
        name = words.name()
        if words.accept("SET", "DEFAULT"):
            return ddl.SetColumnDefault(table, name, words.expression_in_brackets())
        if words.accept("DROP", "DEFAULT"):
            return ddl.SetColumnDefault(table, name, None)
        if words.accept("SET", "OPTIONS"):
            return ddl.SetColumnOptions(table, name, _commit_timestamp(words))
        if words.accept("SET", "NOT", "NULL"):
            words.reject("ALTER COLUMN SET NOT NULL not supported without a column type")
        if words.accept("DROP", "NOT", "NULL"):
            words.reject("ALTER COLUMN DROP NOT NULL not supported without a column type")
        if words.peek(1).is_keyword("ON", "GENERATED"):
            raise unsupported(f"ALTER COLUMN {words.peek().text} {words.peek(1).text}")
        words.encountered("alter_table_statement")
    column, is_key, has_options = _column(words)
    if is_key:
        words.reject("Unexpected PRIMARY KEY clause")
    return ddl.ReplaceColumn(table, column, has_options)
