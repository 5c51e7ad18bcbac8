"""GoogleSQL DDL: text to statements. It knows no catalogue; names are checked when they apply.

Statements that Spanner has and the simulator has not are refused by name (UNIMPLEMENTED), never
read as something else.
"""

from __future__ import annotations

from typing import Literal

from spanner_simulator.core.schema import statements as ddl
from spanner_simulator.core.schema.database_options import check_option
from spanner_simulator.core.schema.ddl_words import DdlWords, unsupported
from spanner_simulator.core.schema.definitions import ViewSecurity
from spanner_simulator.core.schema.google_tables import (
    alter_table,
    create_table,
    key_columns,
)
from spanner_simulator.core.schema.grant_ddl import create_role, drop_role, grant
from spanner_simulator.core.schema.proto_ddl import alter_bundle, create_bundle
from spanner_simulator.core.schema.stream_ddl import (
    alter_stream,
    create_stream,
    drop_stream,
    option_value,
)
from spanner_simulator.errors import Code, SpannerError

_REFUSED = (
    ("CREATE", "SEQUENCE"),
    ("CREATE", "OR", "REPLACE", "MODEL"),
    ("CREATE", "MODEL"),
    ("CREATE", "PLACEMENT"),
    ("CREATE", "SEARCH", "INDEX"),
    ("CREATE", "VECTOR", "INDEX"),
    ("CREATE", "PROPERTY", "GRAPH"),
    ("CREATE", "OR", "REPLACE", "PROPERTY", "GRAPH"),
    ("CREATE", "LOCALITY", "GROUP"),
    ("CREATE", "FUNCTION"),
    ("CREATE", "OR", "REPLACE", "FUNCTION"),
    ("CREATE", "DATABASE"),
    ("CREATE", "QUEUE"),
    ("ALTER", "SEQUENCE"),
    ("ALTER", "MODEL"),
    ("ALTER", "LOCALITY", "GROUP"),
    ("ALTER", "STATISTICS"),
    ("ALTER", "SEARCH", "INDEX"),
    ("ALTER", "VECTOR", "INDEX"),
    ("ALTER", "QUEUE"),
    ("DROP", "SEQUENCE"),
    ("DROP", "MODEL"),
    ("DROP", "PLACEMENT"),
    ("DROP", "SEARCH", "INDEX"),
    ("DROP", "VECTOR", "INDEX"),
    ("DROP", "PROPERTY", "GRAPH"),
    ("DROP", "LOCALITY", "GROUP"),
    ("DROP", "FUNCTION"),
    ("DROP", "QUEUE"),
    ("RENAME", "TABLE"),
)


def parse_ddl(text: str) -> ddl.Statement:
    """One DDL statement. Raises `SpannerError`: INVALID_ARGUMENT, or UNIMPLEMENTED by name."""
    words = DdlWords(text, "GOOGLE_STANDARD_SQL")
    if words.at_end():
        raise SpannerError(Code.INVALID_ARGUMENT, "DDL statement is empty.")
    for refused in _REFUSED:
        if words.accept(*refused):
            raise unsupported(" ".join(refused))
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
    if words.accept("TABLE"):
        return create_table(words)
    if words.accept("CHANGE", "STREAM"):
        return create_stream(words)
    if words.peek().is_keyword("UNIQUE", "NULL_FILTERED", "INDEX"):
        return _create_index(words)
    if words.accept("OR", "REPLACE", "VIEW"):
        return _create_view(words, or_replace=True)
    if words.accept("VIEW"):
        return _create_view(words, or_replace=False)
    if words.accept("SCHEMA"):
        if_not_exists = words.accept("IF", "NOT", "EXISTS")
        return ddl.CreateSchema(words.name(), if_not_exists)
    if words.accept("ROLE"):
        return create_role(words)
    if words.accept("PROTO", "BUNDLE"):
        return create_bundle(words)
    return words.encountered("create_statement")


