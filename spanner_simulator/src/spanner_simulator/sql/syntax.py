"""One statement as a sqlglot tree, in Spanner's reading of each dialect.

sqlglot's own tables of functions are emptied: every call is parsed as written, so that the binder
alone decides which exist and what they mean.  Parts of Spanner's DML that sqlglot does not know
(INSERT OR UPDATE, INSERT OR IGNORE, THEN RETURN) are split off before.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from sqlglot import TokenType, exp
from sqlglot.dialects.bigquery import BigQuery
from sqlglot.dialects.postgres import Postgres
from sqlglot.errors import ParseError, TokenError
from sqlglot.parsers.bigquery import BigQueryParser
from sqlglot.parsers.postgres import PostgresParser

from spanner_simulator.errors import SpannerError, invalid_argument, unsupported
from spanner_simulator.sql.statement_text import StatementText, read_statement_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spanner_simulator.core.values import Dialect


Node: TypeAlias = exp.Expr
Conflict = Literal["error", "ignore", "update"]
_INSERT_OR = re.compile(r"\s*INSERT(\s+(?:OR\s+)?(IGNORE|UPDATE))(?=\s+[\w`])", re.IGNORECASE)
_THEN_RETURN = re.compile(r"\bTHEN\s+RETURN\b(?P<action>\s+WITH\s+ACTION\b)?", re.IGNORECASE)
_FIRST_WORDS = frozenset(("SELECT", "WITH", "INSERT", "UPDATE", "DELETE", "VALUES"))
_OTHER_WORDS = frozenset(
    (
        "ALTER", "ANALYZE", "CALL", "CREATE", "DROP", "EXPLAIN", "FROM", "GRANT", "GRAPH", "MERGE",
        "REVOKE", "TABLE", "TRUNCATE",
    )
)  # fmt: skip


class _GoogleSql(BigQuery):
    # Messages and enums of the proto bundle.
    SUPPORTS_USER_DEFINED_TYPES = True

    class Tokenizer(BigQuery.Tokenizer):
        KEYWORDS: ClassVar[dict[str, Any]] = {
            **BigQuery.Tokenizer.KEYWORDS,
            "FLOAT32": TokenType.FLOAT,
        }

    class Parser(BigQueryParser):
        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            name: parser
            for name, parser in BigQueryParser.FUNCTION_PARSERS.items()
            if name in ("CAST", "SAFE_CAST", "EXTRACT")
        }


class _PostgreSql(Postgres):
    # Arrays begin at 1, which the binder handles; sqlglot shifts only literals.
    INDEX_OFFSET = 0

    class Parser(PostgresParser):
        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            name: parser
            for name, parser in PostgresParser.FUNCTION_PARSERS.items()
            if name in ("CAST", "EXTRACT")
        }


@dataclass(frozen=True, slots=True)
class Syntax:
    """A parsed statement; `returning` is the SELECT list of THEN RETURN or RETURNING."""

    text: StatementText
    dialect: Dialect
    tree: Node
    kind: Literal["query", "dml"]
    conflict: Conflict = "error"
    returning: tuple[Node, ...] = ()


def parse_statement(sql: str, dialect: Dialect) -> Syntax:
    """Parse one query or DML statement. Raises `SpannerError` INVALID_ARGUMENT or UNIMPLEMENTED."""
    text = read_statement_text(sql, dialect)
    parsed = text.parsed
    conflict: Conflict = "error"
    returning: tuple[Node, ...] = ()
    if dialect == "GOOGLE_STANDARD_SQL":
        match = _INSERT_OR.match(parsed)
        if match is not None:
            conflict = "ignore" if match.group(2).upper() == "IGNORE" else "update"
            start, end = match.span(1)
            parsed = parsed[:start] + " " * (end - start) + parsed[end:]
        then_return = _THEN_RETURN.search(parsed)
        if then_return is not None:
            if then_return["action"]:
                raise unsupported("THEN RETURN WITH ACTION")
            items = " " * (then_return.end() - 6) + "SELECT" + parsed[then_return.end() :]
            returning = tuple(_parse(text, items, dialect).expressions)
            parsed = parsed[: then_return.start()]
    tree = _parse(text, parsed, dialect)
    if isinstance(tree, exp.Insert | exp.Update | exp.Delete):
        node = tree.args.get("returning")
        if node is not None:
            returning = tuple(node.expressions)
        return Syntax(text, dialect, tree, "dml", conflict, returning)
    if returning or conflict != "error" or not isinstance(tree, exp.Query):
        raise unsupported(f"{tree.key.upper()} statements")
    return Syntax(text, dialect, tree, "query")


def parse_expression(sql: str, dialect: Dialect) -> Syntax:
    """Parse a scalar expression, such as a column's default; the tree is `SELECT <expression>`."""
    return parse_statement(f"SELECT {sql}", dialect)


