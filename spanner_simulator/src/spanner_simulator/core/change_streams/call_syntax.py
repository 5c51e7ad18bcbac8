"""The parsed call of a read function: its name, its arguments, and whether the statement has more.

Knows the words of both dialects as far as such a call needs them, but no catalogue and no values.
Other statements are only read far enough to find that they call no read function.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from spanner_simulator.core.change_streams.query_errors import located
from spanner_simulator.core.lexicon import LEXICONS
from spanner_simulator.core.tokens import EscapeError, Token, content, is_skipped, scan
from spanner_simulator.core.values import Dialect

ARGUMENT_NAMES = (
    "start_timestamp",
    "end_timestamp",
    "partition_token",
    "heartbeat_milliseconds",
    "read_options",
)
_FUNCTION = re.compile(r"read_(?:json_|proto_bytes_)?.", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A query parameter by its lower-case name; PostgreSQL's `$1` is `p1`."""

    name: str


@dataclass(frozen=True, slots=True)
class LiteralValue:
    """A literal; `text` is its content, None for NULL."""

    kind: Literal["null", "text", "timestamp", "integer", "float", "array"]
    text: str | None


@dataclass(frozen=True, slots=True)
class Expression:
    """Any other argument, which is not allowed."""


Argument: TypeAlias = Parameter | LiteralValue | Expression


@dataclass(frozen=True, slots=True)
class CallSyntax:
    """A statement that calls a read function, whether or not the function exists.

    `function` is the name as the dialect folds it, `at` its position.  `columns` are the words
    between SELECT and FROM. `is_alone`: the statement is one SELECT with nothing but the call.
    """

    function: str
    at: int
    schema: str | None
    columns: tuple[Token, ...]
    is_alone: bool
    positional: tuple[Argument, ...]
    named: tuple[tuple[str, int, Argument], ...]


def _split(sql: str, dialect: Dialect) -> list[Token]:
    tokens: list[Token] = []
    for token in scan(sql, dialect):
        if token.kind == "open":
            tokens.append(replace(token, text=sql[token.at :], until=len(sql)))
            break
        if token.kind == "hint" or not is_skipped(token):
            tokens.append(token)
    tokens.append(Token("end", "", len(sql), len(sql)))
    return tokens


def find_call(sql: str, dialect: Dialect) -> CallSyntax | None:
    """The call of a read function in a statement; None when there is none.

    Raises INVALID_ARGUMENT for one whose argument list is broken.
    """
    if "read_" not in sql.lower():
        return None
    words = _split(sql, dialect)
    for index, word in enumerate(words):
        if not word.is_keyword("FROM", "JOIN") and not word.is_symbol(","):
            continue
        after = words[index + 1]
        schema = None
        start = index + 1
        if words[start + 1 : start + 2] and words[start + 1].is_symbol("."):
            schema = _identifier(after, dialect)
            start += 2
        name = words[min(start, len(words) - 1)]
        following = words[min(start + 1, len(words) - 1)]
        if name.kind not in ("name", "quoted_name") or not following.is_symbol("("):
            continue
        function = _identifier(name, dialect)
        if _FUNCTION.match(function) is not None:
            return _Reader(sql, dialect, words).read(index, start, function, schema)
    return None


def _identifier(word: Token, dialect: Dialect) -> str:
    name = str(content(word, dialect))
    return name.lower() if word.kind == "name" and LEXICONS[dialect].folds_names else name


class _Reader:
    """Reads a call in the words of one statement."""

    def __init__(self, sql: str, dialect: Dialect, words: list[Token]) -> None:
        self._sql = sql
        self._dialect = dialect
        self._words = words
        self._at = 0

    def read(self, source: int, name: int, function: str, schema: str | None) -> CallSyntax:
        columns = tuple(self._words[1:source])
        is_alone = self._words[0].is_keyword("SELECT") and self._words[source].is_keyword("FROM")
        is_alone = is_alone and not any(token.is_keyword("SELECT", "FROM") for token in columns)
        self._at = name + 2
        positional, named = self._arguments(function)
        is_alone = is_alone and self._is_end()
        at = self._words[source + 1].at
        return CallSyntax(function, at, schema, columns, is_alone, tuple(positional), tuple(named))

    def _is_end(self) -> bool:
        self._at += self._peek().is_symbol(";")
        return self._peek().kind == "end"

    def _peek(self, ahead: int = 0) -> Token:
        return self._words[min(self._at + ahead, len(self._words) - 1)]

    def _arguments(self, function: str) -> tuple[list[Argument], list[tuple[str, int, Argument]]]:
        positional: list[Argument] = []
        named: list[tuple[str, int, Argument]] = []
        if self._peek().is_symbol(")"):
            self._at += 1
            return positional, named
        while True:
            start = self._peek()
            if start.kind in ("name", "quoted_name") and self._peek(1).is_symbol("=>"):
                self._at += 2
                named.append(
                    (_identifier(start, "GOOGLE_STANDARD_SQL"), start.at, self._argument())
                )
            elif named:
                first = named[0]
                raise located(
                    f"Call to function {function} must not specify positional arguments after "
                    "named arguments; named arguments must be specified last in the argument list",
                    self._sql,
                    first[1],
                )
            else:
                positional.append(self._argument())
            closing = self._peek()
            self._at += 1
            if closing.is_symbol(")"):
                return positional, named
            if not closing.is_symbol(","):
                got = "end of statement" if closing.kind == "end" else f'"{closing.text}"'
                raise located(
                    f'Syntax error: Expected ")" or "," but got {got}', self._sql, closing.at
                )

    def _argument(self) -> Argument:
        """One argument, up to the comma or bracket after it."""
        words: list[Token] = []
        depth = 0
        while True:
            word = self._peek()
            if word.kind == "end" or (depth == 0 and (word.is_symbol(",") or word.is_symbol(")"))):
                break
            depth += word.text in ("(", "[") and word.kind == "symbol"
            depth -= word.text in (")", "]") and word.kind == "symbol"
            words.append(word)
            self._at += 1
        if not words:
            word = self._peek()
            got = "end of statement" if word.kind == "end" else f'"{word.text}"'
            raise located(f"Syntax error: Unexpected {got}", self._sql, word.at)
        try:
            return _classify(words, self._dialect)
        except EscapeError as error:
            raise located(
                f"Syntax error: Illegal escape sequence: {error}", self._sql, words[0].at
            ) from error


def _classify(words: list[Token], dialect: Dialect) -> Argument:
    *before, last = words
    if not before:
        return _single(last, dialect)
    if last.kind == "text" and [word.text.upper() for word in before] == ["TIMESTAMP"]:
        return LiteralValue("timestamp", str(content(last, dialect)))
    if words[0].text == "[" or (words[0].is_keyword("ARRAY") and words[1].text in ("[", "<")):
        return LiteralValue("array", " ".join(word.text for word in words))
    return Expression()


def _single(word: Token, dialect: Dialect) -> Argument:
    match word.kind:
        case "parameter":
            return Parameter(str(content(word, dialect)).lower())
        case "text":
            return LiteralValue("text", str(content(word, dialect)))
        case "number":
            return LiteralValue("integer" if word.text.isdigit() else "float", word.text)
        case "name" if word.is_keyword("NULL"):
            return LiteralValue("null", None)
        case _:
            return Expression()
