"""A statement's text, made ready for the parser: literals and hints taken out, positions kept.

The parser sees every string literal as `'~N'`; what N stands for is decoded here by Spanner's own
rules (escapes, raw and triple-quoted strings, bytes). Hints become blanks. Any position that the
parser reports is led back to the text as written, for messages that end in `[at 1:15]`.
"""

from __future__ import annotations

import bisect
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

from tidegate.spanner_simulator.errors import Code, SpannerError

if TYPE_CHECKING:
    from tidegate.spanner_simulator.core.values import Dialect

__all__ = ["Hint", "StatementText", "read_statement_text"]

_EXCERPT_MAX = 80
_GOOGLE = re.compile(
    r"""
      (?P<comment> \#[^\n]* | --[^\n]* | /\*.*?\*/ )
    | (?P<hint> @\s*\{ )
    | (?P<quoted> `(?:\\.|[^`\\])*` )
    | (?P<literal> (?P<prefix> \b(?:[rR][bB]?|[bB][rR]?))?
        (?: ''' (?:\\.|[^\\])*? ''' | \"\"\" (?:\\.|[^\\])*? \"\"\"
          | '(?:\\.|[^'\\\n])*' | "(?:\\.|[^"\\\n])*" ) )
    | (?P<open> ['"`] )
    | (?P<word> [A-Za-z_0-9$]+ )
    """,
    re.VERBOSE | re.DOTALL,
)
_POSTGRES = re.compile(
    r"""
      (?P<hint> /\*@ )
    | (?P<comment> --[^\n]* | /\*.*?\*/ )
    | (?P<quoted> "(?:""|[^"])*" )
    | (?P<literal> (?P<prefix> \b[eE])' (?:\\.|''|[^'\\])* ' | '(?:''|[^'])*' )
    | (?P<dollar> \$(?P<tag>[A-Za-z_]*)\$(?P<body>.*?)\$(?P=tag)\$ )
    | (?P<open> ['"] )
    | (?P<word> [A-Za-z_0-9]+ | \$[0-9]+ )
    """,
    re.VERBOSE | re.DOTALL,
)
_HINT_ENTRY = re.compile(r"\s*([A-Za-z_][A-Za-z_0-9.]*)\s*=\s*([^,]+?)\s*")
_ESCAPE = re.compile(
    r"\\(?:(?P<octal>[0-3][0-7]{2})|[xX](?P<hex>[0-9a-fA-F]{2})|u(?P<u4>[0-9a-fA-F]{4})"
    r"|U(?P<u8>[0-9a-fA-F]{8})|(?P<one>.))",
    re.DOTALL,
)
_SIMPLE_ESCAPES = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", "?": "?", '"': '"', "'": "'", "`": "`", "\n": "\n",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Hint:
    """One `name=value`; `after` is where, in the text for the parser, the hinted name ends."""

    name: str
    value: str
    after: int


@dataclass(frozen=True, slots=True)
class StatementText:
    """`parsed` is for the parser; `literals` are what its `'~N'` stand for."""

    written: str
    parsed: str
    literals: tuple[str | bytes, ...]
    hints: tuple[Hint, ...]
    _shifts: tuple[tuple[int, int], ...] = field(repr=False)

    def written_position(self, parsed_position: int) -> int:
        """Where in the text as written something stands."""
        index = bisect.bisect_right(self._shifts, (parsed_position, 10**9)) - 1
        return parsed_position + (self._shifts[index][1] if index >= 0 else 0)

    def located(self, message: str, parsed_position: int | None) -> str:
        """A message with `[at line:column]`, the line, and a caret below it."""
        if parsed_position is None:
            return message
        return _located(self.written, message, self.written_position(parsed_position))

    def error(self, message: str, parsed_position: int | None = None) -> SpannerError:
        """INVALID_ARGUMENT with the place, where it is known."""
        return SpannerError(Code.INVALID_ARGUMENT, self.located(message, parsed_position))


def read_statement_text(sql: str, dialect: Dialect) -> StatementText:
    """Take a statement's literals and hints out. Raises `SpannerError` for an open literal."""
    pattern = _GOOGLE if dialect == "GOOGLE_STANDARD_SQL" else _POSTGRES
    pieces: list[str] = []
    literals: list[str | bytes] = []
    hints: list[Hint] = []
    shifts: list[tuple[int, int]] = []
    at = size = 0

    def put(text: str, *, source_length: int) -> None:
        nonlocal size
        pieces.append(text)
        size += len(text)
        if len(text) != source_length:
            shifts.append((size, at + source_length - size))

    while at < len(sql):
        found = pattern.search(sql, at)
        if found is None:
            put(sql[at:], source_length=len(sql) - at)
            break
        put(sql[at : found.start()], source_length=found.start() - at)
        at = found.start()
        length = found.end() - at
        match found.lastgroup:
            case "comment":
                put(" " * length, source_length=length)
            case "hint":
                length = _read_hint(sql, found, dialect, before="".join(pieces), hints=hints) - at
                put(" " * length, source_length=length)
            case "literal":
                literal = _decode_literal(sql, found, dialect)
                prefix = "b" if isinstance(literal, bytes) else ""
                literals.append(literal)
                put(f"{prefix}'~{len(literals) - 1}'".ljust(length), source_length=length)
            case "dollar":
                literals.append(found["body"])
                put(f"'~{len(literals) - 1}'".ljust(length), source_length=length)
            case "open":
                raise _syntax_error(sql, "Unclosed string literal", at, dialect)
            case _:
                put(found.group(), source_length=length)
        at += length
    return StatementText(sql, "".join(pieces), tuple(literals), tuple(hints), tuple(shifts))


