"""GoogleSQL DDL: text to statements. It knows no catalogue; names are checked when they apply.

What a first version does not do is refused by name (UNIMPLEMENTED), never read as something else:
interleaved tables, defaults, generated columns, checks, foreign keys, indexes, views.
"""

from __future__ import annotations

from typing import get_args

from tidegate.spanner_simulator.core.lexer import Words
from tidegate.spanner_simulator.core.schema.statements import (
    AddColumn,
    AlterStreamOptions,
    AlterStreamWatch,
    ColumnDefinition,
    CreateRole,
    CreateStream,
    CreateTable,
    DropColumn,
    DropRole,
    DropStream,
    DropTable,
    Grant,
    KeyColumn,
    ObjectKind,
    OptionValue,
    Statement,
    Watch,
)
from tidegate.spanner_simulator.core.values import TypeCode, ValueType
from tidegate.spanner_simulator.errors import Code, SpannerError

__all__ = ["parse_ddl", "parse_type"]


def parse_ddl(text: str) -> Statement:
    """One DDL statement. Raises `SpannerError`: INVALID_ARGUMENT, or UNIMPLEMENTED by name."""
    words = Words(text, what="Error parsing Spanner DDL statement: " + text.strip() + " ")
    if words.accept("CREATE", "TABLE"):
        statement: Statement = _create_table(words)
    elif words.accept("CREATE", "CHANGE", "STREAM"):
        statement = _create_stream(words)
    elif words.accept("ALTER", "CHANGE", "STREAM"):
        statement = _alter_stream(words)
    elif words.accept("ALTER", "TABLE"):
        statement = _alter_table(words)
    elif words.accept("DROP", "TABLE"):
        if_exists = words.accept("IF", "EXISTS")
        statement = DropTable(_table_name(words), if_exists)
    elif words.accept("DROP", "CHANGE", "STREAM"):
        if_exists = words.accept("IF", "EXISTS")
        statement = DropStream(words.name("change stream name"), if_exists)
    elif words.accept("CREATE", "ROLE"):
        statement = CreateRole(words.name("role name"))
    elif words.accept("DROP", "ROLE"):
        statement = DropRole(words.name("role name"))
    elif words.accept("GRANT"):
        statement = _grant(words, revoke=False)
    elif words.accept("REVOKE"):
        statement = _grant(words, revoke=True)
    else:
        raise _unsupported(text.strip()[:80])
    words.expect_end()
    return statement


def _unsupported(what: str) -> SpannerError:
    return SpannerError(Code.UNIMPLEMENTED, f"The simulator does not support: {what}")


def _table_name(words: Words) -> str:
    name = words.name("table name")
    if words.accept_symbol("."):
        raise _unsupported(f"named schemas ({name}.{words.name()})")
    return name


def _create_table(words: Words) -> CreateTable:
    if_not_exists = words.accept("IF", "NOT", "EXISTS")
    table = _table_name(words)
    words.expect_symbol("(")
    columns: list[ColumnDefinition] = []
    key: tuple[KeyColumn, ...] | None = None
    while not words.peek().is_symbol(")"):
        if words.accept("PRIMARY", "KEY"):
            key = _primary_key(words)
        elif any(words.peek().is_keyword(k) for k in ("CONSTRAINT", "FOREIGN", "CHECK")):
            raise _unsupported(f"{words.peek().text} in CREATE TABLE {table}")
        else:
            column, is_key = _column(words)
            columns.append(column)
            if is_key:
                key = (KeyColumn(column.name),)
        if not words.accept_symbol(","):
            break
    words.expect_symbol(")")
    if words.accept("PRIMARY", "KEY"):
        key = _primary_key(words)
    if words.accept_symbol(","):
        raise _unsupported(f"{words.peek().text.upper()} clause of CREATE TABLE {table}")
    if key is None:
        words.refuse("Expected PRIMARY KEY")
    return CreateTable(table, tuple(columns), key, if_not_exists)


def _primary_key(words: Words) -> tuple[KeyColumn, ...]:
    words.expect_symbol("(")
    key: list[KeyColumn] = []
    while not words.peek().is_symbol(")"):
        name = words.name("column name")
        descending = words.accept("DESC")
        if not descending:
            words.accept("ASC")
        key.append(KeyColumn(name, descending))
        if not words.accept_symbol(","):
            break
    words.expect_symbol(")")
    return tuple(key)


def _column(words: Words) -> tuple[ColumnDefinition, bool]:
    name = words.name("column name")
    value_type = parse_type(words)
    is_nullable, commit_timestamp, is_key = True, False, False
    while True:
        if words.accept("NOT", "NULL"):
            is_nullable = False
        elif words.accept("PRIMARY", "KEY"):
            is_key = True
        elif words.accept("OPTIONS"):
            options = dict(_options(words))
            if set(options) - {"allow_commit_timestamp"}:
                words.refuse("Expected allow_commit_timestamp")
            commit_timestamp = options.get("allow_commit_timestamp") is True
        elif any(words.peek().is_keyword(k) for k in ("DEFAULT", "AS", "GENERATED", "HIDDEN")):
            raise _unsupported(f"{words.peek().text.upper()} of column {name}")
        else:
            return ColumnDefinition(name, value_type, is_nullable, commit_timestamp), is_key


