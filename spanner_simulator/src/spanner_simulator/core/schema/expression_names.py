"""Which names an SQL text uses, as far as words alone tell.

The core knows no SQL: a generated column, a check, a default or a view is text here. What depends
on what must be known all the same when a column or a table is to go. A word counts as a column's
name unless it is a reserved word, a function, an alias after AS, the type of a literal or a cast,
or part of a date; it counts as the name of a table or a view where it stands in a FROM clause.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spanner_simulator.core.lexer import Words
from spanner_simulator.core.lexicon import LEXICONS
from spanner_simulator.core.tokens import Token
from spanner_simulator.core.values import Dialect

_NAMES = ("name", "quoted_name")
_OPENING, _CLOSING = ("(", "[", "{"), (")", "]", "}")
_DATE_PARTS = frozenset(
    (
        "NANOSECOND", "MICROSECOND", "MILLISECOND", "SECOND", "MINUTE", "HOUR", "DAY", "DAYOFWEEK",
        "DAYOFYEAR", "WEEK", "ISOWEEK", "MONTH", "QUARTER", "YEAR", "ISOYEAR",
    )
)  # fmt: skip
_AFTER_FROM = frozenset(
    (
        "SELECT", "WHERE", "GROUP", "HAVING", "QUALIFY", "WINDOW", "UNION", "INTERSECT", "EXCEPT",
        "ORDER", "LIMIT", "OFFSET", "FETCH",
    )
)  # fmt: skip
# Stands on both sides of a text, so that every word has neighbours.
_NOTHING = Token("end", "", 0, 0)


def column_names(expression: str, dialect: Dialect, *, table: str | None = None) -> frozenset[str]:
    """The names in a text that may be columns, in lower case.

    `table`: the text is an expression over a row of that table. What GoogleSQL writes behind a dot
    is then a field of the column before it; in a query, and in PostgreSQL, a column of a table.
    """
    words = _words(expression, dialect)
    reserved = LEXICONS[dialect].reserved
    owner = None
    if table is not None and dialect == "GOOGLE_STANDARD_SQL":
        owner = table.rpartition(".")[2].lower()
    functions: list[str] = []
    found: set[str] = set()
    for index, word in enumerate(words):
        if word.is_symbol("("):
            before = words[index - 1]
            functions.append(before.text.upper() if before.kind == "name" else "")
        elif word.is_symbol(")") and functions:
            functions.pop()
        elif (
            word.kind in _NAMES
            and not word.is_keyword(*reserved)
            and _is_value(words, index, owner)
            and not _is_date_part(words, index, functions[-1] if functions else "")
        ):
            found.add(word.text.lower())
    return frozenset(found)


def _is_value(words: Sequence[Token], index: int, owner: str | None) -> bool:
    """Whether a name is neither a function nor a type nor an alias nor what a dot leads to."""
    before, after = words[index - 1], words[index + 1]
    if after.is_symbol("(") or after.kind in ("text", "bytes"):
        return False
    if before.kind == "number" or before.is_keyword("AS") or before.is_symbol("::"):
        return False
    if before.is_symbol("."):
        return owner is None or words[index - 2].text.lower() == owner
    if after.is_symbol("."):
        is_call = words[index + 3].is_symbol("(")
        return owner is not None and words[index].text.lower() != owner and not is_call
    return True


def _is_date_part(words: Sequence[Token], index: int, function: str) -> bool:
    """Whether a name is DAY in EXTRACT(DAY FROM t) or DATE_TRUNC(d, DAY), or TIME ZONE."""
    before, word, after = words[index - 1 : index + 2]
    if word.is_keyword("TIME") and after.is_keyword("ZONE"):
        return True
    if word.is_keyword("ZONE") and before.is_keyword("TIME"):
        return True
    if before.kind == "text":
        return words[index - 2].is_keyword("INTERVAL")
    if function == "EXTRACT":
        return before.is_symbol("(") and after.is_keyword("FROM")
    if not word.is_keyword(*_DATE_PARTS) or not before.is_symbol(","):
        return False
    return function.endswith("_TRUNC") or (
        after.is_symbol(")") and (function.endswith("_DIFF") or function == "LAST_DAY")
    )


@dataclass(slots=True)
class _Clause:
    """How far a query, or what else stands in brackets, has been read."""

    is_from: bool = False
    expects_object: bool = False


def object_names(query: str, dialect: Dialect) -> frozenset[str]:
    """The names in the FROM clauses of a query, in lower case and with their schema."""
    words = _words(query, dialect)
    found: set[str] = set()
    clauses = [_Clause()]
    for index, word in enumerate(words):
        clause = clauses[-1]
        if word.kind == "symbol" and word.text in _OPENING:
            # A join in brackets goes on with the clause that it stands in.
            clauses.append(_Clause(clause.expects_object, clause.expects_object))
            clause.expects_object = False
        elif word.kind == "symbol" and word.text in _CLOSING:
            if len(clauses) > 1:
                clauses.pop()
        elif word.is_keyword("FROM", "JOIN"):
            clause.is_from = clause.expects_object = True
        elif word.is_keyword(*_AFTER_FROM):
            clause.is_from = clause.expects_object = False
        elif word.is_symbol(","):
            clause.expects_object = clause.is_from
        elif word.kind in _NAMES and clause.expects_object:
            clause.expects_object = False
            if not words[index + 1].is_symbol("("):
                found.add(_object(words, index, dialect))
    return frozenset(found)


def _object(words: Sequence[Token], index: int, dialect: Dialect) -> str:
    name = words[index].text.lower()
    if not words[index + 1].is_symbol(".") or words[index + 2].kind not in _NAMES:
        return name
    own = words[index + 2].text.lower()
    return own if name == "public" and dialect == "POSTGRESQL" else f"{name}.{own}"


def _words(text: str, dialect: Dialect) -> list[Token]:
    words = Words(text, dialect=dialect)
    out = [_NOTHING, _NOTHING]
    while words.peek().kind != "end":
        out.append(words.take())
    return [*out, _NOTHING, _NOTHING, _NOTHING]