def _syntax_error(sql: str, message: str, at: int, dialect: Dialect) -> SpannerError:
    if dialect == "POSTGRESQL":
        return SpannerError(
            Code.INVALID_ARGUMENT,
            f'[ERROR] unterminated quoted string at or near "{sql[at:][:40]}"',
        )
    return SpannerError(Code.INVALID_ARGUMENT, _located(sql, f"Syntax error: {message}", at))


def _read_hint(
    sql: str, found: re.Match[str], dialect: Dialect, *, before: str, hints: list[Hint]
) -> int:
    """Add a hint's entries; where the hint ends."""
    closing = "}" if dialect == "GOOGLE_STANDARD_SQL" else "*/"
    end = sql.find(closing, found.end())
    if end < 0:
        raise _syntax_error(sql, "Unclosed hint", found.start(), dialect)
    after = len(before.rstrip()) if before.strip() else 0
    for entry in sql[found.end() : end].split(","):
        read = _HINT_ENTRY.fullmatch(entry)
        if read is None:
            raise _syntax_error(sql, f"Malformed hint {entry.strip()!r}", found.start(), dialect)
        hints.append(Hint(read.group(1).lower(), read.group(2).strip("`'\""), after))
    return end + len(closing)


def _decode_literal(sql: str, found: re.Match[str], dialect: Dialect) -> str | bytes:
    prefix = (found["prefix"] or "").lower()
    body = found["literal"][len(prefix) :]
    if dialect == "POSTGRESQL":
        inner = body[1:-1].replace("''", "'")
        return _unescape(sql, found, inner, is_bytes=False) if prefix == "e" else inner
    quotes = 3 if body[:3] in ("'''", '"""') and len(body) >= 6 else 1
    inner = body[quotes:-quotes]
    if "r" in prefix:
        return inner.encode() if "b" in prefix else inner
    if "b" in prefix:
        return _unescape(sql, found, inner, is_bytes=True).encode("latin-1")
    return _unescape(sql, found, inner, is_bytes=False)


def _unescape(sql: str, found: re.Match[str], inner: str, *, is_bytes: bool) -> str:
    """Resolve escapes; for bytes each character of the result is one byte."""

    def refuse(text: str) -> NoReturn:
        raise SpannerError(
            Code.INVALID_ARGUMENT,
            _located(sql, f"Syntax error: Illegal escape sequence: {text}", found.start("literal")),
        )

    def one(escape: re.Match[str]) -> str:
        text = escape.group()
        if escape["octal"] or escape["hex"]:
            number = int(escape["octal"], 8) if escape["octal"] else int(escape["hex"], 16)
            return chr(number)
        if escape["u4"] or escape["u8"]:
            number = int(escape["u4"] or escape["u8"], 16)
            if is_bytes or number > 0x10FFFF or 0xD800 <= number < 0xE000:
                refuse(text)
            return chr(number)
        if escape["one"] not in _SIMPLE_ESCAPES:
            refuse(text)
        return _SIMPLE_ESCAPES[escape["one"]]

    if is_bytes:  # a character outside of ASCII stands for the bytes of its UTF-8 form
        inner = inner.encode().decode("latin-1")
    return _ESCAPE.sub(one, inner) if "\\" in inner else inner


def _located(written: str, message: str, position: int) -> str:
    position = min(position, len(written))
    start = written.rfind("\n", 0, position) + 1
    end = written.find("\n", position)
    line = written[start : len(written) if end < 0 else end].rstrip("\r")
    column = position - start
    number = written.count("\n", 0, position) + 1
    shown, caret = line, column
    if len(line) > _EXCERPT_MAX:
        first = max(0, column - 52) if column > _EXCERPT_MAX - 24 else 0
        lead = "..." if first else ""
        room = _EXCERPT_MAX - 3 - len(lead)
        shown = lead + line[first : first + room]
        shown += "..." if first + room < len(line) else ""
        caret = column - first + len(lead)
    return f"{message} [at {number}:{column + 1}]\n{shown}\n{' ' * caret}^"
