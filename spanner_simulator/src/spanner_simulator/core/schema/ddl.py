"""DDL text to statements, in either dialect. It knows no catalogue; names are checked later.

Statements that Spanner has and the simulator has not are refused by name (UNIMPLEMENTED), never
read as something else.
"""

from __future__ import annotations

from spanner_simulator.core.schema import statements as ddl
from spanner_simulator.core.schema.ddl_words import DdlWords
from spanner_simulator.core.schema.stream_ddl import alter_stream, create_stream
from spanner_simulator.core.schema.table_ddl import alter_table, create_table, key_columns
from spanner_simulator.core.schema.type_ddl import type_path
from spanner_simulator.core.values import Dialect
from spanner_simulator.errors import failed_precondition, invalid_argument, unsupported

_UNSUPPORTED_KINDS = (
    "SEQUENCE", "MODEL", "PLACEMENT", "SEARCH", "VECTOR", "PROPERTY", "LOCALITY", "FUNCTION",
    "DATABASE", "QUEUE", "STATISTICS", "VIEW", "MATERIALIZED", "EXTENSION", "TYPE", "DOMAIN",
    "TRIGGER", "TEMP", "TEMPORARY", "UNLOGGED", "PROTO",
)  # fmt: skip
_UNSUPPORTED_VERBS = ("ANALYZE", "RENAME", "TRUNCATE", "COMMENT")
_PRIVILEGES = ("SELECT", "INSERT", "UPDATE", "DELETE", "EXECUTE", "USAGE")


def parse_ddl(text: str, dialect: Dialect = "GOOGLE_STANDARD_SQL") -> ddl.Statement:
    """One DDL statement. Raises `SpannerError`: INVALID_ARGUMENT, or UNIMPLEMENTED by name."""
    words = DdlWords(text, dialect)
    if words.at_end():
        raise invalid_argument("DDL statement is empty.")
    statement = _statement(words)
    words.expect_end()
    return statement


def _statement(words: DdlWords) -> ddl.Statement:
    verb = words.peek().text.upper()
    if words.accept("CREATE"):
        return _create(words)
    if words.accept("ALTER"):
        return _alter(words)
    if words.accept("DROP"):
        return _drop(words)
    if words.accept("GRANT") or words.accept("REVOKE"):
        return _grant(words, revoke=verb == "REVOKE")
    if words.peek().is_keyword(*_UNSUPPORTED_VERBS):
        raise unsupported(verb)
    return words.encountered("ddl_statement")


def _refuse_kind(words: DdlWords, verb: str) -> None:
    ahead = 2 if words.peek().is_keyword("OR") and words.peek(1).is_keyword("REPLACE") else 0
    if words.peek(ahead).is_keyword(*_UNSUPPORTED_KINDS):
        shown = [words.peek(place).text.upper() for place in range(ahead + 1)]
        raise unsupported(" ".join((verb, *shown)))


def _create(words: DdlWords) -> ddl.Statement:
    is_google = words.dialect == "GOOGLE_STANDARD_SQL"
    if words.accept("TABLE"):
        return create_table(words)
    if words.accept("CHANGE", "STREAM"):
        return create_stream(words)
    if words.accept("SCHEMA"):
        if_not_exists = words.accept("IF", "NOT", "EXISTS")
        return ddl.CreateSchema(words.name(), if_not_exists)
    if words.accept("ROLE"):
        if_not_exists = words.accept("IF", "NOT", "EXISTS")
        return ddl.CreateRole(words.name(), if_not_exists)
    if is_google and words.accept("PROTO", "BUNDLE"):
        return ddl.CreateProtoBundle(_type_paths(words))
    is_unique = words.accept("UNIQUE")
    is_null_filtered = is_google and words.accept("NULL_FILTERED")
    if words.accept("INDEX"):
        return _create_index(words, is_unique=is_unique, is_null_filtered=is_null_filtered)
    _refuse_kind(words, "CREATE")
    return words.encountered("create_statement")


def _alter(words: DdlWords) -> ddl.Statement:
    if words.accept("TABLE"):
        return alter_table(words)
    if words.accept("CHANGE", "STREAM"):
        return alter_stream(words)
    if words.peek().is_keyword("INDEX"):
        raise unsupported("ALTER INDEX")
    _refuse_kind(words, "ALTER")
    return words.encountered("alter_statement")


