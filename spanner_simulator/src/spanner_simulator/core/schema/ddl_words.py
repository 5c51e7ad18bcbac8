"""A cursor over the words of one DDL statement, with the error texts of either dialect's parser.

Keywords are compared without regard to case, and a quoted identifier never counts as a keyword.
Unquoted PostgreSQL identifiers are folded to lower case and cut to 63 characters.  GoogleSQL's
parser reports what it expected and where; PostgreSQL's only the word at which it failed.
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
# Enough for all numbers here; Python itself rejects numbers with too many digits.
_DIGITS_MAX: Final = 19
_OPEN: Final = {"(": ")", "[": "]", "{": "}"}


class DdlWords:
    """The words of one statement and a position in them; every error is a `SpannerError`."""

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
            text = content(token, self.dialect)
        except EscapeError as error:
            line, column = self._line_and_column(token.at)
            raise invalid_argument(
                f"Syntax error: Illegal escape sequence: {error} [at {line}:{column}]"
            ) from error
        return text if isinstance(text, str) else text.decode("latin-1")

    # -- moving

    def peek(self, ahead: int = 0) -> Token:
        """The word `ahead` places on, without moving."""
        return self._words[min(self._position + ahead, len(self._words) - 1)]

    def take(self) -> Token:
        """Return the next word and move past it."""
        word = self.peek()
        self._position = min(self._position + 1, len(self._words) - 1)
        return word

    def accept(self, *keywords: str) -> bool:
        """Move past these keywords if all of them follow; return whether they did."""
        for ahead, keyword in enumerate(keywords):
            if not self.peek(ahead).is_keyword(keyword):
                return False
        self._position += len(keywords)
        return True

    def accept_symbol(self, symbol: str) -> bool:
        """Move past this punctuation if it follows; return whether it did."""
        if not self.peek().is_symbol(symbol):
            return False
        self._position += 1
        return True

    def at_end(self) -> bool:
        """Whether only a closing semicolon is left."""
        while self.peek().is_symbol(";"):
            self._position += 1
        return self.peek().kind == "end"

    # -- names

    def starts_name(self) -> bool:
        """Whether an identifier is next; reserved words must be quoted."""
        word = self.peek()
        return word.kind in ("name", "quoted_name") and not word.is_keyword(*self._reserved)

    def name(self, production: str = "identifier") -> str:
        """An identifier, quoted or not; an unquoted one of PostgreSQL in lower case."""
        if not self.starts_name():
            self.encountered(production)
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

    def text(self, production: str = "string literal") -> str:
        """A text literal's value."""
        if self.peek().kind != "text":
            self.encountered(production)
        return self.take().text

    def integer(self) -> int:
        """A whole number, optionally with a sign."""
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
        if self.peek().kind == "end" or any(self.peek().is_symbol(symbol) for symbol in ",);"):
            self.encountered("expression")
        end = start
        closing: list[str] = []
        while True:
            word = self.peek()
            ends = word.is_symbol(",") or word.is_symbol(")") or word.is_keyword(*keywords)
            is_over = word.kind == "end" or (not closing and word.is_symbol(";"))
            if is_over or (not closing and ends and end > start):
                return self.statement[start:end]
            if closing and word.is_symbol(closing[-1]):
                closing.pop()
            elif word.kind == "symbol" and word.text in _OPEN:
                closing.append(_OPEN[word.text])
            end = self.take().until

    # -- refusals

    def expect(self, *keywords: str) -> None:
        """Move past these keywords, or raise an error."""
        for keyword in keywords:
            if not self.accept(keyword):
                self._syntax_error(f"Expecting '{keyword}' but found {self._found()}")

    def expect_symbol(self, symbol: str) -> None:
        """Move past this punctuation, or raise an error."""
        if not self.accept_symbol(symbol):
            self._syntax_error(f"Expecting '{symbol}' but found {self._found()}")

    def expect_end(self) -> None:
        """Raise an error unless the statement ends here."""
        if not self.at_end():
            self._syntax_error(f"Expecting 'EOF' but found {self._found()}")

    def encountered(self, production: str) -> NoReturn:
        """Raise INVALID_ARGUMENT: the next word cannot start what the grammar requires here."""
        self._syntax_error(f"Encountered {self._found()} while parsing: {production}")

    def reject(self, message: str) -> NoReturn:
        """Raise INVALID_ARGUMENT: the statement parses, but is invalid."""
        if self.dialect == "POSTGRESQL":
            raise invalid_argument(message)
        raise invalid_argument(
            f"Error parsing Spanner DDL statement: {self.statement.strip()} : {message}"
        )

    def _found(self) -> str:
        word = self.peek()
        return "'EOF'" if word.kind == "end" else f"'{self.statement[word.at : word.until]}'"

    def _line_and_column(self, position: int) -> tuple[int, int]:
        """Line and column of an offset, both counted from 1."""
        line = self.statement.count("\n", 0, position) + 1
        return line, position - (self.statement.rfind("\n", 0, position) + 1) + 1

    def _refuse_character(self, position: int) -> NoReturn:
        self._refuse(
            position,
            self.statement[position],
            f"Illegal input character {self.statement[position]!r}",
        )

    def _syntax_error(self, message: str) -> NoReturn:
        word = self.peek()
        self._refuse(word.at, self.statement[word.at : word.until], message)

    def _refuse(self, position: int, word: str, message: str) -> NoReturn:
        if self.dialect == "POSTGRESQL":
            where = f'at or near "{word}"' if word else "at end of input"
            self.reject(f"[ERROR] syntax error {where}; failed to parse the DDL statements.")
        line, column = self._line_and_column(position)
        column = column if word else max(column - 1, 1)
        self.reject(f"Syntax error on line {line}, column {column}: {message}")
