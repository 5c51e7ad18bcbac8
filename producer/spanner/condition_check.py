"""Whether Spanner takes the condition of a backfill; asked before anything is written."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tidegate.producer.description import POSTGRESQL
from tidegate.producer.errors import QueryError, QueryRefused
from tidegate.producer.spanner.api_messages import ExecuteSqlRequest
from tidegate.producer.spanner.catalogue import SpannerCatalogue
from tidegate.producer.spanner.chunk_sql import chunk_query, unordered_key
from tidegate.producer.spanner.validate import setup_error
from tidegate.schemas.errors import ConfigError

if TYPE_CHECKING:
    from tidegate.producer.spanner.channel import SpannerChannels


WHERE_MAX = 1_000
"""Characters of a condition: each chunk of a run has it in its tokens."""

_TIMEOUT_S = 30.0
_PLAN = ExecuteSqlRequest.QueryMode.PLAN
_GOOGLE_QUOTED = re.compile(
    r"'''(?:\\.|[^\\])*?'''|\"\"\"(?:\\.|[^\\])*?\"\"\"|'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\""
    r"|`[^`]*`|--[^\n]*|#[^\n]*|/\*.*?\*/",
    re.DOTALL,
)
_POSTGRESQL_QUOTED = re.compile(
    r"(?<![\w$])[eE]'(?:\\.|[^'\\])*'|'[^']*'|(?<![\w$])\$(\w*)\$.*?\$\1\$|\"[^\"]*\""
    r"|--[^\n]*|/\*.*?\*/",
    re.DOTALL,
)
_NAME = re.compile(r"([`\"])([^`\"]*)\1(\s*\()?")
"""A quoted name, and the parenthesis behind that of a function."""
_CHANGING = re.compile(
    r"\b(?:current_(?:timestamp|datetime|date|time)|local(?:timestamp|time)|tablesample)\b"
    r"|\b(?:rand|random|generate_uuid|gen_random_uuid|new_uuid|now|nextval"
    r"|(?:statement|transaction|clock)_timestamp|get_next_sequence_value"
    r"|get_internal_sequence_state)(?=\s*\()",
    re.IGNORECASE,
)
"""Names in SQL whose value is another one when a query is repeated at the same time."""


def require_condition(
    channels: SpannerChannels, *, table: str, change_stream: str, where: str
) -> None:
    """Raise ConfigError for a condition with which no chunk of the table could be read.

    Plans the query of a chunk, and reads no row.  Raises UnreachableError if Spanner does not
    answer.
    """
    if not where.strip() or len(where) > WHERE_MAX:
        raise ConfigError(
            f"--where: the condition has {len(where.strip()):,} characters",
            hint=f"Give a condition of 1 to {WHERE_MAX:,} characters",
        )
    try:
        _require(channels, table, change_stream, where)
    except QueryError as error:
        raise setup_error(error) from error


def changing_word(where: str, *, dialect: str) -> str:
    """Return a name in a condition whose value changes with each query; empty without one."""
    is_postgresql = dialect == POSTGRESQL
    quoted, mark = (_POSTGRESQL_QUOTED, '"') if is_postgresql else (_GOOGLE_QUOTED, "`")
    names_only = quoted.sub(lambda one: one[0] if one[0].startswith(mark) else " ", where)
    # Functions can be named in quotes as well; any other quoted name is one of the database's.
    plain = _NAME.sub(lambda one: f" {one[2]}(" if one[3] else " ", names_only)
    found = _CHANGING.search(plain)
    return found[0] if found else ""


def _require(channels: SpannerChannels, table: str, change_stream: str, where: str) -> None:
    catalogue = SpannerCatalogue(channels)
    found = catalogue.table(table, stream=change_stream)
    if found is None:
        raise ConfigError(f"the database has no table {table}", hint="Check the setting database")
    if (wrong := unordered_key(found)) is not None:
        raise ConfigError(
            (
                f"--where: the key column {table}.{wrong.name} has the type {wrong.type.code}, "
                "whose values a query cannot continue behind"
            ),
            hint="Backfill the whole table, without --where",
        )
    order = catalogue.key_order(table)
    if word := changing_word(where, dialect=order.dialect):
        raise ConfigError(
            f"--where: the value of {word} changes while the table is read",
            hint="Write the value itself, such as TIMESTAMP '2024-05-01T00:00:00Z'",
        )
    columns = [one.name for one in found.key_columns]
    chunk = chunk_query(found, order, columns, after=None, where=where, rows=1)
    # Without parentheses around it, a condition that closes ours does not parse.
    alone = f"SELECT 1 FROM {order.quoted(table)} WHERE {where}\nLIMIT 1"  # noqa: S608 - it is only planned
    for sql in (chunk.sql, alone):
        undeclared = sorted(_plan(channels, sql, where))
        if undeclared:
            raise ConfigError(
                f"--where: the condition has the parameter {undeclared[0]}",
                hint="Write its value into the condition",
            )


def _plan(channels: SpannerChannels, sql: str, where: str) -> list[str]:
    """Let Spanner plan a query; return its parameters."""
    request: Any = ExecuteSqlRequest.pb()(sql=sql, query_mode=_PLAN)
    request.transaction.single_use.read_only.strong = True
    try:
        result = channels.execute_sql(request, timeout_s=_TIMEOUT_S)
    except QueryRefused as error:
        if error.code not in ("INVALID_ARGUMENT", "OUT_OF_RANGE"):
            raise
        details = str(error.fields.get("details", ""))
        raise ConfigError(
            f"--where: Spanner does not take the condition {where!r}: {details}",
            hint="Give what could follow WHERE in a query",
        ) from error
    return [field.name for field in result.metadata.undeclared_parameters.fields]