@contextmanager
def bounded_depth() -> Iterator[None]:
    """UNIMPLEMENTED if a statement is nested too deeply for the interpreter."""
    try:
        yield
    except RecursionError:
        raise unsupported("statements nested so deeply") from None


def position(node: Node) -> int | None:
    """The start of a tree in the text for the parser; None if sqlglot does not know it."""
    starts = [part.meta["start"] for part in node.walk() if "start" in part.meta]
    return min(starts, default=None)


def literal_of(text: StatementText, node: Node) -> str | bytes | None:
    """The value of a string or bytes literal; None for any other node."""
    if isinstance(node, exp.ByteString) or (isinstance(node, exp.Literal) and node.is_string):
        if node.name.startswith("~") and node.name[1:].isdigit():
            return text.literals[int(node.name[1:])]
        return str(node.name)
    return None


def _parse(text: StatementText, parsed: str, dialect: Dialect) -> Node:
    if not parsed.strip():
        raise text.error("Syntax error: Unexpected end of statement", len(text.parsed))
    _check_first_word(text, parsed, dialect)
    try:
        with bounded_depth():
            reader = _PostgreSql() if dialect == "POSTGRESQL" else _GoogleSql()
            parsed_trees = reader.parse(parsed)
        trees = [tree for tree in parsed_trees if tree is not None]
    except (ParseError, TokenError) as error:
        raise _syntax_error(text, parsed, error, dialect) from None
    if not trees:
        raise text.error("Syntax error: Unexpected end of statement", len(parsed))
    if len(trees) > 1:
        raise text.error("Syntax error: Expected end of input", position(trees[1]))
    return trees[0]


def _check_first_word(text: StatementText, parsed: str, dialect: Dialect) -> None:
    """Reject other statements than queries and DML, before sqlglot parses them as commands."""
    word = re.split(r"[\s(]", parsed.lstrip("( \t\r\n"), maxsplit=1)[0]
    if word.upper() in _FIRST_WORDS:
        return
    if word.upper() in _OTHER_WORDS:
        raise unsupported(f"{word.upper()} statements here")
    if dialect == "POSTGRESQL":
        raise invalid_argument(f'[ERROR] syntax error at or near "{word}"')
    raise text.error(f'Syntax error: Unexpected identifier "{word}"', parsed.find(word))


def _syntax_error(
    text: StatementText, parsed: str, error: Exception, dialect: Dialect
) -> SpannerError:
    details = error.errors[0] if isinstance(error, ParseError) and error.errors else {}
    word = str(details.get("highlight") or "")
    at: int | None = None
    if details.get("line") is not None and details.get("col") is not None:
        lines = parsed.split("\n")[: int(details["line"]) - 1]
        at = sum(len(line) + 1 for line in lines) + int(details["col"]) - len(word)
    at_end = at is None or not parsed[at + len(word) :].strip()
    if dialect == "POSTGRESQL":
        where = "at end of input" if at_end else f'at or near "{word}"'
        return invalid_argument(f"[ERROR] syntax error {where}")
    if re.fullmatch(r"b?'~\d+'", word):
        return text.error("Syntax error: Unexpected string literal", at)
    if at_end:
        end = len(parsed.rstrip())
        return text.error("Syntax error: Unexpected end of statement", end)
    return text.error(f'Syntax error: Unexpected "{word}"', at)
