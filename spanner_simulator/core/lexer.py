"""Words of both SQL dialects, shared by the DDL parsers, the query parser and the stream call.

`Words` is a cursor with the few moves that a recursive-descent parser needs; keywords are compared
without regard to case, and a quoted identifier never counts as a keyword. Unquoted PostgreSQL
identifiers are folded to lower case and cut to 63 characters by `name()`, as the server does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NoReturn

from tidegate.spanner_simulator.errors import Code, SpannerError

if TYPE_CHECKING:
    from tidegate.spanner_simulator.core.values import Dialect

__all__ = ["Word", "WordKind", "Words"]

WordKind = Literal["name", "quoted_name", "number", "text", "bytes", "parameter", "symbol", "end"]

_GOOGLE = re.compile(
    r"""
    (?P<blank>\s+|--[^\n]*|\#[^\n]*|/\*.*?\*/)
    |(?P<bytes>(?:[bB][rR]?|[rR][bB])(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"))
    |(?P<text>[rR]?(?:'{3}(?:[^\\]|\\.)*?'{3}|"{3}(?:[^\\]|\\.)*?"{3}
        |'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"))
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<number>0[xX][0-9a-fA-F]+|\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)
    |(?P<quoted_name>`[^`]+`)
    |(?P<parameter>@[A-Za-z_][A-Za-z0-9_]*)
    |(?P<symbol>=>|<=|>=|<>|!=|\|\||[-+*/(),.<>=;@{}\[\]&|^~%:])
    """,
    re.VERBOSE | re.DOTALL,
)
_POSTGRES = re.compile(
    r"""
    (?P<blank>\s+|--[^\n]*|/\*.*?\*/)
    |(?P<text>[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$)
    |(?P<parameter>\$\d+)
    |(?P<name>[A-Za-z_\u0080-\U0010ffff][A-Za-z0-9_$\u0080-\U0010ffff]*)
    |(?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)
    |(?P<quoted_name>"(?:[^"]|"")+")
    |(?P<symbol>::|=>|<=|>=|<>|!=|\|\||->>|->|[-+*/(),.<>=;@{}\[\]&|^~%:?!\#])
    """,
    re.VERBOSE | re.DOTALL,
)
_KINDS: dict[str, WordKind] = {
    "name": "name",
    "quoted_name": "quoted_name",
    "number": "number",
    "text": "text",
    "bytes": "bytes",
    "parameter": "parameter",
    "symbol": "symbol",
}
_POSTGRES_NAME_MAX = 63
_ESCAPE = re.compile(
    r"\\(?:(?P<octal>[0-7]{3})|[xX](?P<hex>[0-9a-fA-F]{2})|u(?P<short>[0-9a-fA-F]{4})"
    r"|U(?P<long>[0-9a-fA-F]{8})|(?P<letter>.))",
    re.DOTALL,
)
_CODE_MAX = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)
_GOOGLE_LETTERS = "abfnrtv\\?\"'`\n0"
_LETTERS = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "0": "\0",
}


class _EscapeError(ValueError):
    """An escape sequence in a text that stands for no character."""


@dataclass(frozen=True, slots=True)
class Word:
    """One lexical element; `text` is unquoted and unescaped.

    `at` and `until` are its offsets in the statement, quotes included.
    """

    kind: WordKind
    text: str
    at: int
    until: int

    def is_symbol(self, text: str) -> bool:
        """Whether this is the given punctuation."""
        return self.kind == "symbol" and self.text == text

    def is_keyword(self, *keywords: str) -> bool:
        """Whether this is one of the unquoted words, in whatever case."""
        return self.kind == "name" and self.text.upper() in keywords


class Words:
    """The words of one statement and a position in them.

    Every refusal is a `SpannerError` INVALID_ARGUMENT that says what was expected and where.
    """

    def __init__(
        self,
        statement: str,
        *,
        what: str = "Syntax error",
        dialect: Dialect = "GOOGLE_STANDARD_SQL",
    ) -> None:
        self.statement = statement
        self.dialect: Dialect = dialect
        self._what = what
        self._words = self._split(statement)
        self._position = 0

    def _split(self, statement: str) -> list[Word]:
        pattern = _GOOGLE if self.dialect == "GOOGLE_STANDARD_SQL" else _POSTGRES
        unquote = _google_text if self.dialect == "GOOGLE_STANDARD_SQL" else _postgres_text
        words: list[Word] = []
        at = 0
        while at < len(statement):
            found = pattern.match(statement, at)
            if found is None:
                self.refuse_character(at)
            group, text, until = found.lastgroup or "blank", found.group(), found.end()
            kind = _KINDS.get(group)
            if kind is not None:
                try:
                    words.append(Word(kind, unquote(kind, text), at, until))
                except _EscapeError as error:
                    line, column = self.line_and_column(at)
                    raise SpannerError(
                        Code.INVALID_ARGUMENT, f"{self._what}: {error} [at {line}:{column}]"
                    ) from error
            at = until
        words.append(Word("end", "", at, at))
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
        """An identifier, quoted or not; an unquoted one of PostgreSQL in lower case."""
        word = self.peek()
        if word.kind not in ("name", "quoted_name"):
            self.refuse(f"Expected {what}")
        self.take()
        if self.dialect == "GOOGLE_STANDARD_SQL":
            return word.text
        folded = word.text.lower() if word.kind == "name" else word.text
        return folded[:_POSTGRES_NAME_MAX]

    def at_end(self) -> bool:
        """Whether nothing but a closing semicolon is left."""
        while self.peek().is_symbol(";"):
            self._position += 1
        return self.peek().kind == "end"

    def expect_end(self) -> None:
        """Refuse anything that is left."""
        if not self.at_end():
            self.refuse("Expected end of input")

    def line_and_column(self, at: int) -> tuple[int, int]:
        """Where an offset is, both counted from 1."""
        line = self.statement.count("\n", 0, at) + 1
        return line, at - (self.statement.rfind("\n", 0, at) + 1) + 1

    def refuse(self, expectation: str) -> NoReturn:
        """Raise INVALID_ARGUMENT that names what stands here instead."""
        word = self.peek()
        found = "end of statement" if word.kind == "end" else f'"{word.text}"'
        line, column = self.line_and_column(word.at)
        raise SpannerError(
            Code.INVALID_ARGUMENT,
            f"{self._what}: {expectation} but got {found} [at {line}:{column}]",
        )

    def refuse_character(self, at: int) -> NoReturn:
        """Raise INVALID_ARGUMENT for a character that starts no word."""
        line, column = self.line_and_column(at)
        character = self.statement[at]
        raise SpannerError(
            Code.INVALID_ARGUMENT,
            f"{self._what}: Illegal input character {character!r} [at {line}:{column}]",
        )


def _google_text(kind: WordKind, text: str) -> str:
    match kind:
        case "quoted_name":
            return text[1:-1]
        case "parameter":
            return text[1:]
        case "text" | "bytes":
            prefix = len(text) - len(text.lstrip("rRbB"))
            body = text[prefix:]
            quotes = 3 if body[:3] in ("'''", '"""') and len(body) > 5 else 1
            body = body[quotes:-quotes]
            return body if "r" in text[:prefix].lower() else _unescape(body, _GOOGLE_LETTERS)
        case _:
            return text


def _postgres_text(kind: WordKind, text: str) -> str:
    match kind:
        case "quoted_name":
            return text[1:-1].replace('""', '"')
        case "parameter":
            return "p" + text[1:]
        case "text" if text.startswith("$"):
            tag = text.index("$", 1) + 1
            return text[tag:-tag]
        case "text" if text[0] in "eE":
            return _unescape(text[2:-1].replace("''", "'"), None)
        case "text":
            return text[1:-1].replace("''", "'")
        case _:
            return text


def _unescape(text: str, letters: str | None) -> str:
    """Escape sequences resolved; a letter not among `letters` has none. None: any means itself."""

    def resolved(found: re.Match[str]) -> str:
        if found["octal"]:
            return chr(int(found["octal"], 8))
        digits = found["hex"] or found["short"] or found["long"]
        if digits:
            code = int(digits, 16)
            # Half of a pair is no character: it could not even be sent back in an error text.
            if code > _CODE_MAX or code in _SURROGATES:
                raise _EscapeError(f"Illegal escape sequence: {found.group()}")
            return chr(code)
        letter = found["letter"]
        if letters is not None and letter not in letters:
            raise _EscapeError(f"Illegal escape sequence: {found.group()}")
        return _LETTERS.get(letter, letter)

    return _ESCAPE.sub(resolved, text) if "\\" in text else text
