"""Checks of the change stream and of a backfill's condition, before anything starts.

Every fault is a ConfigError or UnreachableError that names the setting and the fix; nothing is
written.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from google.cloud.spanner_v1.types import ExecuteSqlRequest

from tidegate.producer.description import POSTGRESQL, StreamDescription, check_start, check_stream
from tidegate.producer.errors import PositionExpired, QueryError, QueryRefused
from tidegate.producer.ports import Catalogue, ChangeStream
from tidegate.producer.records import ChildPartitionsRecord, PartitionStartRecord
from tidegate.producer.spanner.catalogue import SpannerCatalogue
from tidegate.producer.spanner.chunk_sql import chunk_query, unordered_key
from tidegate.schemas.errors import ConfigError, UnreachableError
from tidegate.schemas.instants import format_rfc3339

if TYPE_CHECKING:
    from tidegate.producer.spanner.channel import SpannerChannels


_NO_ANSWER = {"UNAVAILABLE", "DEADLINE_EXCEEDED"}
_NOT_TRUSTED = re.compile("certificate.verify.failed", re.IGNORECASE)
"""The texts of gRPC and of Python's TLS."""
_PROBE_HEARTBEAT_MS = 1_000
_TRIAL_NS = 1_000_000_000
"""Interval of the queries that `check` runs."""
_TRIAL_PATIENCE_S = 30.0

_Stream = TypeVar("_Stream", bound="ChangeStream")


def validate_stream(
    catalogue: Catalogue,
    open_stream: Callable[[StreamDescription], _Stream],
    *,
    run_task: Callable[[Callable[[], Coroutine[Any, Any, None]]], None],
    name: str,
    start_ns: int | None,
    now_ns: Callable[[], int],
    has_begun: bool = False,
) -> tuple[StreamDescription, _Stream, int]:
    """Return the stream, its description if it can be read from `start_ns`, and its start.

    `start_ns` is None for a stream that starts now, or has begun.  `now_ns` returns the service's
    time, with which every start is compared: the clock of this host may be wrong.  Also runs the
    smallest possible query, because no table shows the right to read a stream, nor since when it
    holds changes.  `open_stream` makes the stream's reader from the catalogue's description;
    `run_task` runs a task to its end; with `has_begun` its tables may have changed since.  Raises
    ConfigError or UnreachableError.
    """
    try:
        description = catalogue.describe(name)
        check_stream(description, has_begun=has_begun)
        now = now_ns()
        start = now if start_ns is None else start_ns
        check_start(description, start_ns=start, now_ns=now)
        stream = open_stream(description)
        run_task(lambda: _probe(stream, instant_ns=min(start, now), now_ns=now))
    except QueryError as error:
        raise setup_error(error) from error
    return description, stream, start


async def _probe(stream: ChangeStream, *, instant_ns: int, now_ns: int) -> None:
    """Query the stream partitions of one instant, and read nothing else.

    Raises ConfigError for an instant before `now_ns` that the stream does not hold.
    """
    query = stream.query(
        token="",  # the initial query
        start_ns=instant_ns,
        end_ns=instant_ns,
        heartbeat_ms=_PROBE_HEARTBEAT_MS,
    )
    try:
        await query.next_size()
    except PositionExpired as error:
        if instant_ns == now_ns:
            # Only the instant does not fit (a stream that has just been created): the right to read
            # is checked before it.
            return
        raise ConfigError(
            "start: it is before the stream's creation or retention",
            hint='Choose a start from `earliest` on, or "now"',
            start=format_rfc3339(instant_ns),
            earliest=error.fields.get("lost_until"),
            details=error.fields.get("details"),
        ) from error
    finally:
        query.cancel()


def try_query(
    stream: ChangeStream,
    *,
    run_task: Callable[[Callable[[], Coroutine[Any, Any, _Outcome]]], _Outcome],
    start_ns: int,
    transport: str,
) -> str:
    """Return the outcome of queries of one second, on the stream and its first stream partition.

    Raises ConfigError or UnreachableError with the transport if one fails or does not end.
    """
    outcome = _Outcome()
    try:
        run_task(lambda: _try(stream, start_ns, outcome))
    except QueryError as error:
        raise setup_error(error, query_transport=transport) from error
    except TimeoutError as error:
        raise UnreachableError(
            f"a query of one second did not end within {_TRIAL_PATIENCE_S:.0f} seconds",
            hint="Check load balancers and proxies on the way, or try the other query_transport",
            query_transport=transport,
            responses=outcome.responses,
        ) from error
    return (
        f"over {transport}, first response after {outcome.first_s * 1_000:.0f} ms, "
        f"{outcome.responses} responses in {outcome.end_s:.1f} s"
    )


@dataclass(slots=True)
class _Outcome:
    """Responses of the trial queries."""

    responses: int = 0
    first_s: float = 0.0
    """Time until the first response."""
    end_s: float = 0.0
    """Time until the end of the last query."""


