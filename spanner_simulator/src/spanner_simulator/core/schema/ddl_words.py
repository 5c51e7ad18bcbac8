"""The words of a DDL statement, with the moves and the error texts of either dialect's parser.

GoogleSQL's parser says what it expected and where; PostgreSQL's only what it stumbled over. Both
texts are the service's own.
"""

from __future__ import annotations

import re
from typing import NoReturn

from spanner_simulator.core.lexer import Words
from spanner_simulator.core.lexicon import LEXICONS
from spanner_simulator.core.values import Dialect
from spanner_simulator.errors import Code, SpannerError

# Enough for whatever is counted here; Python itself refuses to read numbers without end.
_DIGITS_MAX = 19
_OPEN = {"(": ")", "[": "]", "{": "}"}


def unsupported(what: str) -> SpannerError:
    """UNIMPLEMENTED that names a construct."""
    return SpannerError(Code.UNIMPLEMENTED, f"The simulator does not support: {what}")


class DdlWords(Words):
    """A cursor over one DDL statement; every refusal is a `SpannerError`."""

    def __init__(self, statement: str, dialect: Dialect) -> None:
        super().__init__(statement, dialect=dialect)
        self._reserved = LEXICONS[dialect].reserved

    # -- names

    def starts_name(self) -> bool:
        """Whether an identifier stands here; reserved words must be quoted."""
        word = self.peek()
        return word.kind in ("name", "quoted_name") and not word.is_keyword(*self._reserved)

    def name(self, what: str = "identifier") -> str:
        """An identifier."""
        if not self.starts_name():
            self.encountered(what)
        return super().name(what)

    def object_name(self) -> str:
        """A name with its schema, if it has one; PostgreSQL's `public` is left out."""
        name = self.name()
        if not self.accept_symbol("."):
            return name
        schema, name = name, self.name()
        if self.dialect == "POSTGRESQL" and schema == "public":
            return name
        return f"{schema}.{name}"

    def names(self) -> tuple[str, ...]:
        """Names between commas."""
        names = [self.name()]
        while self.accept_symbol(","):
            names.append(self.name())
        return tuple(names)

    def names_in_brackets(self) -> tuple[str, ...]:
        """Names between commas, in round brackets."""
        self.expect_symbol("(")
        names = self.names()
        self.expect_symbol(")")
        return names

    # -- what is not a name

    def text(self, what: str = "string literal") -> str:
        """A text literal's value."""
        if self.peek().kind != "text":
            self.encountered(what)
        return self.take().text

    def integer(self) -> int:
        """A whole number, decimal or (in GoogleSQL) hexadecimal, with a sign or without."""
        sign = -1 if self.accept_symbol("-") else 1
        word = self.peek()
        if word.kind != "number" or not re.fullmatch(r"0[xX][0-9a-fA-F]+|[0-9]+", word.text):
            self.encountered("integer")
        is_hexadecimal = word.text[:2] in ("0x", "0X")
        if is_hexadecimal and self.dialect == "POSTGRESQL":
            self.encountered("integer")
        digits = word.text[2:].lstrip("0") if is_hexadecimal else word.text.lstrip("0")
        if len(digits) > _DIGITS_MAX:
            self.encountered("integer")
        self.take()
        return sign * int(digits or "0", 16 if is_hexadecimal else 10)

    def expression_in_brackets(self) -> str:
        """The text between round brackets, as written."""
        if not self.peek().is_symbol("("):
            self.expect_symbol("(")
        start = self.take().until
        closing = [")"]
        while True:
            word = self.peek()
            if word.kind == "end":
                self.expect_symbol(closing[-1])
            self.take()
            if word.is_symbol(closing[-1]):
                closing.pop()
                if not closing:
                    return self.statement[start : word.at].strip()
            elif word.kind == "symbol" and word.text in _OPEN:
                closing.append(_OPEN[word.text])

    def expression_until(self, *keywords: str) -> str:
        """The text up to a comma, a closing bracket or one of the keywords; at least one word."""
        start = self.peek().at
        if self.peek().kind == "end" or any(self.peek().is_symbol(one) for one in ",);"):
            self.encountered("expression")
        until = start
        closing: list[str] = []
        while True:
            word = self.peek()
            ends = word.is_symbol(",") or word.is_symbol(")") or word.is_keyword(*keywords)
            is_over = word.kind == "end" or (not closing and word.is_symbol(";"))
            if is_over or (not closing and ends and until > start):
                return self.statement[start:until]
            if closing and word.is_symbol(closing[-1]):
                closing.pop()
            elif word.kind == "symbol" and word.text in _OPEN:
                closing.append(_OPEN[word.text])
            until = self.take().until

    def rest(self, what: str) -> str:
        """The text from here to the end, without a closing semicolon."""
        if self.at_end():
            self.encountered(what)
        start = self.peek().at
        until = start
        while not self.at_end():
            until = self.take().until
        return self.statement[start:until]

    # -- refusals

    def expect(self, *keywords: str) -> None:
        """Move past these keywords, or refuse."""
        for keyword in keywords:
            if not self.accept(keyword):
                self._syntax_error(f"Expecting '{keyword}' but found {self._found()}")

    def expect_symbol(self, symbol: str) -> None:
        """Move past this punctuation, or refuse."""
        if not self.accept_symbol(symbol):
            self._syntax_error(f"Expecting '{symbol}' but found {self._found()}")

    def expect_end(self) -> None:
        """Refuse anything that is left."""
        if not self.at_end():
            self._syntax_error(f"Expecting 'EOF' but found {self._found()}")

    def encountered(self, what: str) -> NoReturn:
        """Raise INVALID_ARGUMENT: the word here does not start what must stand here."""
        self._syntax_error(f"Encountered {self._found()} while parsing: {what}")

    def refuse(self, expectation: str) -> NoReturn:
        """Raise INVALID_ARGUMENT that names what stands here instead."""
        self._syntax_error(f"{expectation} but found {self._found()}")

    def refuse_character(self, at: int) -> NoReturn:
        """Raise INVALID_ARGUMENT for a character that starts no word."""
        character = self.statement[at]
        if self.dialect == "POSTGRESQL":
            where = f'at or near "{character}"'
            self.reject(f"[ERROR] syntax error {where}; failed to parse the DDL statements.")
        line, column = self.line_and_column(at)
        self.reject(
            f"Syntax error on line {line}, column {column}: Illegal input character {character!r}"
        )

    def reject(self, message: str) -> NoReturn:
        """Raise INVALID_ARGUMENT: the statement parses, and yet says something impossible."""
        if self.dialect == "POSTGRESQL":
            raise SpannerError(Code.INVALID_ARGUMENT, message)
        raise SpannerError(
            Code.INVALID_ARGUMENT,
            f"Error parsing Spanner DDL statement: {self.statement.strip()} : {message}",
        )

    def _found(self) -> str:
        word = self.peek()
        return "'EOF'" if word.kind == "end" else f"'{self.statement[word.at : word.until]}'"

    def _syntax_error(self, message: str) -> NoReturn:
        word = self.peek()
        if self.dialect == "POSTGRESQL":
            here = self.statement[word.at : word.until]
            where = "at end of input" if word.kind == "end" else f'at or near "{here}"'
            self.reject(f"[ERROR] syntax error {where}; failed to parse the DDL statements.")
        line, column = self.line_and_column(word.at)
        if word.kind == "end":
            column = max(column - 1, 1)
        self.reject(f"Syntax error on line {line}, column {column}: {message}")