def _drop(words: DdlWords) -> ddl.Statement:
    for kind in ddl.DROPPABLE:
        if words.accept(*kind.split()):
            if_exists = words.accept("IF", "EXISTS")
            name = words.object_name()
            if words.dialect == "POSTGRESQL":
                if words.peek().is_keyword("CASCADE"):
                    raise failed_precondition(
                        "Only <RESTRICT> behavior is supported by <DROP> statement."
                    )
                words.accept("RESTRICT")
            return ddl.Drop(kind, name, if_exists)
    if words.peek().is_keyword("SCHEMA"):
        raise unsupported("DROP SCHEMA")
    _refuse_kind(words, "DROP")
    return words.encountered("drop_statement")


def _create_index(words: DdlWords, *, is_unique: bool, is_null_filtered: bool) -> ddl.CreateIndex:
    is_google = words.dialect == "GOOGLE_STANDARD_SQL"
    if words.peek().is_keyword("CONCURRENTLY"):
        raise unsupported("CREATE INDEX CONCURRENTLY")
    if_not_exists = words.accept("IF", "NOT", "EXISTS")
    name = words.object_name() if is_google else words.name()
    words.expect("ON")
    table = words.object_name()
    if not is_google and words.accept("USING"):
        words.expect("BTREE")
    key = key_columns(words, null_is_greatest=not is_google)
    storing = words.names_in_brackets() if words.accept(words.storing) else ()
    comma = words.peek().is_symbol(",")
    clause = words.peek(1 if comma else 0)
    if clause.is_keyword("PARTITION", "ORDER", "OPTIONS", "WHERE", "INTERLEAVE"):
        raise unsupported(f"{clause.text.upper()} of CREATE INDEX")
    return ddl.CreateIndex(
        name, table, key, storing, is_unique, is_null_filtered, if_not_exists=if_not_exists
    )


def _type_paths(words: DdlWords) -> tuple[str, ...]:
    words.expect_symbol("(")
    names = [type_path(words)]
    while words.accept_symbol(","):
        if words.peek().is_symbol(")"):
            break
        names.append(type_path(words))
    words.expect_symbol(")")
    return tuple(names)


# -- roles


def _grant(words: DdlWords, *, revoke: bool) -> ddl.Grant:
    """GoogleSQL writes TO ROLE r and TABLE FUNCTION READ_s, PostgreSQL TO r and FUNCTION."""
    is_google = words.dialect == "GOOGLE_STANDARD_SQL"
    if words.peek().is_keyword("ROLE") or (is_google and words.peek().is_keyword("ALL")):
        raise unsupported(f"GRANT {words.peek().text.upper()}")
    privileges: list[str] = []
    while True:
        if not words.peek().is_keyword(*_PRIVILEGES):
            if not is_google:
                raise unsupported("GRANT of a role or of all privileges")
            words.encountered("privilege")
        privileges.append(words.take().text.upper())
        if words.peek().is_symbol("("):
            raise unsupported("privileges on single columns")
        if not words.accept_symbol(","):
            break
    words.expect("ON")
    kind, objects = _objects(words)
    words.expect("FROM" if revoke else "TO")
    if is_google:
        words.expect("ROLE")
    roles = words.names()
    if words.peek().is_keyword("WITH", "GRANTED"):
        raise unsupported(f"{words.peek().text.upper()} in GRANT")
    return ddl.Grant(revoke, tuple(privileges), kind, objects, roles)


def _objects(words: DdlWords) -> tuple[ddl.ObjectKind, tuple[str, ...]]:
    if words.peek().is_keyword("ALL", "SEQUENCE", "MODEL", "VIEW"):
        raise unsupported(f"privileges on {words.peek().text.upper()} ..")
    if words.accept("TABLE", "FUNCTION") or words.accept("FUNCTION"):
        return "TABLE FUNCTION", tuple(
            name.removeprefix("spanner.") for name in words.object_names()
        )
    if words.accept("CHANGE", "STREAM"):
        return "CHANGE STREAM", words.object_names()
    if words.accept("SCHEMA"):
        return "SCHEMA", words.names()
    if words.dialect == "GOOGLE_STANDARD_SQL":
        words.expect("TABLE")
    else:
        words.accept("TABLE")
    return "TABLE", words.object_names()
