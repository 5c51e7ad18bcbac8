"""A statement's text prepared for the parser: literals and hints removed, positions kept.

The parser sees every string literal as `'~N'`; literal N is decoded here by Spanner's own rules
(`tokens`).  Hints become blanks.  Any position that the parser reports is mapped back to the text
as written, for messages that end in `[at 1:15]`.
"""

from __future__ import annotations

import bisect
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from spanner_simulator.core.tokens import EscapeError, content, scan
from spanner_simulator.errors import SpannerError, invalid_argument

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spanner_simulator.core.tokens import Token
    from spanner_simulator.core.values import Dialect


_HINT_ENTRY = re.compile(r"\s*([A-Za-z_][A-Za-z_0-9.]*)\s*=\s*([^,]+?)\s*")


@dataclass(frozen=True, slots=True)
class Hint:
    """One `name=value`; `after` is the end of the hinted name in the text for the parser."""

    name: str
    value: str
    after: int


@dataclass(frozen=True, slots=True)
class StatementText:
    """`parsed` is for the parser; `literals` are the values of its `'~N'`."""

    written: str
    parsed: str
    literals: tuple[str | bytes, ...]
    hints: tuple[Hint, ...]
    _shifts: tuple[tuple[int, int], ...] = field(repr=False)

    def written_position(self, parsed_position: int) -> int:
        """The position in the text as written."""
        index = bisect.bisect_right(self._shifts, (parsed_position, 10**9)) - 1
        return parsed_position + (self._shifts[index][1] if index >= 0 else 0)

    def located(self, message: str, parsed_position: int | None) -> str:
        """A message with `[at line:column]`, the line, and a caret below it."""
        if parsed_position is None:
            return message
        return _located(self.written, message, self.written_position(parsed_position))

    def error(self, message: str, parsed_position: int | None = None) -> SpannerError:
        """INVALID_ARGUMENT with the position, if it is known."""
        return invalid_argument(self.located(message, parsed_position))


def read_statement_text(sql: str, dialect: Dialect) -> StatementText:
    """Remove a statement's literals and hints.  Raises `SpannerError` for an unclosed literal."""
    pieces: list[str] = []
    literals: list[str | bytes] = []
    hints: list[Hint] = []
    shifts: list[tuple[int, int]] = []
    position = size = 0

    def put(text: str, *, source_length: int) -> None:
        nonlocal size
        pieces.append(text)
        size += len(text)
        if len(text) != source_length:
            shifts.append((size, position + source_length - size))

    tokens = scan(sql, dialect)
    for index, token in enumerate(tokens):
        if token.at < position:  # inside of a hint
            continue
        length = token.until - position
        if token.kind == "comment":
            put(" " * length, source_length=length)
        elif (opened := _opened_hint(tokens, index)) is not None:
            length = (
                _read_hint(sql, position, opened, dialect, before="".join(pieces), hints=hints)
                - position
            )
            put(" " * length, source_length=length)
        elif token.kind in ("text", "bytes"):
            literal = _decode_literal(sql, token, dialect)
            prefix = "b" if isinstance(literal, bytes) else ""
            literals.append(literal)
            put(f"{prefix}'~{len(literals) - 1}'".ljust(length), source_length=length)
        elif token.kind == "open":
            raise _syntax_error(sql, "Unclosed string literal", position)
        else:
            put(token.text, source_length=length)
        position += length
    return StatementText(sql, "".join(pieces), tuple(literals), tuple(hints), tuple(shifts))


def _syntax_error(sql: str, message: str, position: int) -> SpannerError:
    return invalid_argument(_located(sql, f"Syntax error: {message}", position))


def _opened_hint(tokens: Sequence[Token], index: int) -> int | None:
    """Where the entries of a hint begin, if one begins here: `@{` or `/*@`."""
    token = tokens[index]
    if token.kind == "hint":
        return token.at + len("/*@")
    if token.is_symbol("@"):
        following = next(
            (later_token for later_token in tokens[index + 1 :] if later_token.kind != "blank"),
            None,
        )
        if following is not None and following.is_symbol("{"):
            return following.until
    return None


def _read_hint(
    sql: str, position: int, opened: int, dialect: Dialect, *, before: str, hints: list[Hint]
) -> int:
    """Add the entries of the hint at `position`, which begin at `opened`; return its end."""
    closing = "}" if dialect == "GOOGLE_STANDARD_SQL" else "*/"
    end = sql.find(closing, opened)
    if end < 0:
        raise _syntax_error(sql, "Unclosed hint", position)
    after = len(before.rstrip()) if before.strip() else 0
    for entry in sql[opened:end].split(","):
        read = _HINT_ENTRY.fullmatch(entry)
        if read is None:
            raise _syntax_error(sql, f"Malformed hint {entry.strip()!r}", position)
        hints.append(Hint(read.group(1).lower(), read.group(2).strip("`'\""), after))
    return end + len(closing)


def _decode_literal(sql: str, token: Token, dialect: Dialect) -> str | bytes:
    try:
        return content(token, dialect)
    except EscapeError as error:
        message = f"Syntax error: Illegal escape sequence: {error}"
        raise invalid_argument(_located(sql, message, token.at)) from error


def _located(written: str, message: str, position: int) -> str:
    position = min(position, len(written))
    start = written.rfind("\n", 0, position) + 1
    end = written.find("\n", position)
    line = written[start : len(written) if end < 0 else end].rstrip("\r")
    column = position - start
    number = written.count("\n", 0, position) + 1
    return f"{message} [at {number}:{column + 1}]\n{line}\n{' ' * column}^"
