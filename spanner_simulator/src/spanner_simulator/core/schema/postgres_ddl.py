"""PostgreSQL DDL: text to statements. It knows no catalogue; names are checked when they apply.

What Spanner refuses is refused with its text; what Spanner has and the simulator has not is
refused by name (UNIMPLEMENTED).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NoReturn

from spanner_simulator.core.schema import statements as ddl
from spanner_simulator.core.schema.database_options import check_option
from spanner_simulator.core.schema.ddl_words import DdlWords, unsupported
from spanner_simulator.core.schema.definitions import ViewSecurity
from spanner_simulator.core.schema.grant_ddl import create_role, drop_role, grant
from spanner_simulator.core.schema.postgres_tables import alter_table, create_table
from spanner_simulator.core.schema.stream_ddl import (
    alter_stream,
    create_stream,
    drop_stream,
    option_value,
)
from spanner_simulator.errors import Code, SpannerError

_REFUSED = (
    ("CREATE", "SEQUENCE"),
    ("CREATE", "FUNCTION"),
    ("CREATE", "OR", "REPLACE", "FUNCTION"),
    ("CREATE", "SEARCH", "INDEX"),
    ("CREATE", "VECTOR", "INDEX"),
    ("CREATE", "PROTO", "BUNDLE"),
    ("CREATE", "PLACEMENT"),
    ("CREATE", "LOCALITY", "GROUP"),
    ("CREATE", "DATABASE"),
    ("ALTER", "SEQUENCE"),
    ("ALTER", "STATISTICS"),
    ("ALTER", "LOCALITY", "GROUP"),
    ("DROP", "SEQUENCE"),
    ("DROP", "FUNCTION"),
    ("DROP", "SEARCH", "INDEX"),
    ("DROP", "PLACEMENT"),
    ("DROP", "LOCALITY", "GROUP"),
)
_NOT_SUPPORTED = (
    ("CREATE", "EXTENSION"),
    ("CREATE", "TYPE"),
    ("CREATE", "DOMAIN"),
    ("CREATE", "TRIGGER"),
    ("CREATE", "MATERIALIZED", "VIEW"),
    ("DROP", "EXTENSION"),
    ("TRUNCATE",),
    ("COMMENT",),
)
_PARTIAL = (
    "<WHERE> clause of <CREATE INDEX> statement supports only conjunction of <column IS NOT NULL> "
    "expressions using <AND>, where <column> is part of an index."
)


def _refuse(message: str) -> NoReturn:
    raise SpannerError(Code.FAILED_PRECONDITION, message)


def parse_ddl(text: str) -> ddl.Statement:
    """One DDL statement. Raises `SpannerError`: INVALID_ARGUMENT, or UNIMPLEMENTED by name."""
    words = DdlWords(text, "POSTGRESQL")
    if words.at_end():
        raise SpannerError(Code.INVALID_ARGUMENT, "DDL statement is empty.")
    for refused in _REFUSED:
        if words.accept(*refused):
            raise unsupported(" ".join(refused))
    for known in _NOT_SUPPORTED:
        if words.accept(*known):
            _refuse("Statement is not supported.")
    statement = _statement(words)
    words.expect_end()
    return statement


def _statement(words: DdlWords) -> ddl.Statement:
    if words.accept("CREATE"):
        return _create(words)
    if words.accept("ALTER"):
        return _alter(words)
    if words.accept("DROP"):
        return _drop(words)
    if words.accept("GRANT"):
        return grant(words, revoke=False)
    if words.accept("REVOKE"):
        return grant(words, revoke=True)
    if words.accept("ANALYZE"):
        return ddl.Analyze()
    return words.encountered("ddl_statement")


def _create(words: DdlWords) -> ddl.Statement:
    if words.peek().is_keyword("TEMP", "TEMPORARY", "UNLOGGED"):
        _refuse("TEMP/TEMPORARY or UNLOGGED objects are not supported in <CREATE TABLE> statement.")
    if words.accept("TABLE"):
        return create_table(words)
    if words.accept("CHANGE", "STREAM"):
        return create_stream(words)
    if words.accept("UNIQUE", "INDEX"):
        return _create_index(words, is_unique=True)
    if words.accept("INDEX"):
        return _create_index(words, is_unique=False)
    if words.accept("OR", "REPLACE", "VIEW"):
        return _create_view(words, or_replace=True)
    if words.accept("VIEW"):
        return _create_view(words, or_replace=False)
    if words.accept("SCHEMA"):
        if_not_exists = words.accept("IF", "NOT", "EXISTS")
        return ddl.CreateSchema(words.name(), if_not_exists)
    if words.accept("ROLE"):
        return create_role(words)
    return words.encountered("create_statement")


def _alter(words: DdlWords) -> ddl.Statement:
    if words.accept("TABLE"):
        return alter_table(words)
    if words.accept("CHANGE", "STREAM"):
        return alter_stream(words)
    if words.accept("INDEX"):
        return _alter_index(words)
    if words.accept("DATABASE"):
        return _alter_database(words)
    return words.encountered("alter_statement")


def _drop(words: DdlWords) -> ddl.Statement:
    if words.accept("CHANGE", "STREAM"):
        return drop_stream(words)
    if words.accept("ROLE"):
        return drop_role(words)
    kinds: dict[str, Callable[[str, bool], ddl.Statement]] = {
        "TABLE": ddl.DropTable,
        "INDEX": ddl.DropIndex,
        "VIEW": ddl.DropView,
        "SCHEMA": ddl.DropSchema,
    }
    for kind, make in kinds.items():
        if words.accept(kind):
            if_exists = words.accept("IF", "EXISTS")
            name = words.object_name()
            if words.peek().is_symbol(","):
                _refuse("<DROP> statements support deletion of only single object per statement.")
            if words.peek().is_keyword("CASCADE"):
                _refuse("Only <RESTRICT> behavior is supported by <DROP> statement.")
            words.accept("RESTRICT")
            return make(name, if_exists)
    return words.encountered("drop_statement")


def _create_index(words: DdlWords, *, is_unique: bool) -> ddl.CreateIndex:
    if words.peek().is_keyword("CONCURRENTLY"):
        raise unsupported("CREATE INDEX CONCURRENTLY")
    if_not_exists = words.accept("IF", "NOT", "EXISTS")
    if words.peek().is_keyword("ON"):
        _refuse("Index name is mandatory in <CREATE INDEX> statement.")
    name = words.name()
    words.expect("ON")
    table = words.object_name()
    if words.accept("USING"):
        method = words.name()
        if method != "btree":
            raise unsupported(f"USING {method} of CREATE INDEX")
    key = _index_key(words)
    storing = words.names_in_brackets() if words.accept("INCLUDE") else ()
    interleave_in = words.object_name() if words.accept("INTERLEAVE", "IN") else None
    not_null = _not_null(words) if words.accept("WHERE") else ()
    return ddl.CreateIndex(
        name,
        table,
        key,
        storing,
        is_unique,
        interleave_in=interleave_in,
        not_null=not_null,
        if_not_exists=if_not_exists,
    )


def _index_key(words: DdlWords) -> tuple[ddl.KeyColumn, ...]:
    words.expect_symbol("(")
    key: list[ddl.KeyColumn] = []
    while True:
        if words.peek().is_symbol("(") or words.peek(1).is_symbol("("):
            _refuse("Expressions are not supported in <CREATE INDEX> statement.")
        name = words.name()
        descending = words.accept("DESC")
        if not descending:
            words.accept("ASC")
        nulls: ddl.NullsOrder = "FIRST" if descending else "LAST"
        if words.accept("NULLS", "FIRST"):
            nulls = "FIRST"
        elif words.accept("NULLS", "LAST"):
            nulls = "LAST"
        key.append(ddl.KeyColumn(name, descending, nulls))
        if not words.accept_symbol(","):
            break
    words.expect_symbol(")")
    return tuple(key)


def _not_null(words: DdlWords) -> tuple[str, ...]:
    columns: list[str] = []
    while True:
        bracketed = words.accept_symbol("(")
        columns.append(words.name())
        if not words.accept("IS", "NOT", "NULL"):
            _refuse(_PARTIAL)
        if bracketed:
            words.expect_symbol(")")
        if not words.accept("AND"):
            break
    if not words.at_end():
        _refuse(_PARTIAL)
    return tuple(columns)


def _alter_index(words: DdlWords) -> ddl.AlterIndex:
    name = words.object_name()
    if words.accept("ADD"):
        action: Literal["ADD", "DROP"] = "ADD"
    elif words.accept("DROP"):
        action = "DROP"
    else:
        words.encountered("alter_index_statement")
    words.expect("INCLUDE", "COLUMN")
    return ddl.AlterIndex(name, action, words.name())


def _create_view(words: DdlWords, *, or_replace: bool) -> ddl.CreateView:
    name = words.object_name()
    security: ViewSecurity = "INVOKER"
    if words.accept("SQL", "SECURITY"):
        if words.accept("DEFINER"):
            security = "DEFINER"
        else:
            words.expect("INVOKER")
    words.expect("AS")
    return ddl.CreateView(name, words.rest("query"), security, or_replace)


def _alter_database(words: DdlWords) -> ddl.AlterDatabase:
    database = words.name()
    if words.accept("RESET"):
        return ddl.AlterDatabase(database, ((_database_option(words), None),))
    words.expect("SET")
    name = _database_option(words)
    if not words.accept("TO"):
        words.expect_symbol("=")
    if words.accept("DEFAULT"):
        return ddl.AlterDatabase(database, ((name, None),))
    value = option_value(words)
    check_option(words, name, value)
    return ddl.AlterDatabase(database, ((name, value),))


def _database_option(words: DdlWords) -> str:
    """`spanner.x`, also as one name in quotes, as GetDatabaseDdl prints it."""
    name = words.object_name().removeprefix("spanner.")
    check_option(words, name, None)
    return name
