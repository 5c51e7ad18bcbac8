"""CREATE TABLE and ALTER TABLE of both dialects: text to statements."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from spanner_simulator.core.schema import statements as ddl
from spanner_simulator.core.schema.ddl_words import DdlWords
from spanner_simulator.core.schema.type_ddl import google_type, postgres_type
from spanner_simulator.core.values import ValueType
from spanner_simulator.errors import failed_precondition, invalid_argument, unsupported

# The primary key of a table without one.
_ROWID: Final = ddl.ColumnDefinition(
    "rowid", ValueType("INT64"), is_nullable=False, identity=ddl.Identity(), is_hidden=True
)
_INTERVAL_DIGITS_MAX: Final = 9
_COLUMN_CLAUSES: Final = (
    "NOT", "NULL", "PRIMARY", "CONSTRAINT", "CHECK", "REFERENCES", "UNIQUE", "GENERATED",
    "DEFAULT", "COLLATE", "VECTOR", "ON", "HIDDEN",
)  # fmt: skip


@dataclass(slots=True)
class _Parts:
    """The parts between the brackets of CREATE TABLE, or in ADD COLUMN."""

    columns: list[ddl.ColumnDefinition] = field(default_factory=list)
    keys: list[tuple[ddl.KeyColumn, ...]] = field(default_factory=list)
    checks: list[ddl.Check] = field(default_factory=list)


def create_table(words: DdlWords) -> ddl.CreateTable:
    """CREATE TABLE, after those words."""
    is_google = words.dialect == "GOOGLE_STANDARD_SQL"
    if_not_exists = words.accept("IF", "NOT", "EXISTS")
    name = words.object_name()
    words.expect_symbol("(")
    parts = _Parts()
    while not words.peek().is_symbol(")"):
        if words.accept("PRIMARY", "KEY"):
            parts.keys.append(key_columns(words) if is_google else _postgres_key(words))
        elif _starts_constraint(words):
            parts.checks.append(_check(words))
        elif is_google:
            _google_column(words, parts)
        else:
            _postgres_column(words, parts)
        if not words.accept_symbol(","):
            break
    words.expect_symbol(")")
    if is_google and words.accept("PRIMARY", "KEY"):
        parts.keys.append(key_columns(words))
    if not parts.keys:
        parts.columns.append(_ROWID)
        parts.keys.append((ddl.KeyColumn(_ROWID.name),))
    if len(parts.keys) > 1:
        words.reject(f'multiple primary keys for table "{name}" are not allowed')
    (key,) = parts.keys
    columns = tuple(parts.columns)
    if not is_google:
        names = {part.name.lower() for part in key}
        columns = tuple(
            replace(column, is_nullable=column.is_nullable and column.name.lower() not in names)
            for column in columns
        )
    statement = ddl.CreateTable(name, columns, key, if_not_exists, checks=tuple(parts.checks))
    return _google_clauses(words, statement) if is_google else _postgres_clauses(words, statement)


def _google_clauses(words: DdlWords, statement: ddl.CreateTable) -> ddl.CreateTable:
    while words.accept_symbol(","):
        if words.peek().is_keyword("OPTIONS"):
            raise unsupported("OPTIONS of CREATE TABLE")
        if statement.row_deletion is None and words.accept("ROW", "DELETION", "POLICY"):
            statement = replace(statement, row_deletion=_policy(words))
        else:
            words.expect("INTERLEAVE", "IN")
            statement = replace(statement, interleave=_interleave(words))
    return statement


def _postgres_clauses(words: DdlWords, statement: ddl.CreateTable) -> ddl.CreateTable:
    if words.accept("INTERLEAVE", "IN"):
        statement = replace(statement, interleave=_interleave(words))
    if words.accept("TTL"):
        statement = replace(statement, row_deletion=_time_to_live(words))
    return statement


def _interleave(words: DdlWords) -> ddl.Interleave:
    if not words.accept("PARENT"):
        raise unsupported("INTERLEAVE IN without PARENT")
    parent = words.object_name()
    action: ddl.OnDelete = "NO ACTION"
    if words.accept("ON", "DELETE"):
        if words.accept("CASCADE"):
            action = "CASCADE"
        else:
            words.expect("NO", "ACTION")
    return ddl.Interleave(parent, action)


def _policy(words: DdlWords) -> ddl.RowDeletionPolicy:
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
    return ddl.RowDeletionPolicy(column, days)


def _time_to_live(words: DdlWords) -> ddl.RowDeletionPolicy:
    words.expect("INTERVAL")
    interval = words.text("interval")
    words.expect("ON")
    match = re.fullmatch(r"\s*([0-9]+)\s*(days?|weeks?)\s*", interval, re.IGNORECASE)
    if match is None:
        raise invalid_argument("TTL interval must be a whole number of days")
    if len(match[1]) > _INTERVAL_DIGITS_MAX:
        raise invalid_argument(f'interval field value out of range: "{interval}"')
    days = int(match[1]) * (7 if match[2].lower().startswith("week") else 1)
    return ddl.RowDeletionPolicy(words.name(), days)


def _postgres_key(words: DdlWords) -> tuple[ddl.KeyColumn, ...]:
    return tuple(ddl.KeyColumn(name) for name in words.names_in_brackets())


def key_columns(words: DdlWords, *, null_is_greatest: bool = False) -> tuple[ddl.KeyColumn, ...]:
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
        if words.peek().is_keyword("NULLS"):
            raise unsupported("NULLS FIRST and NULLS LAST")
        key.append(ddl.KeyColumn(name, descending, null_is_greatest))
        if not words.accept_symbol(","):
            break
    words.expect_symbol(")")
    return tuple(key)


# -- constraints


def _starts_constraint(words: DdlWords) -> bool:
    """Whether a table constraint is next, rather than a column of such a name."""
    first, second = words.peek(), words.peek(1)
    if first.is_keyword("CONSTRAINT"):
        return words.peek(2).is_keyword("FOREIGN", "CHECK", "PRIMARY", "UNIQUE", "EXCLUDE")
    if first.is_keyword("FOREIGN"):
        return second.is_keyword("KEY")
    return first.is_keyword("CHECK", "UNIQUE", "SYNONYM") and second.is_symbol("(")


def _check(words: DdlWords) -> ddl.Check:
    label = words.name() if words.accept("CONSTRAINT") else None
    if words.accept("CHECK"):
        return ddl.Check(label or "", words.expression_in_brackets(), label is not None)
    if words.peek().is_keyword("UNIQUE"):
        raise failed_precondition(
            "<UNIQUE> constraint is not supported, create a unique index instead."
        )
    if words.peek().is_keyword("FOREIGN", "REFERENCES"):
        raise unsupported("FOREIGN KEY")
    raise unsupported(f"the constraint {words.peek().text.upper()}")


# -- columns


def _google_column(words: DdlWords, parts: _Parts) -> bool:
    """Read a column; return it, and whether it has OPTIONS."""
    column = ddl.ColumnDefinition(words.name("column name"), google_type(words))
    size = column.value_type.vector_length
    if size is not None and size < 0:
        words.reject(f"Invalid length for column: {column.name}, found: {size}")
    has_options = False
    if words.accept("NOT", "NULL"):
        column = replace(column, is_nullable=False)
    if words.accept("AS"):
        generated = words.expression_in_brackets()
        column = replace(column, generated=generated, is_stored=words.accept("STORED"))
    elif words.accept("GENERATED"):
        words.expect("BY", "DEFAULT", "AS", "IDENTITY")
        column = replace(column, identity=_identity(words, column.name))
    for _ in range(0 if column.generated or column.identity else 2):
        if column.default is None and words.accept("DEFAULT"):
            column = replace(column, default=words.expression_in_brackets())
        elif column.on_update is None and words.accept("ON", "UPDATE"):
            column = replace(column, on_update=words.expression_in_brackets())
    if words.peek().is_keyword("AUTO_INCREMENT", "PLACEMENT"):
        raise unsupported(f"{words.peek().text.upper()} of column {column.name}")
    column = replace(column, is_hidden=words.accept("HIDDEN"))
    is_key = words.accept("PRIMARY", "KEY")
    if words.accept("OPTIONS"):
        column = replace(column, commit_timestamp=_commit_timestamp(words))
        has_options = True
    if is_key or words.accept("PRIMARY", "KEY"):
        parts.keys.append((ddl.KeyColumn(column.name),))
    parts.columns.append(column)
    return has_options


def _identity(words: DdlWords, column: str) -> ddl.Identity:
    """The options of an identity column, in brackets."""
    options: dict[str, Any] = {}
    value: Any
    is_open = words.accept_symbol("(")
    while is_open and not (options and words.peek().is_symbol(")")):
        if words.accept("BIT_REVERSED_POSITIVE"):
            option, value = "The sequence kind", None
        elif words.accept("SKIP"):
            option, value = "SKIP RANGE", _skip_range(words)
        elif words.dialect == "POSTGRESQL" and words.accept("NO"):
            option, value = f"NO {words.name()}", None
        elif not words.accept("START"):
            words.encountered("sequence_param")
        else:
            option, value = "START WITH COUNTER", _count(words)
        if option in options:
            words.reject(f"{option} is set more than once.")
        options[option] = value
    if is_open:
        words.expect_symbol(")")
    if "The sequence kind" not in options:
        raise invalid_argument(
            f"The sequence kind of an identity column {column} is not specified. Please specify "
            "the sequence kind explicitly or set the database option `default_sequence_kind`."
        )
    return ddl.Identity(options.get("START WITH COUNTER"), options.get("SKIP RANGE"))


def _skip_range(words: DdlWords) -> tuple[int, int]:
    words.expect("RANGE")
    low = words.integer()
    if words.dialect == "GOOGLE_STANDARD_SQL":
        words.expect_symbol(",")
    return low, words.integer()


def _count(words: DdlWords) -> int:
    words.expect("COUNTER")
    if not words.accept("WITH") and words.dialect == "GOOGLE_STANDARD_SQL":
        words.expect("WITH")
    return words.integer()


def _alter_identity(words: DdlWords, table: str, column: str) -> ddl.AlterColumn:
    """The words after ALTER IDENTITY, or in PostgreSQL after the column."""
    change: dict[str, Any] = {"skip": None}
    if words.accept("RESTART"):
        change = {"start": _count(words)}
    elif words.accept("SET", "NO"):
        words.expect("SKIP", "RANGE")
    else:
        words.expect("SET", "SKIP")
        change = {"skip": _skip_range(words)}
    return ddl.AlterColumn(table, column, {"identity": change})


def _commit_timestamp(words: DdlWords) -> bool:
    words.expect_symbol("(")
    name = words.name()
    words.expect_symbol("=")
    if name.lower() != "allow_commit_timestamp":
        words.reject(f"Option: {name} is unknown.")
    value = words.accept("TRUE")
    if not (value or words.accept("FALSE") or words.accept("NULL")):
        words.reject(
            f"Unexpected value for option: {name}. "
            "Supported option values are true, false, and null."
        )
    words.expect_symbol(")")
    return value


def _postgres_column(words: DdlWords, parts: _Parts) -> None:
    name = words.name()
    value_type, commit_timestamp = postgres_type(words)
    column = ddl.ColumnDefinition(name, value_type, commit_timestamp=commit_timestamp)
    while words.peek().is_keyword(*_COLUMN_CLAUSES):
        if words.accept("NOT", "NULL"):
            column = replace(column, is_nullable=False)
        elif words.accept("NULL"):
            pass
        elif words.accept("PRIMARY", "KEY"):
            parts.keys.append((ddl.KeyColumn(name),))
        elif words.accept("DEFAULT"):
            column = replace(column, default=words.expression_until(*_COLUMN_CLAUSES))
        elif words.accept("ON"):
            words.expect("UPDATE")
            column = replace(column, on_update=words.expression_until(*_COLUMN_CLAUSES))
        elif words.accept("HIDDEN"):
            column = replace(column, is_hidden=True)
        elif words.accept("GENERATED"):
            column = _generated(words, column)
        elif words.accept("VECTOR"):
            words.expect("LENGTH")
            length = words.integer()
            if length < 0:
                raise invalid_argument(f"Vector length cannot be negative: {length}.")
            column = replace(column, value_type=replace(column.value_type, vector_length=length))
        elif words.peek().is_keyword("COLLATE"):
            raise unsupported(f"COLLATE of column {name}")
        else:
            parts.checks.append(_check(words))
    parts.columns.append(column)


def _generated(words: DdlWords, column: ddl.ColumnDefinition) -> ddl.ColumnDefinition:
    if words.accept("BY"):
        words.expect("DEFAULT", "AS", "IDENTITY")
        return replace(column, identity=_identity(words, column.name))
    words.expect("ALWAYS", "AS")
    generated = words.expression_in_brackets()
    is_stored = words.accept("STORED")
    if not is_stored:
        words.expect("VIRTUAL")
    return replace(column, generated=generated, is_stored=is_stored)


# -- ALTER TABLE


def alter_table(words: DdlWords) -> ddl.Statement:
    """ALTER TABLE, after those words."""
    table = words.object_name()
    is_google = words.dialect == "GOOGLE_STANDARD_SQL"
    policy = ("ROW", "DELETION", "POLICY") if is_google else ("TTL",)
    read_policy = _policy if is_google else _time_to_live
    if words.accept("ADD"):
        if words.accept(*policy):
            return ddl.SetRowDeletion(table, "ADD", read_policy(words))
        return _add(words, table)
    if words.accept("DROP"):
        if words.accept(*policy):
            return ddl.SetRowDeletion(table, "DROP")
        return _drop(words, table)
    if words.accept("REPLACE" if is_google else "ALTER", *policy):
        return ddl.SetRowDeletion(table, "REPLACE", read_policy(words))
    if words.accept("ALTER"):
        words.accept("COLUMN")
        return _google_alter(words, table) if is_google else _postgres_alter(words, table)
    if words.peek().is_keyword("SET", "RENAME", "OWNER"):
        raise unsupported(f"ALTER TABLE {words.peek().text.upper()}")
    return words.encountered("alter_table_statement")


def _add(words: DdlWords, table: str) -> ddl.Statement:
    if _starts_constraint(words) or words.peek().is_keyword("SYNONYM", "UNIQUE", "PRIMARY"):
        raise unsupported(f"ALTER TABLE ADD {words.peek().text.upper()}")
    words.accept("COLUMN")
    if_not_exists = words.accept("IF", "NOT", "EXISTS")
    parts = _Parts()
    if words.dialect == "GOOGLE_STANDARD_SQL":
        _google_column(words, parts)
    else:
        _postgres_column(words, parts)
    if parts.checks or parts.keys:
        raise unsupported("constraints in ALTER TABLE ADD COLUMN")
    return ddl.AddColumn(table, parts.columns[0], if_not_exists)


def _drop(words: DdlWords, table: str) -> ddl.Statement:
    if words.peek().is_keyword("CONSTRAINT", "SYNONYM"):
        raise unsupported(f"ALTER TABLE DROP {words.peek().text.upper()}")
    words.accept("COLUMN")
    return ddl.DropColumn(table, words.name())


def _google_alter(words: DdlWords, table: str) -> ddl.Statement:
    if words.peek(1).is_keyword("ALTER"):
        name = words.name()
        words.expect("ALTER", "IDENTITY")
        return _alter_identity(words, table, name)
    if words.peek(1).is_keyword("SET", "DROP"):
        name = words.name()
        changes: Mapping[str, Any]
        if words.accept("SET", "DEFAULT"):
            changes = {"default": words.expression_in_brackets()}
        elif words.accept("DROP", "DEFAULT"):
            changes = {"default": None}
        elif words.accept("SET", "ON", "UPDATE"):
            changes = {"on_update": words.expression_in_brackets()}
        elif words.accept("DROP", "ON", "UPDATE"):
            changes = {"on_update": None}
        elif words.accept("SET", "OPTIONS"):
            changes = {"commit_timestamp": _commit_timestamp(words)}
        else:
            words.encountered("alter_table_statement")
        return ddl.AlterColumn(table, name, changes)
    parts = _Parts()
    has_options = _google_column(words, parts)
    (column,) = parts.columns
    if parts.keys or column.is_hidden:
        words.reject(f"Unexpected {'PRIMARY KEY' if parts.keys else 'HIDDEN'} clause")
    fields = ["value_type", "is_nullable", "default", "generated", "is_stored"]
    fields += ["on_update", "identity"]
    # Omitted OPTIONS stay the same.
    fields += ["commit_timestamp"] if has_options else []
    changes = {name: getattr(column, name) for name in fields}
    if column.identity is not None:
        current = {"start": column.identity.start, "skip": column.identity.skip}
        changes["identity"] = {name: value for name, value in current.items() if value is not None}
    return ddl.AlterColumn(table, column.name, changes)


def _postgres_alter(words: DdlWords, table: str) -> ddl.Statement:
    name = words.name()
    changes: Mapping[str, Any]
    if words.peek().is_keyword("RESTART") or words.peek(1).is_keyword("SKIP", "NO"):
        return _alter_identity(words, table, name)
    if words.accept("TYPE") or words.accept("SET", "DATA", "TYPE"):
        value_type, commit_timestamp = postgres_type(words)
        if commit_timestamp:
            raise unsupported("ALTER COLUMN TYPE spanner.commit_timestamp")
        changes = {"value_type": value_type}
    elif words.accept("SET", "NOT", "NULL"):
        changes = {"is_nullable": False}
    elif words.accept("DROP", "NOT", "NULL"):
        changes = {"is_nullable": True}
    elif words.accept("SET", "DEFAULT"):
        changes = {"default": words.expression_until()}
    elif words.accept("DROP", "DEFAULT"):
        changes = {"default": None}
    elif words.accept("SET", "ON", "UPDATE"):
        changes = {"on_update": words.expression_until()}
    elif words.accept("DROP", "ON", "UPDATE"):
        changes = {"on_update": None}
    else:
        raise failed_precondition("Operation is not supported in <ALTER TABLE> statement.")
    return ddl.AlterColumn(table, name, changes)
