"""The one scanner for SQL of both dialects: any text as tokens, and the values of literals.

Everything that reads SQL begins here: DDL statements and files, queries, and calls of a change
stream's read function.  Scanning never fails; text that no rule matches becomes a token of a
separate kind, and each reader rejects it with its own error.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal, cast

from spanner_simulator.core.lexicon import LEXICONS, Lexicon
from spanner_simulator.core.values import Dialect

TokenKind = Literal[
    "blank",
    "comment",
    # /*@ .. */ of PostgreSQL, with its end or up to the end of the text.
    "hint",
    "name",
    "quoted_name",
    "number",
    "text",
    "bytes",
    "parameter",
    "symbol",
    # A quote without a closing one.
    "open",
    # A character that starts nothing.
    "illegal",
    # After the last token, if a reader needs one there.
    "end",
]

_ESCAPE: Final = re.compile(
    r"\\(?:(?P<octal>[0-3][0-7]{2})|[xX](?P<hex>[0-9a-fA-F]{2})|u(?P<short>[0-9a-fA-F]{4})"
    r"|U(?P<long>[0-9a-fA-F]{8})|(?P<letter>.))",
    re.DOTALL,
)
_LETTERS: Final = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", "?": "?", '"': '"', "'": "'", "`": "`", "\n": "\n",
}  # fmt: skip
_CODE_MAX: Final = 0x10FFFF
_SURROGATES: Final = range(0xD800, 0xE000)


class EscapeError(ValueError):
    """An escape sequence in a literal that is not a character; its text is the message."""


@dataclass(frozen=True, slots=True)
class Token:
    """One lexical element from `at` up to, not including, `until`."""

    kind: TokenKind
    text: str
    at: int
    until: int

    def is_symbol(self, text: str) -> bool:
        """Whether this is the given punctuation."""
        return self.kind == "symbol" and self.text == text

    def is_keyword(self, *keywords: str) -> bool:
        """Whether this is one of the unquoted words (given in upper case), in whatever case."""
        return self.kind == "name" and self.text.upper() in keywords


def scan(sql: str, dialect: Dialect) -> list[Token]:
    """All tokens as written, including blanks and comments: together they are the whole text."""
    return [
        Token(cast("TokenKind", _kind(match)), match.group(), match.start(), match.end())
        for match in LEXICONS[dialect].pattern.finditer(sql)
    ]


def _kind(match: re.Match[str]) -> str:
    # The tag of a dollar-quoted text is a group too, inside of it.
    return "text" if match.lastgroup == "tag" else match.lastgroup or "illegal"


def is_skipped(token: Token) -> bool:
    """Whether a token only separates others."""
    return token.kind in ("blank", "comment", "hint")


def content(token: Token, dialect: Dialect) -> str | bytes:
    """The value of a token of `scan`: a name or literal without quotes and escapes.

    Raises `EscapeError`.
    """
    lexicon = LEXICONS[dialect]
    match token.kind:
        case "quoted_name":
            inner = token.text[1:-1]
            inside = lexicon.name_quote_inside
            return inner if inside is None else inner.replace(inside, lexicon.name_quote)
        case "parameter":
            return ("p" if dialect == "POSTGRESQL" else "") + token.text[1:]
        case "text" | "bytes":
            return _literal(token, lexicon)
        case _:
            return token.text


def _literal(token: Token, lexicon: Lexicon) -> str | bytes:
    if token.text.startswith("$"):
        tag = token.text.index("$", 1) + 1
        return token.text[tag:-tag]
    body = token.text.lstrip("rRbBeE")
    prefix = token.text[: len(token.text) - len(body)].lower()
    quotes = 3 if not lexicon.doubles_quotes and body[:3] in ("'''", '"""') else 1
    # The empty text does not begin a triple-quoted one.
    inner = body[quotes:-quotes] if len(body) >= 2 * quotes else ""
    if lexicon.doubles_quotes:
        inner = inner.replace("''", "'")
    only_after = lexicon.escapes_only_after
    has_escapes = "r" not in prefix if only_after is None else only_after in prefix
    if token.kind == "text":
        return _unescaped(inner, lexicon) if has_escapes else inner
    if not has_escapes:
        return inner.encode()
    # A character outside of ASCII becomes the bytes of its UTF-8 form.
    return _unescaped(inner.encode().decode("latin-1"), lexicon, is_bytes=True).encode("latin-1")


def _unescaped(text: str, lexicon: Lexicon, *, is_bytes: bool = False) -> str:
    """Escape sequences resolved; for bytes each character of the result is one byte."""

    def resolved(match: re.Match[str]) -> str:
        if match["octal"]:
            return chr(int(match["octal"], 8))
        if match["hex"]:
            return chr(int(match["hex"], 16))
        if digits := match["short"] or match["long"]:
            code = int(digits, 16)
            # Half of a surrogate pair is not a character: it could not even be sent back in an
            # error text.
            if is_bytes or code > _CODE_MAX or code in _SURROGATES:
                raise EscapeError(match.group())
            return chr(code)
        letter = match["letter"]
        if letter not in _LETTERS and not lexicon.any_escape:
            raise EscapeError(match.group())
        return _LETTERS.get(letter, letter)

    return _ESCAPE.sub(resolved, text) if "\\" in text else text