async def _try(stream: ChangeStream, start_ns: int, outcome: _Outcome) -> _Outcome:
    async with asyncio.timeout(_TRIAL_PATIENCE_S):
        tokens = await _read(stream, "", start_ns, outcome)
        if tokens:
            await _read(stream, tokens[0], start_ns, outcome)
    return outcome


async def _read(stream: ChangeStream, token: str, start_ns: int, outcome: _Outcome) -> list[str]:
    """Read a query to its end, add its responses and return the tokens in it."""
    loop = asyncio.get_running_loop()
    begun_s = loop.time() - outcome.end_s
    tokens: list[str] = []
    query = stream.query(
        token=token,
        start_ns=start_ns,
        end_ns=start_ns + _TRIAL_NS,
        heartbeat_ms=_PROBE_HEARTBEAT_MS,
    )
    try:
        while await query.next_size() is not None:
            if not outcome.responses:
                outcome.first_s = loop.time() - begun_s
            records, _ = (await query.receive()).decode()
            outcome.responses += 1
            for record in records:
                if isinstance(record, ChildPartitionsRecord):
                    tokens += [child.token for child in record.children]
                if isinstance(record, PartitionStartRecord):
                    tokens += record.tokens
    finally:
        query.cancel()
    outcome.end_s = loop.time() - begun_s
    return tokens


def setup_error(error: QueryError, **more: object) -> ConfigError | UnreachableError:
    """Return a failed call as an error of the settings, or of the system that they name.

    A call that may pass a moment later is not an error of the settings.
    """
    fields: dict[str, Any] = dict(error.fields) | more
    if _NOT_TRUSTED.search(str(fields.get("details", ""))):
        return ConfigError(
            "Spanner's certificate is not of an authority that this host trusts",
            hint="With Spanner Omni name its authority in spanner_ca_file; check spanner_endpoint",
            **fields,
        )
    if error.code in _NO_ANSWER:
        return UnreachableError(
            "Spanner does not answer",
            hint=(
                "Check SPANNER_EMULATOR_HOST if it is set, spanner_endpoint (http:// in front is "
                "plaintext) and the network; with Spanner Omni also spanner_client_cert"
            ),
            **fields,
        )
    if error.retriable:
        hint = "The service failed for the moment: start again; if it goes on, see its status"
        return UnreachableError(error.message, hint=hint, **fields)
    return ConfigError(error.message, hint=error.hint, **fields)


WHERE_MAX = 1_000
"""Characters of a condition, which is in the tokens of each chunk of a run."""

_PLAN_TIMEOUT_S = 30.0
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
"""A quoted name, and the parenthesis after a function's name."""
_CHANGING = re.compile(
    r"\b(?:current_(?:timestamp|datetime|date|time)|local(?:timestamp|time)|tablesample)\b"
    r"|\b(?:rand|random|generate_uuid|gen_random_uuid|new_uuid|now|nextval"
    r"|(?:statement|transaction|clock)_timestamp|get_next_sequence_value"
    r"|get_internal_sequence_state)(?=\s*\()",
    re.IGNORECASE,
)
"""Names in SQL whose value differs when a query is repeated at the same time."""


def require_condition(
    channels: SpannerChannels, *, table: str, change_stream: str, where: str
) -> None:
    """Raise ConfigError for a condition that would prevent reading any chunk of the table.

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
    """Return a name in a condition whose value changes with each query; empty if there is none."""
    is_postgresql = dialect == POSTGRESQL
    quoted, mark = (_POSTGRESQL_QUOTED, '"') if is_postgresql else (_GOOGLE_QUOTED, "`")
    names_only = quoted.sub(lambda match: match[0] if match[0].startswith(mark) else " ", where)
    # Functions can be quoted as well; any other quoted name is one of the database's.
    plain = _NAME.sub(lambda match: f" {match[2]}(" if match[3] else " ", names_only)
    match = _CHANGING.search(plain)
    return match[0] if match else ""


def _require(channels: SpannerChannels, table: str, change_stream: str, where: str) -> None:
    catalogue = SpannerCatalogue(channels)
    schema = catalogue.table(table, stream=change_stream)
    if schema is None:
        raise ConfigError(f"the database has no table {table}", hint="Check the setting database")
    if (wrong := unordered_key(schema)) is not None:
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
    columns = [column.name for column in schema.key_columns]
    chunk = chunk_query(schema, order, columns, after=None, where=where, rows=1)
    # Without parentheses around it, a condition that closes the query's own does not parse.
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
        result = channels.execute_sql(request, timeout_s=_PLAN_TIMEOUT_S)
    except QueryRefused as error:
        if error.code not in ("INVALID_ARGUMENT", "OUT_OF_RANGE"):
            raise
        details = str(error.fields.get("details", ""))
        raise ConfigError(
            f"--where: Spanner does not take the condition {where!r}: {details}",
            hint="Give what could follow WHERE in a query",
        ) from error
    return [field.name for field in result.metadata.undeclared_parameters.fields]
