"""Roles and privileges in both dialects: text to statements.

GoogleSQL writes TO ROLE r and TABLE FUNCTION READ_s, PostgreSQL TO r and FUNCTION
spanner.read_json_s.
"""

from __future__ import annotations

from spanner_simulator.core.schema import statements as ddl
from spanner_simulator.core.schema.ddl_words import DdlWords, unsupported

_PRIVILEGES = ("SELECT", "INSERT", "UPDATE", "DELETE", "EXECUTE", "USAGE")


def create_role(words: DdlWords) -> ddl.CreateRole:
    """CREATE ROLE, after those words."""
    if_not_exists = words.accept("IF", "NOT", "EXISTS")
    return ddl.CreateRole(words.name(), if_not_exists)


def drop_role(words: DdlWords) -> ddl.DropRole:
    """DROP ROLE, after those words."""
    if_exists = words.accept("IF", "EXISTS")
    return ddl.DropRole(words.name(), if_exists)


def grant(words: DdlWords, *, revoke: bool) -> ddl.Grant:
    """GRANT or REVOKE, after that word."""
    is_google = words.dialect == "GOOGLE_STANDARD_SQL"
    objects: tuple[str, ...]
    if words.accept("ROLE") or (not is_google and not words.peek().is_keyword(*_PRIVILEGES, "ALL")):
        kind: ddl.ObjectKind = "ROLE"
        privileges: tuple[str, ...] = ("MEMBER",)
        objects = words.names()
    else:
        privileges = _privileges(words)
        words.expect("ON")
        kind, objects = _objects(words)
    words.expect("FROM" if revoke else "TO")
    if is_google:
        words.expect("ROLE")
    roles = words.names()
    if words.peek().is_keyword("WITH", "GRANTED"):
        raise unsupported(f"{words.peek().text.upper()} in GRANT")
    return ddl.Grant(revoke, privileges, kind, objects, roles)


def _privileges(words: DdlWords) -> tuple[str, ...]:
    privileges: list[str] = []
    while True:
        if not words.peek().is_keyword(*_PRIVILEGES):
            if words.peek().is_keyword("ALL"):
                raise unsupported("ALL PRIVILEGES")
            words.encountered("privilege")
        privileges.append(words.take().text.upper())
        if words.peek().is_symbol("("):
            raise unsupported("privileges on single columns")
        if not words.accept_symbol(","):
            return tuple(privileges)


def _objects(words: DdlWords) -> tuple[ddl.ObjectKind, tuple[str, ...]]:
    if words.peek().is_keyword("ALL", "SEQUENCE", "MODEL"):
        raise unsupported(f"privileges on {words.peek().text.upper()} ..")
    if words.accept("TABLE", "FUNCTION") or words.accept("FUNCTION"):
        names = _object_names(words)
        return "TABLE FUNCTION", tuple(name.removeprefix("spanner.") for name in names)
    if words.accept("CHANGE", "STREAM"):
        return "CHANGE STREAM", _object_names(words)
    if words.accept("SCHEMA"):
        return "SCHEMA", words.names()
    if words.accept("VIEW"):
        return "VIEW", _object_names(words)
    if words.dialect == "GOOGLE_STANDARD_SQL":
        words.expect("TABLE")
    else:
        words.accept("TABLE")
    return "TABLE", _object_names(words)


def _object_names(words: DdlWords) -> tuple[str, ...]:
    names = [words.object_name()]
    while words.accept_symbol(","):
        names.append(words.object_name())
    return tuple(names)
