"""The one query that reads a change stream: recognised, taken apart, and checked in order.

The order of the checks is the service's: function, shape, arguments (start, end, heartbeat,
read_options), then the transaction (the server's matter), then token and stream partition.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from tidegate.spanner_simulator.core.lexer import Words
from tidegate.spanner_simulator.core.timestamps import format_ns, format_us, parse_ns
from tidegate.spanner_simulator.errors import Code, SpannerError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidegate.spanner_simulator.core.change_streams.stream_partitions import (
        StreamPartition,
        StreamPartitions,
    )
    from tidegate.spanner_simulator.core.schema.catalogue import Catalogue
    from tidegate.spanner_simulator.core.schema.schema_objects import ChangeStream
    from tidegate.spanner_simulator.core.values import Plain

__all__ = [
    "CallArguments",
    "ChangeStreamCall",
    "check_partition",
    "is_change_stream_query",
    "parse_call",
    "resolve",
]

_CALL = re.compile(r"\bFROM\s+(`?)(READ_[A-Za-z0-9_]+)\1\s*\(", re.IGNORECASE)
_NAMES = (
    "start_timestamp",
    "end_timestamp",
    "partition_token",
    "heartbeat_milliseconds",
    "read_options",
)
_FUTURE_MAX_NS = 600 * 10**9
_HEARTBEAT_MS_MIN, _HEARTBEAT_MS_MAX = 100, 300_000
NO_END_NS = parse_ns("9999-12-31T00:00:00Z")


@dataclass(frozen=True, slots=True)
class _Parameter:
    name: str


_Argument: TypeAlias = "_Parameter | Plain"


@dataclass(frozen=True, slots=True)
class ChangeStreamCall:
    """A well-formed call: the stream, the function as written, arguments by canonical name."""

    stream: ChangeStream
    function: str
    arguments: Mapping[str, _Argument]


@dataclass(frozen=True, slots=True)
class CallArguments:
    """Checked arguments; `end_ns` None means without end, `token` None the initial query."""

    start_ns: int
    end_ns: int | None
    token: str | None
    heartbeat_us: int


def is_change_stream_query(sql: str) -> bool:
    """Whether a statement calls a read function, known or not."""
    return _CALL.search(sql) is not None


def parse_call(sql: str, catalogue: Catalogue, *, role: str) -> ChangeStreamCall:
    """Check function, privileges of the role (empty: all) and shape, in this order."""
    found = _CALL.search(sql)
    if found is None:
        raise SpannerError(Code.INVALID_ARGUMENT, "Not a change stream query")
    function = found.group(2)
    stream = catalogue.streams.get(function[len("READ_") :].lower())
    if stream is None:
        at = found.start(2)
        line = sql.count("\n", 0, at) + 1
        column = at - (sql.rfind("\n", 0, at) + 1) + 1
        raise SpannerError(
            Code.INVALID_ARGUMENT,
            f"Table-valued function not found: {function} [at {line}:{column}]\n{sql}",
        )
    if role:
        _check_privileges(catalogue, role, stream)
    return ChangeStreamCall(stream, function, _arguments(sql, f"READ_{stream.name}"))


def _check_privileges(catalogue: Catalogue, role: str, stream: ChangeStream) -> None:
    function = f"READ_{stream.name}"
    if not catalogue.has_privilege(role, "CHANGE STREAM", stream.name, "SELECT"):
        raise SpannerError(
            Code.PERMISSION_DENIED,
            f"Role {role} does not have required privileges: SELECT on change stream "
            f"{stream.name} is missing.",
        )
    if not catalogue.has_privilege(role, "TABLE FUNCTION", function, "EXECUTE"):
        raise SpannerError(
            Code.PERMISSION_DENIED,
            f"Role {role} does not have required privileges: EXECUTE on table function "
            f"{function} is missing.",
        )


def _arguments(sql: str, function: str) -> dict[str, _Argument]:
    words = Words(sql)
    shape = SpannerError(
        Code.UNIMPLEMENTED,
        "Change stream TVF must not be combined with any other "  # noqa: S608  # a text for people
        "SQL statements. Change stream "
        "records should be read using "
        f"`SELECT ChangeRecord FROM {function}(<args>)`.",
    )
    words.expect("SELECT")
    if not (words.accept_symbol("*") or words.name().lower() == "changerecord"):
        raise shape
    if not words.accept("FROM") or words.name().lower() != function.lower():
        raise shape
    words.expect_symbol("(")
    arguments: dict[str, _Argument] = {}
    while not words.peek().is_symbol(")"):
        if len(arguments) >= len(_NAMES):
            raise SpannerError(
                Code.INVALID_ARGUMENT, f"Too many arguments for table-valued function {function}"
            )
        name = _NAMES[len(arguments)]
        if words.peek(1).is_symbol("=>"):
            name = words.name().lower()
            words.expect_symbol("=>")
            if name not in _NAMES or name in arguments:
                raise SpannerError(
                    Code.INVALID_ARGUMENT,
                    f"Named argument {name} not found or repeated in call of {function}",
                )
        arguments[name] = _argument(words, function, len(arguments))
        if not words.accept_symbol(","):
            break
    words.expect_symbol(")")
    if not words.at_end():
        raise shape
    return arguments


def _argument(words: Words, function: str, index: int) -> _Argument:
    value: _Argument
    if words.accept("NULL"):
        value = None
    else:
        words.accept("TIMESTAMP")
        word = words.take()
        match word.kind:
            case "parameter":
                value = _Parameter(word.text.lower())
            case "text" | "number":
                value = word.text
            case _:
                raise _not_literal(function, index)
    if not (words.peek().is_symbol(",") or words.peek().is_symbol(")")):
        raise _not_literal(function, index)
    return value


def _not_literal(function: str, index: int) -> SpannerError:
    return SpannerError(
        Code.INVALID_ARGUMENT,
        f"Invalid argument of change stream TVF {function}. Argument {index} is not a literal or "
        "parameter. Implicit type conversions are not supported.",
    )


def resolve(
    call: ChangeStreamCall, parameters: Mapping[str, Plain], *, now_us: int
) -> CallArguments:
    """Bind parameters (by lower-case name) and check start, end, heartbeat and read_options."""

    def value(name: str) -> Plain:
        argument = call.arguments.get(name)
        if isinstance(argument, _Parameter):
            if argument.name not in parameters:
                raise SpannerError(
                    Code.INVALID_ARGUMENT, f"No parameter found for binding: {argument.name}"
                )
            return parameters[argument.name]
        return argument

    start, end = value("start_timestamp"), value("end_timestamp")
    if start is None:
        raise SpannerError(Code.INVALID_ARGUMENT, "start_timestamp must not be null.")
    start_ns = parse_ns(str(start))
    end_ns = None if end is None else parse_ns(str(end))
    _check_start(call.stream, start_ns, now_us)
    if end_ns is not None and start_ns > end_ns:
        raise SpannerError(
            Code.INVALID_ARGUMENT,
            "If end_timestamp is specified, start_timestamp must be <= end_timestamp. Received "
            f"start_timestamp: {format_ns(start_ns)}, end_timestamp: {format_ns(end_ns)}.",
        )
    heartbeat_ms = _heartbeat_ms(value("heartbeat_milliseconds"))
    if value("read_options") is not None:
        raise SpannerError(Code.UNIMPLEMENTED, "read_options must be null.")
    token = value("partition_token")
    has_end = end_ns is not None and end_ns < NO_END_NS
    return CallArguments(
        start_ns,
        end_ns if has_end else None,
        None if token is None else str(token),
        heartbeat_ms * 1000,
    )


def _check_start(stream: ChangeStream, start_ns: int, now_us: int) -> None:
    earliest_us = max(now_us - stream.retention_us, stream.created_us)
    if start_ns < earliest_us * 1000:
        raise SpannerError(
            Code.OUT_OF_RANGE,
            "Specified start_timestamp is too far in the past. Please specify a start_timestamp "
            f"within the earliest read timestamp: {format_us(earliest_us)}. Received "
            f"start_timestamp: {format_ns(start_ns)}.",
        )
    latest_ns = now_us * 1000 + _FUTURE_MAX_NS
    if start_ns > latest_ns:
        raise SpannerError(
            Code.OUT_OF_RANGE,
            "Specified start_timestamp is too far in the future. Please specify a "
            f"start_timestamp within the earliest read timestamp: {format_us(earliest_us)}, and "
            f"the current maximum start timestamp: {format_ns(latest_ns)}. Received "
            f"start_timestamp: {format_ns(start_ns)}.",
        )


def _heartbeat_ms(plain: Plain) -> int:
    if plain is None:
        raise SpannerError(Code.INVALID_ARGUMENT, "heartbeat_milliseconds must not be null.")
    try:
        heartbeat_ms = int(str(plain))
    except ValueError as error:
        raise SpannerError(
            Code.INVALID_ARGUMENT, f"Invalid value for heartbeat_milliseconds: {plain}"
        ) from error
    if not _HEARTBEAT_MS_MIN <= heartbeat_ms <= _HEARTBEAT_MS_MAX:
        raise SpannerError(
            Code.OUT_OF_RANGE,
            f"heartbeat_milliseconds must be within min {_HEARTBEAT_MS_MIN} and max "
            f"{_HEARTBEAT_MS_MAX}. Received heartbeat_milliseconds: {heartbeat_ms}.",
        )
    return heartbeat_ms


def check_partition(
    stream: ChangeStream, partitions: StreamPartitions, token: str, *, start_ns: int, now_us: int
) -> StreamPartition:
    """The stream partition of a token, if the query may start in its life."""
    found = partitions.by_token.get(token)
    if found is None:
        raise SpannerError(
            Code.INVALID_ARGUMENT,
            "Specified partition_token is invalid, as it does not belong to the Change Stream "
            f"associated with the TVF. Received partition_token: {token}.",
        )
    if found.end_us is not None and found.end_us < now_us - stream.retention_us:
        raise SpannerError(
            Code.OUT_OF_RANGE,
            "This partition is no longer valid. All Change Stream records associated with this "
            "partition have expired and have been deleted, as specified by the Change Stream "
            "retention period.",
        )
    latest_ns = now_us * 1000 + _FUTURE_MAX_NS if found.end_us is None else found.end_us * 1000
    if not found.start_us * 1000 <= start_ns <= latest_ns:
        raise SpannerError(
            Code.OUT_OF_RANGE,
            "Specified start_timestamp is invalid for the partition. Please specify a "
            f"start_timestamp within {format_us(found.start_us)} and {format_ns(latest_ns)}. "
            f"Received start_timestamp: {format_ns(start_ns)}.",
        )
    return found
