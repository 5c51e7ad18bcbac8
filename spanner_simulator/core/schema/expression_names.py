"""Which names an SQL text uses, as far as words alone tell.

The core knows no SQL: a generated column, a check, a default or a view is text here. What depends
on what must be known all the same when a column or a table is to go. A word counts as a column's
name unless it is a reserved word, a function, the type of a literal or a cast, or the unit of an
interval.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.spanner_simulator.core.lexer import Words
from tidegate.spanner_simulator.core.schema.ddl_words import GOOGLE_RESERVED, POSTGRES_RESERVED

if TYPE_CHECKING:
    from tidegate.spanner_simulator.core.lexer import Word
    from tidegate.spanner_simulator.core.values import Dialect

__all__ = ["column_names", "object_names"]


def column_names(expression: str, dialect: Dialect) -> frozenset[str]:
    """The names in an expression that may be columns, in lower case."""
    words = _words(expression, dialect)
    reserved = GOOGLE_RESERVED if dialect == "GOOGLE_STANDARD_SQL" else POSTGRES_RESERVED
    found: set[str] = set()
    for index, word in enumerate(words):
        before = words[index - 1] if index else None
        after = words[index + 1] if index + 1 < len(words) else None
        if word.kind not in ("name", "quoted_name") or word.is_keyword(*reserved):
            continue
        if after is not None and (
            after.is_symbol(".") or after.is_symbol("(") or after.kind in ("text", "bytes")
        ):
            continue
        if before is not None and (
            before.kind == "number" or before.is_keyword("AS") or before.is_symbol("::")
        ):
            continue
        found.add(word.text.lower())
    return frozenset(found)


def object_names(query: str, dialect: Dialect) -> frozenset[str]:
    """The names in a query that may be tables or views, in lower case and with their schema."""
    words = _words(query, dialect)
    found: set[str] = set()
    for index, word in enumerate(words):
        if word.kind not in ("name", "quoted_name"):
            continue
        found.add(word.text.lower())
        if (
            index + 2 < len(words)
            and words[index + 1].is_symbol(".")
            and words[index + 2].kind in ("name", "quoted_name")
        ):
            schema, name = word.text.lower(), words[index + 2].text.lower()
            found.add(
                name if schema == "public" and dialect == "POSTGRESQL" else f"{schema}.{name}"
            )
    return frozenset(found)


def _words(text: str, dialect: Dialect) -> list[Word]:
    words = Words(text, dialect=dialect)
    out: list[Word] = []
    while words.peek().kind != "end":
        out.append(words.take())
    return out