def parse_type(words: Words) -> ValueType:
    """A column type such as `STRING(MAX)` or `ARRAY<INT64>`."""
    name = words.name("type").upper()
    if name == "ARRAY":
        words.expect_symbol("<")
        element = parse_type(words)
        words.expect_symbol(">")
        return ValueType("ARRAY", element)
    if name not in get_args(TypeCode):
        raise _unsupported(f"type {name}")
    code: TypeCode = next(known for known in get_args(TypeCode) if known == name)
    length = None
    if code in ("STRING", "BYTES"):
        words.expect_symbol("(")
        if not words.accept("MAX"):
            if words.peek().kind != "number":
                words.refuse("Expected a length or MAX")
            length = int(words.take().text, 10)
        words.expect_symbol(")")
    return ValueType(code, None, length)


def _alter_table(words: Words) -> Statement:
    table = _table_name(words)
    if words.accept("ADD", "COLUMN"):
        if_not_exists = words.accept("IF", "NOT", "EXISTS")
        column, is_key = _column(words)
        if is_key:
            words.refuse("A key column cannot be added")
        return AddColumn(table, column, if_not_exists)
    if words.accept("DROP", "COLUMN"):
        return DropColumn(table, words.name("column name"))
    raise _unsupported(f"ALTER TABLE {table} {words.peek().text}")


def _watch(words: Words) -> Watch:
    if words.accept("ALL"):
        return Watch(everything=True)
    tables: list[tuple[str, tuple[str, ...] | None]] = []
    while True:
        if words.peek().is_keyword("ALL"):
            words.refuse("Expected table name")
        table = _table_name(words)
        columns: tuple[str, ...] | None = None
        if words.accept_symbol("("):
            names: list[str] = []
            while not words.peek().is_symbol(")"):
                names.append(words.name("column name"))
                if not words.accept_symbol(","):
                    break
            words.expect_symbol(")")
            columns = tuple(names)
        tables.append((table, columns))
        if not words.accept_symbol(","):
            return Watch(tables=tuple(tables))


def _options(words: Words) -> tuple[tuple[str, OptionValue], ...]:
    words.expect_symbol("(")
    options: dict[str, OptionValue] = {}
    while True:
        name = words.name("option name").lower()
        words.expect_symbol("=")
        if name in options:
            words.refuse(f"Option {name} was given already; expected another one")
        options[name] = _option_value(words)
        if not words.accept_symbol(","):
            break
    words.expect_symbol(")")
    return tuple(options.items())


def _option_value(words: Words) -> OptionValue:
    for keyword, value in (("TRUE", True), ("FALSE", False), ("NULL", None)):
        if words.accept(keyword):
            return value
    word = words.take()
    if word.kind == "text":
        return word.text
    if word.kind == "number" and word.text.isdigit():
        return int(word.text)
    return words.refuse("Expected an option value")


def _create_stream(words: Words) -> CreateStream:
    if_not_exists = words.accept("IF", "NOT", "EXISTS")
    name = words.name("change stream name")
    watch = _watch(words) if words.accept("FOR") else None
    options = _options(words) if words.accept("OPTIONS") else ()
    return CreateStream(name, watch, options, if_not_exists)


def _alter_stream(words: Words) -> Statement:
    name = words.name("change stream name")
    if words.accept("SET", "FOR"):
        return AlterStreamWatch(name, _watch(words))
    if words.accept("SET", "OPTIONS"):
        return AlterStreamOptions(name, _options(words))
    words.expect("DROP", "FOR", "ALL")
    return AlterStreamWatch(name, None)


def _grant(words: Words, *, revoke: bool) -> Grant:
    privileges: tuple[str, ...]
    kind: ObjectKind
    if words.accept("ROLE"):
        privileges, kind, objects = ("MEMBER",), "ROLE", _names(words)
    else:
        privileges = _privileges(words)
        words.expect("ON")
        kind = _object_kind(words)
        objects = _names(words)
    words.expect(*(("FROM",) if revoke else ("TO",)))
    words.expect("ROLE")
    return Grant(revoke, privileges, kind, objects, _names(words))


def _privileges(words: Words) -> tuple[str, ...]:
    privileges: list[str] = []
    while True:
        privilege = words.name("privilege").upper()
        if privilege not in ("SELECT", "INSERT", "UPDATE", "DELETE", "EXECUTE", "USAGE"):
            words.refuse(f"{privilege} is no privilege; expected ON")
        if words.peek().is_symbol("("):
            raise _unsupported("privileges on single columns")
        privileges.append(privilege)
        if not words.accept_symbol(","):
            return tuple(privileges)


def _object_kind(words: Words) -> ObjectKind:
    if words.accept("TABLE", "FUNCTION"):
        return "TABLE FUNCTION"
    if words.accept("CHANGE", "STREAM"):
        return "CHANGE STREAM"
    words.expect("TABLE")
    return "TABLE"


def _names(words: Words) -> tuple[str, ...]:
    names = [words.name()]
    while words.accept_symbol(","):
        names.append(words.name())
    return tuple(names)