def _alter(words: DdlWords) -> ddl.Statement:
    if words.accept("TABLE"):
        return alter_table(words)
    if words.accept("CHANGE", "STREAM"):
        return alter_stream(words)
    if words.accept("INDEX"):
        return _alter_index(words)
    if words.accept("DATABASE"):
        name = words.name()
        words.expect("SET", "OPTIONS")
        return ddl.AlterDatabase(name, _database_options(words))
    if words.accept("PROTO", "BUNDLE"):
        return alter_bundle(words)
    return words.encountered("alter_statement")


def _drop(words: DdlWords) -> ddl.Statement:
    if words.accept("TABLE"):
        if_exists = words.accept("IF", "EXISTS")
        return ddl.DropTable(words.object_name(), if_exists)
    if words.accept("CHANGE", "STREAM"):
        return drop_stream(words)
    if words.accept("INDEX"):
        if_exists = words.accept("IF", "EXISTS")
        return ddl.DropIndex(words.object_name(), if_exists)
    if words.accept("VIEW"):
        if_exists = words.accept("IF", "EXISTS")
        return ddl.DropView(words.object_name(), if_exists)
    if words.accept("SCHEMA"):
        if_exists = words.accept("IF", "EXISTS")
        return ddl.DropSchema(words.name(), if_exists)
    if words.accept("ROLE"):
        return drop_role(words)
    if words.accept("PROTO", "BUNDLE"):
        return ddl.DropProtoBundle()
    return words.encountered("drop_statement")


def _create_index(words: DdlWords) -> ddl.CreateIndex:
    is_unique = words.accept("UNIQUE")
    is_null_filtered = words.accept("NULL_FILTERED")
    words.expect("INDEX")
    if_not_exists = words.accept("IF", "NOT", "EXISTS")
    name = words.object_name()
    words.expect("ON")
    table = words.object_name()
    key = key_columns(words)
    storing = words.names_in_brackets() if words.accept("STORING") else ()
    if words.peek().is_keyword("PARTITION", "ORDER"):
        raise unsupported(f"{words.peek().text.upper()} BY of CREATE INDEX")
    not_null = _not_null(words) if words.accept("WHERE") else ()
    interleave_in = None
    if words.accept_symbol(","):
        words.expect("INTERLEAVE", "IN")
        interleave_in = words.object_name()
    if words.peek().is_keyword("OPTIONS"):
        raise unsupported("OPTIONS of CREATE INDEX")
    return ddl.CreateIndex(
        name,
        table,
        key,
        storing,
        is_unique,
        is_null_filtered,
        interleave_in,
        not_null,
        if_not_exists,
    )


def _not_null(words: DdlWords) -> tuple[str, ...]:
    columns: list[str] = []
    while True:
        columns.append(words.name())
        words.expect("IS", "NOT", "NULL")
        if not words.accept("AND"):
            return tuple(columns)


def _alter_index(words: DdlWords) -> ddl.AlterIndex:
    name = words.object_name()
    if words.accept("ADD"):
        action: Literal["ADD", "DROP"] = "ADD"
    elif words.accept("DROP"):
        action = "DROP"
    else:
        words.encountered("alter_index_statement")
    words.expect("STORED", "COLUMN")
    return ddl.AlterIndex(name, action, words.name())


def _create_view(words: DdlWords, *, or_replace: bool) -> ddl.CreateView:
    name = words.object_name()
    if words.peek().is_keyword("AS"):
        raise SpannerError(
            Code.INVALID_ARGUMENT, f"View `{name}` is missing the SQL SECURITY clause."
        )
    words.expect("SQL", "SECURITY")
    security: ViewSecurity = "INVOKER"
    if words.accept("DEFINER"):
        security = "DEFINER"
    else:
        words.expect("INVOKER")
    words.expect("AS")
    return ddl.CreateView(name, words.rest("query"), security, or_replace)


def _database_options(words: DdlWords) -> tuple[tuple[str, ddl.OptionValue], ...]:
    words.expect_symbol("(")
    options: dict[str, ddl.OptionValue] = {}
    while True:
        name = words.name()
        words.expect_symbol("=")
        value = option_value(words)
        check_option(words, name, value)
        if name.lower() in options:
            words.reject(f"Duplicate option: {name}")
        options[name.lower()] = value
        if not words.accept_symbol(","):
            break
    words.expect_symbol(")")
    return tuple(options.items())
