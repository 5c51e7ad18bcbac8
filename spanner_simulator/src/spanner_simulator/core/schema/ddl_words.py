"""A cursor over the words of one DDL statement, with the error texts of either dialect's parser.

Keywords are compared without regard to case, and a quoted identifier never counts as a keyword.
Unquoted PostgreSQL identifiers are folded to lower case and cut to 63 characters. GoogleSQL's
parser says what it expected and where; PostgreSQL's only what it stumbled over.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final, NoReturn

from spanner_simulator.core.lexicon import LEXICONS
from spanner_simulator.core.tokens import EscapeError, Token, content, is_skipped, scan
from spanner_simulator.core.values import Dialect
from spanner_simulator.errors import invalid_argument

_POSTGRES_NAME_MAX: Final = 63
# Enough for whatever is counted here; Python itself refuses to read numbers without end.
_DIGITS_MAX: Final = 19
_OPEN: Final = {"(": ")", "[": "]", "{": "}"}


class DdlWords:
    """The words of one statement and a position in them; every refusal is a `SpannerError`."""

    def __init__(self, statement: str, dialect: Dialect) -> None:
        self.statement = statement
        self.dialect: Dialect = dialect
        self._reserved = LEXICONS[dialect].reserved
        # The clause of an index for columns that it only stores.
        self.storing = "STORING" if dialect == "GOOGLE_STANDARD_SQL" else "INCLUDE"
        self._words = self._split()
        self._position = 0

    def _split(self) -> list[Token]:
        words: list[Token] = []
        for token in scan(self.statement, self.dialect):
            # A name needs at least one character.
            is_nameless = token.kind == "quoted_name" and len(token.text) == 2
            if is_nameless or token.kind in ("open", "illegal"):
                self._refuse_character(token.at)
            if not is_skipped(token):
                words.append(replace(token, text=self._content(token)))
        words.append(Token("end", "", len(self.statement), len(self.statement)))
        return words

    def _content(self, token: Token) -> str:
        try:
            found = content(token, self.dialect)
        except EscapeError as error:
            line, column = self._line_and_column(token.at)
            raise invalid_argument(
                f"Syntax error: Illegal escape sequence: {error} [at {line}:{column}]"
            ) from error
        return found if isinstance(found, str) else found.decode("latin-1")

    # -- moving

    def peek(self, ahead: int = 0) -> Token:
        """The word `ahead` places on, without moving."""
        return self._words[min(self._position + ahead, len(self._words) - 1)]

    def take(self) -> Token:
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

    def at_end(self) -> bool:
        """Whether nothing but a closing semicolon is left."""
        while self.peek().is_symbol(";"):
            self._position += 1
        return self.peek().kind == "end"

    # -- names

    def starts_name(self) -> bool:
        """Whether an identifier stands here; reserved words must be quoted."""
        word = self.peek()
        return word.kind in ("name", "quoted_name") and not word.is_keyword(*self._reserved)

    def name(self, what: str = "identifier") -> str:
        """An identifier, quoted or not; an unquoted one of PostgreSQL in lower case."""
        if not self.starts_name():
            self.encountered(what)
        word = self.take()
        if not LEXICONS[self.dialect].folds_names:
            return word.text
        folded = word.text.lower() if word.kind == "name" else word.text
        return folded[:_POSTGRES_NAME_MAX]

    def object_name(self) -> str:
        """A name with its schema, if it has one; PostgreSQL's `public` is left out."""
        name = self.name()
        if not self.accept_symbol("."):
            return name
        schema, name = name, self.name()
        if self.dialect == "POSTGRESQL" and schema == "public":
            return name
        return f"{schema}.{name}"

    def object_names(self) -> tuple[str, ...]:
        """Names with their schemas, between commas."""
        names = [self.object_name()]
        while self.accept_symbol(","):
            names.append(self.object_name())
        return tuple(names)

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
        """A whole number, with a sign or without."""
        sign = -1 if self.accept_symbol("-") else 1
        word = self.peek()
        if word.kind != "number" or not re.fullmatch(rf"[0-9]{{1,{_DIGITS_MAX}}}", word.text):
            self.encountered("integer")
        return sign * int(self.take().text)

    def expression_in_brackets(self) -> str:
        """The text between round brackets, as written."""
        self.expect_symbol("(")
        start = self._words[self._position - 1].until
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

    def reject(self, message: str) -> NoReturn:
        """Raise INVALID_ARGUMENT: the statement parses, and yet says something impossible."""
        if self.dialect == "POSTGRESQL":
            raise invalid_argument(message)
        raise invalid_argument(
            f"Error parsing Spanner DDL statement: {self.statement.strip()} : {message}"
        )

    def _found(self) -> str:
        word = self.peek()
        return "'EOF'" if word.kind == "end" else f"'{self.statement[word.at : word.until]}'"

    def _line_and_column(self, at: int) -> tuple[int, int]:
        """Where an offset is, both counted from 1."""
        line = self.statement.count("\n", 0, at) + 1
        return line, at - (self.statement.rfind("\n", 0, at) + 1) + 1

    def _refuse_character(self, at: int) -> NoReturn:
        self._refuse(at, self.statement[at], f"Illegal input character {self.statement[at]!r}")

    def _syntax_error(self, message: str) -> NoReturn:
        word = self.peek()
        self._refuse(word.at, self.statement[word.at : word.until], message)

    def _refuse(self, at: int, here: str, message: str) -> NoReturn:
        if self.dialect == "POSTGRESQL":
            where = f'at or near "{here}"' if here else "at end of input"
            self.reject(f"[ERROR] syntax error {where}; failed to parse the DDL statements.")
        line, column = self._line_and_column(at)
        column = column if here else max(column - 1, 1)
        self.reject(f"Syntax error on line {line}, column {column}: {message}")
