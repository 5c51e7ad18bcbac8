"""Words of GoogleSQL, shared by the DDL parser, the query parser and the change stream call.

`Words` is a cursor with the few moves that a recursive-descent parser needs; keywords are compared
without regard to case, and a quoted identifier never counts as a keyword.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, NoReturn

from tidegate.spanner_simulator.errors import Code, SpannerError

__all__ = ["Word", "WordKind", "Words"]

WordKind = Literal["name", "quoted_name", "number", "text", "parameter", "symbol", "end"]

_PATTERN = re.compile(
    r"""
    (?P<blank>\s+|--[^\n]*|\#[^\n]*|/\*.*?\*/)
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+)
    |(?P<quoted_name>`[^`]+`)
    |(?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
    |(?P<parameter>@[A-Za-z_][A-Za-z0-9_]*)
    |(?P<symbol>=>|<=|>=|<>|!=|\|\||[-+*/(),.<>=;@{}\[\]])
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0"}


@dataclass(frozen=True, slots=True)
class Word:
    """One lexical element; `text` is unquoted and unescaped, `at` its offset in the statement."""

    kind: WordKind
    text: str
    at: int

    def is_symbol(self, text: str) -> bool:
        """Whether this is the given punctuation."""
        return self.kind == "symbol" and self.text == text

    def is_keyword(self, keyword: str) -> bool:
        """Whether this is the unquoted word, in whatever case."""
        return self.kind == "name" and self.text.upper() == keyword


class Words:
    """The words of one statement and a position in them.

    Every refusal is a `SpannerError` INVALID_ARGUMENT that says what was expected and where.
    """

    def __init__(self, statement: str, *, what: str = "Syntax error") -> None:
        self.statement = statement
        self._what = what
        self._words = list(self._split(statement))
        self._position = 0

    def _split(self, statement: str) -> list[Word]:
        words: list[Word] = []
        at = 0
        while at < len(statement):
            found = _PATTERN.match(statement, at)
            if found is None:
                raise SpannerError(
                    Code.INVALID_ARGUMENT,
                    f"{self._what}: Illegal input character {statement[at]!r} [at 1:{at + 1}]",
                )
            kind, text = found.lastgroup, found.group()
            match kind:
                case "name" | "number" | "symbol":
                    words.append(Word(kind, text, at))
                case "quoted_name":
                    words.append(Word("quoted_name", text[1:-1], at))
                case "text":
                    words.append(Word("text", _unescape(text[1:-1]), at))
                case "parameter":
                    words.append(Word("parameter", text[1:], at))
                case _:
                    pass
            at = found.end()
        words.append(Word("end", "", at))
        return words

    def peek(self, ahead: int = 0) -> Word:
        """The word `ahead` places on, without moving."""
        return self._words[min(self._position + ahead, len(self._words) - 1)]

    def take(self) -> Word:
        """The next word, moving past it."""
        word = self.peek()
        self._position = min(self._position + 1, len(self._words) - 1)
        return word

    def accept(self, *keywords: str) -> bool:
        """Move past these keywords if all of them follow."""
        for ahead, keyword in enumerate(keywords):
            if not self.peek(ahead).is_keyword(keyword):
                return False
        self._position += len(keywords)
        return True

    def accept_symbol(self, symbol: str) -> bool:
        """Move past this punctuation if it follows."""
        if not self.peek().is_symbol(symbol):
            return False
        self._position += 1
        return True

    def expect(self, *keywords: str) -> None:
        """Move past these keywords, or refuse."""
        if not self.accept(*keywords):
            self.refuse(f"Expected {' '.join(keywords)}")

    def expect_symbol(self, symbol: str) -> None:
        """Move past this punctuation, or refuse."""
        if not self.accept_symbol(symbol):
            self.refuse(f'Expected "{symbol}"')

    def name(self, what: str = "identifier") -> str:
        """An identifier, quoted or not."""
        word = self.peek()
        if word.kind not in ("name", "quoted_name"):
            self.refuse(f"Expected {what}")
        return self.take().text

    def at_end(self) -> bool:
        """Whether nothing but a closing semicolon is left."""
        while self.peek().is_symbol(";"):
            self._position += 1
        return self.peek().kind == "end"

    def expect_end(self) -> None:
        """Refuse anything that is left."""
        if not self.at_end():
            self.refuse("Expected end of input")

    def refuse(self, expectation: str) -> NoReturn:
        """Raise INVALID_ARGUMENT that names what stands here instead."""
        word = self.peek()
        found = "end of statement" if word.kind == "end" else f'"{word.text}"'
        line = self.statement.count("\n", 0, word.at) + 1
        column = word.at - (self.statement.rfind("\n", 0, word.at) + 1) + 1
        raise SpannerError(
            Code.INVALID_ARGUMENT,
            f"{self._what}: {expectation} but got {found} [at {line}:{column}]",
        )


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m.group(1), m.group(1)), text, flags=re.DOTALL)
