"""CREATE TABLE and ALTER TABLE of PostgreSQL: text to statements."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import NoReturn

from spanner_simulator.core.schema import statements as ddl
from spanner_simulator.core.schema.constraint_ddl import (
    constraint,
    foreign_key_target,
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
from spanner_simulator.core.schema.postgres_types import column_type
from spanner_simulator.errors import Code, SpannerError

_COLUMN_CLAUSES = (
    "NOT",
    "NULL",
    "PRIMARY",
    "CONSTRAINT",
    "CHECK",
    "REFERENCES",
    "UNIQUE",
    "GENERATED",
    "DEFAULT",
    "COLLATE",
)
_INTERVAL_DIGITS_MAX = 9
_UNIQUE = "<UNIQUE> constraint is not supported, create a unique index instead."
_KEY_NAME = "Setting a name of a <PRIMARY KEY> constraint is not supported."


def _refuse(message: str) -> NoReturn:
    raise SpannerError(Code.FAILED_PRECONDITION, message)


@dataclass(slots=True)
class _Parts:
    """What stands between the brackets of CREATE TABLE, or in ADD COLUMN."""

    columns: list[ddl.ColumnDefinition] = field(default_factory=list)
    keys: list[tuple[str, ...]] = field(default_factory=list)
    foreign_keys: list[ForeignKey] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)

    def add(self, found: ForeignKey | Check) -> None:
        if isinstance(found, Check):
            self.checks.append(found)
        else:
            self.foreign_keys.append(found)


def create_table(words: DdlWords) -> ddl.CreateTable:
    """CREATE TABLE, after those words."""
    if_not_exists = words.accept("IF", "NOT", "EXISTS")
    name = words.object_name()
    if words.peek().is_keyword("AS"):
        raise unsupported("CREATE TABLE AS")
    words.expect_symbol("(")
    parts = _Parts()
    while not words.peek().is_symbol(")"):
        _element(words, parts)
        if not words.accept_symbol(","):
            break
    words.expect_symbol(")")
    interleave = _interleave(words) if words.accept("INTERLEAVE", "IN") else None
    policy = _time_to_live(words) if words.accept("TTL") else None
    if not parts.keys:
        _refuse(f'Primary key must be defined for table "{name}".')
    if len(parts.keys) > 1:
        words.reject(f'multiple primary keys for table "{name}" are not allowed')
    key = {part.lower() for part in parts.keys[0]}
    return ddl.CreateTable(
        name,
        tuple(
            replace(column, is_nullable=column.is_nullable and column.name.lower() not in key)
            for column in parts.columns
        ),
        tuple(ddl.KeyColumn(part) for part in parts.keys[0]),
        if_not_exists,
        interleave,
        policy,
        tuple(parts.foreign_keys),
        tuple(parts.checks),
    )


def _element(words: DdlWords, parts: _Parts) -> None:
    if words.accept("PRIMARY", "KEY"):
        parts.keys.append(words.names_in_brackets())
    elif words.peek().is_keyword("UNIQUE") and words.peek(1).is_symbol("("):
        _refuse(_UNIQUE)
    elif words.peek().is_keyword("LIKE", "EXCLUDE"):
        raise unsupported(f"{words.peek().text.upper()} in CREATE TABLE")
    elif starts_constraint(words):
        parts.add(_constraint(words))
    else:
        _column(words, parts)


def _constraint(words: DdlWords) -> ForeignKey | Check:
    label = words.name() if words.accept("CONSTRAINT") else None
    if words.peek().is_keyword("PRIMARY"):
        _refuse(_KEY_NAME)
    if words.peek().is_keyword("UNIQUE"):
        _refuse(_UNIQUE)
    return constraint(words, label)


def _column(words: DdlWords, parts: _Parts) -> None:
    name = words.name()
    value_type, commit_timestamp = column_type(words)
    column = ddl.ColumnDefinition(name, value_type, commit_timestamp=commit_timestamp)
    while words.peek().is_keyword(*_COLUMN_CLAUSES):
        label = words.name() if words.accept("CONSTRAINT") else None
        if words.accept("NOT", "NULL"):
            column = replace(column, is_nullable=False)
        elif words.accept("NULL"):
            pass
        elif words.accept("PRIMARY", "KEY"):
            if label is not None:
                _refuse(_KEY_NAME)
            parts.keys.append((name,))
        elif words.accept("DEFAULT"):
            column = replace(column, default=words.expression_until(*_COLUMN_CLAUSES))
        elif words.accept("GENERATED"):
            column = _generated(words, column)
        elif words.peek().is_keyword("CHECK"):
            parts.add(constraint(words, label))
        elif words.peek().is_keyword("REFERENCES"):
            parts.add(foreign_key_target(words, label, (name,)))
        elif words.peek().is_keyword("UNIQUE"):
            _refuse(_UNIQUE)
        elif words.peek().is_keyword("COLLATE"):
            raise unsupported(f"COLLATE of column {name}")
        else:
            words.encountered("column constraint")
    parts.columns.append(column)


def _generated(words: DdlWords, column: ddl.ColumnDefinition) -> ddl.ColumnDefinition:
    if words.accept("BY"):
        raise unsupported(f"GENERATED BY DEFAULT AS IDENTITY of column {column.name}")
    words.expect("ALWAYS", "AS")
    generated = words.expression_in_brackets()
    is_stored = words.accept("STORED")
    if not is_stored:
        words.expect("VIRTUAL")
    return replace(column, generated=generated, is_stored=is_stored)


def _interleave(words: DdlWords) -> Interleave:
    if not words.accept("PARENT"):
        return Interleave(words.object_name(), in_parent=False)
    parent = words.object_name()
    if words.accept("ON"):
        words.expect("DELETE")
        return Interleave(parent, on_delete=on_delete(words))
    return Interleave(parent)


def _time_to_live(words: DdlWords) -> RowDeletionPolicy:
    words.expect("INTERVAL")
    interval = words.text("interval")
    words.expect("ON")
    found = re.fullmatch(r"\s*([+-]?[0-9]+)\s*(days?|weeks?)\s*", interval, re.IGNORECASE)
    if found is None:
        raise SpannerError(Code.INVALID_ARGUMENT, "TTL interval must be a whole number of days")
    if len(found[1]) > _INTERVAL_DIGITS_MAX:
        raise SpannerError(
            Code.INVALID_ARGUMENT, f'interval field value out of range: "{interval}"'
        )
    days = int(found[1]) * (7 if found[2].lower().startswith("week") else 1)
    if days < 0:
        _refuse("TTL interval must be greater than or equal to zero")
    return RowDeletionPolicy(words.name(), days)


# -- ALTER TABLE


def alter_table(words: DdlWords) -> ddl.Statement:
    """ALTER TABLE, after those words."""
    if words.accept("IF", "EXISTS"):
        _refuse("<IF [NOT] EXISTS> is not supported in <ALTER> statement operations.")
    table = words.object_name()
    statement = _action(words, table)
    if words.peek().is_symbol(","):
        _refuse(
            "For the provided action type of the <ALTER TABLE> statement only single action per "
            "statement is allowed."
        )
    return statement


def _action(words: DdlWords, table: str) -> ddl.Statement:
    if words.accept("ADD"):
        return _add(words, table)
    if words.accept("DROP"):
        return _drop(words, table)
    if words.accept("ALTER", "TTL"):
        return ddl.SetRowDeletion(table, "REPLACE", _time_to_live(words))
    if words.accept("ALTER"):
        words.accept("COLUMN")
        return _alter_column(words, table)
    if words.accept("SET", "ON"):
        words.expect("DELETE")
        return ddl.SetOnDelete(table, on_delete(words))
    for refused in (("SET", "INTERLEAVE"), ("RENAME",), ("SET", "SCHEMA"), ("OWNER",)):
        if words.accept(*refused):
            raise unsupported(f"ALTER TABLE {' '.join(refused)}")
    return words.encountered("alter_table_statement")


def _add(words: DdlWords, table: str) -> ddl.Statement:
    if words.accept("TTL"):
        return ddl.SetRowDeletion(table, "ADD", _time_to_live(words))
    if words.peek().is_keyword("UNIQUE") or words.peek().is_keyword("PRIMARY"):
        _refuse(_UNIQUE if words.peek().is_keyword("UNIQUE") else _KEY_NAME)
    if starts_constraint(words):
        return ddl.AddConstraint(table, _constraint(words))
    if words.peek().is_keyword("SYNONYM"):
        raise unsupported("ALTER TABLE ADD SYNONYM")
    words.accept("COLUMN")
    if_not_exists = words.accept("IF", "NOT", "EXISTS")
    parts = _Parts()
    _column(words, parts)
    if parts.checks:
        _refuse("Check constraint creation is not supported in <ALTER TABLE ADD COLUMN> statement")
    if parts.foreign_keys:
        _refuse("Foreign key creation is not supported in <ALTER TABLE ADD COLUMN> statement.")
    if parts.keys:
        _refuse("Primary key creation is not supported in <ALTER TABLE ADD COLUMN> statement.")
    return ddl.AddColumn(table, parts.columns[0], if_not_exists)


def _drop(words: DdlWords, table: str) -> ddl.Statement:
    if words.accept("TTL"):
        return ddl.SetRowDeletion(table, "DROP")
    is_constraint = words.accept("CONSTRAINT")
    if not is_constraint:
        words.accept("COLUMN")
    if words.accept("IF", "EXISTS"):
        _refuse("<IF [NOT] EXISTS> is not supported in <ALTER> statement operations.")
    name = words.name()
    if words.peek().is_keyword("CASCADE"):
        _refuse("Only <RESTRICT> behavior is supported by <DROP> statement.")
    words.accept("RESTRICT")
    return ddl.DropConstraint(table, name) if is_constraint else ddl.DropColumn(table, name)


def _alter_column(words: DdlWords, table: str) -> ddl.Statement:
    name = words.name()
    if words.accept("TYPE") or words.accept("SET", "DATA", "TYPE"):
        value_type, commit_timestamp = column_type(words)
        if commit_timestamp:
            raise unsupported("ALTER COLUMN TYPE spanner.commit_timestamp")
        if words.accept("USING"):
            _refuse("<USING> clause is not supported in <ALTER TABLE ALTER COLUMN TYPE> statement")
        return ddl.AlterColumnType(table, name, value_type)
    if words.accept("SET", "NOT", "NULL"):
        return ddl.SetColumnNullable(table, name, is_nullable=False)
    if words.accept("DROP", "NOT", "NULL"):
        return ddl.SetColumnNullable(table, name, is_nullable=True)
    if words.accept("SET", "DEFAULT"):
        return ddl.SetColumnDefault(table, name, words.expression_until())
    if words.accept("DROP", "DEFAULT"):
        return ddl.SetColumnDefault(table, name, None)
    return _refuse("Operation is not supported in <ALTER TABLE> statement.")
