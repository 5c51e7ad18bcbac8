"""A cursor over the words of one statement, with the moves of a recursive-descent parser.

Keywords are compared without regard to case, and a quoted identifier never counts as a keyword.
Unquoted PostgreSQL identifiers are folded to lower case and cut to 63 characters by `name()`, as
the server does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NoReturn

from spanner_simulator.core.lexicon import LEXICONS
from spanner_simulator.core.tokens import EscapeError, Token, content, is_skipped, scan
from spanner_simulator.core.values import Dialect
from spanner_simulator.errors import Code, SpannerError

_POSTGRES_NAME_MAX: Final = 63


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

    def _split(self, statement: str) -> list[Token]:
        words: list[Token] = []
        for token in scan(statement, self.dialect):
            # A name needs at least one character.
            is_nameless = token.kind == "quoted_name" and len(token.text) == 2
            if is_nameless or token.kind in ("open", "illegal"):
                self.refuse_character(token.at)
            if not is_skipped(token):
                words.append(replace(token, text=self._content(token)))
        words.append(Token("end", "", len(statement), len(statement)))
        return words

    def _content(self, token: Token) -> str:
        try:
            found = content(token, self.dialect)
        except EscapeError as error:
            line, column = self.line_and_column(token.at)
            raise SpannerError(
                Code.INVALID_ARGUMENT,
                f"{self._what}: Illegal escape sequence: {error} [at {line}:{column}]",
            ) from error
        return found if isinstance(found, str) else found.decode("latin-1")

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
        if not LEXICONS[self.dialect].folds_names:
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
