"""CREATE, ALTER and DROP PROTO BUNDLE of GoogleSQL: text to statements.

The names in a bundle are those of messages and enums, packages included, and their letters count.
"""

from __future__ import annotations

from spanner_simulator.core.schema import statements as ddl
from spanner_simulator.core.schema.ddl_words import DdlWords


def create_bundle(words: DdlWords) -> ddl.CreateProtoBundle:
    """CREATE PROTO BUNDLE, after those words."""
    return ddl.CreateProtoBundle(_type_names(words))


def alter_bundle(words: DdlWords) -> ddl.AlterProtoBundle:
    """ALTER PROTO BUNDLE, after those words; its three clauses come in this order only."""
    inserted = _type_names(words) if words.accept("INSERT") else ()
    updated = _type_names(words) if words.accept("UPDATE") else ()
    deleted = _type_names(words) if words.accept("DELETE") else ()
    return ddl.AlterProtoBundle(inserted, updated, deleted)


def _type_names(words: DdlWords) -> tuple[str, ...]:
    words.expect_symbol("(")
    names = [type_path(words)]
    while words.accept_symbol(","):
        if words.peek().is_symbol(")"):
            break
        names.append(type_path(words))
    words.expect_symbol(")")
    return tuple(names)


def type_path(words: DdlWords) -> str:
    """The full name of a message or an enum; back-ticks may stand around all of it or its parts."""
    path = words.name()
    while words.accept_symbol("."):
        path = f"{path}.{words.take().text}"
    return path
