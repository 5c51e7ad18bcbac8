"""The column names that an SQL text uses, as far as words alone show.

The core does not parse SQL: a generated column, a check or a default is text here.  Its
dependencies must still be known when a column is dropped.  A word counts as a column's name unless
it is a reserved word, a function, an alias after AS, the type of a literal or a cast, or part of a
date.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from spanner_simulator.core.lexicon import LEXICONS
from spanner_simulator.core.tokens import Token, content, is_skipped, scan
from spanner_simulator.core.values import Dialect

_NAMES = ("name", "quoted_name")
_DATE_PARTS = frozenset(
    (
        "NANOSECOND", "MICROSECOND", "MILLISECOND", "SECOND", "MINUTE", "HOUR", "DAY", "DAYOFWEEK",
        "DAYOFYEAR", "WEEK", "ISOWEEK", "MONTH", "QUARTER", "YEAR", "ISOYEAR",
    )
)  # fmt: skip
# Added on both sides of a text, so that every word has neighbours.
_NOTHING = Token("end", "", 0, 0)


def column_names(expression: str, dialect: Dialect, *, table: str) -> frozenset[str]:
    """The names in an expression over a row of a table that may be columns, in lower case.

    In GoogleSQL a name after a dot is a field of the column before it; in PostgreSQL it is a column
    of a table.
    """
    words = _words(expression, dialect)
    reserved = LEXICONS[dialect].reserved
    owner = None
    if dialect == "GOOGLE_STANDARD_SQL":
        owner = table.rpartition(".")[2].lower()
    functions: list[str] = []
    names: set[str] = set()
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
            names.add(word.text.lower())
    return frozenset(names)


def _is_value(words: Sequence[Token], index: int, owner: str | None) -> bool:
    """Whether a name is not a function, a type, an alias or a name after a dot."""
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


def _words(text: str, dialect: Dialect) -> list[Token]:
    words = [
        replace(token, text=str(content(token, dialect))) if token.kind in _NAMES else token
        for token in scan(text, dialect)
        if not is_skipped(token)
    ]
    return [_NOTHING, _NOTHING, *words, _NOTHING, _NOTHING, _NOTHING]
