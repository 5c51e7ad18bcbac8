"""The refusals of change stream queries: codes and texts of the service, in one place.

Timestamps in them are printed as the service does: RFC 3339 with +00:00.
"""

from __future__ import annotations

from spanner_simulator.core.timestamps import format_ns
from spanner_simulator.core.values import Dialect
from spanner_simulator.errors import Code, SpannerError

_ONLY_SINGLE_USE = (
    "Change stream queries must be strong reads executed via single use transactions using the "
    "ExecuteStreamingSql API."
)
READERS_MAX = 20


def _time(timestamp_ns: int) -> str:
    return format_ns(timestamp_ns).removesuffix("Z") + "+00:00"


def _invalid(message: str) -> SpannerError:
    return SpannerError(Code.INVALID_ARGUMENT, message)


def _out_of_range(message: str) -> SpannerError:
    return SpannerError(Code.OUT_OF_RANGE, message)


def located(message: str, sql: str, at: int) -> SpannerError:
    """A refusal by the analyser: the message, line and column, and the line with a caret."""
    line_start = sql.rfind("\n", 0, at) + 1
    line_end = sql.find("\n", at)
    line = sql[line_start:] if line_end < 0 else sql[line_start:line_end]
    column = at - line_start
    number = sql.count("\n", 0, at) + 1
    return _invalid(f"{message} [at {number}:{column + 1}]\n{line}\n{' ' * column}^")


def combined(function: str, dialect: Dialect) -> SpannerError:
    """The query does more than read the function."""
    if dialect == "POSTGRESQL":
        form = f'select * from "spanner"."{function}"(<args>)'  # noqa: S608  # a text for people
    else:
        form = f"SELECT ChangeRecord FROM {function}(<args>)"  # noqa: S608  # a text for people
    return SpannerError(
        Code.UNIMPLEMENTED,
        "Change stream TVF must not be combined with any other SQL statements. Change stream "
        f"records should be read using `{form}`.",
    )


def not_a_literal(function: str, index: int) -> SpannerError:
    """An expression, or a parameter of a type that would have to be converted."""
    return _invalid(
        f"Invalid argument of change stream TVF {function}. Argument {index} is not a literal or "
        "parameter. Implicit type conversions are not supported."
    )


def wrong_transaction() -> SpannerError:
    """Anything but a strong single-use read."""
    return _invalid(
        f"Change stream queries are not supported for multi use transactions. {_ONLY_SINGLE_USE}"
    )


def wrong_method() -> SpannerError:
    """ExecuteSql instead of ExecuteStreamingSql."""
    return _invalid(
        f"Change stream queries are not supported for the ExecuteSql API. {_ONLY_SINGLE_USE}"
    )


def null_argument(name: str) -> SpannerError:
    """An argument that must have a value."""
    return _invalid(f"{name} must not be null.")


def start_too_old(start_ns: int, earliest_us: int) -> SpannerError:
    """The start lies before the retention period or the creation of the stream."""
    return _out_of_range(
        "Specified start_timestamp is too far in the past. Please specify a start_timestamp "
        f"within the earliest read timestamp: {_time(earliest_us * 1000)}. Received "
        f"start_timestamp: {_time(start_ns)}."
    )


def start_too_late(start_ns: int, earliest_us: int, latest_ns: int) -> SpannerError:
    """The start lies too far ahead."""
    return _out_of_range(
        "Specified start_timestamp is too far in the future. Please specify a start_timestamp "
        f"within the earliest read timestamp: {_time(earliest_us * 1000)}, and the current "
        f"maximum start timestamp: {_time(latest_ns)}. Received start_timestamp: "
        f"{_time(start_ns)}."
    )


def start_after_end(start_ns: int, end_ns: int) -> SpannerError:
    """The interval is empty."""
    return _invalid(
        "If end_timestamp is specified, start_timestamp must be <= end_timestamp. Received "
        f"start_timestamp: {_time(start_ns)}, end_timestamp: {_time(end_ns)}."
    )


def end_too_late(start_ns: int, end_ns: int, latest_ns: int) -> SpannerError:
    """Mutable key ranges: the interval is too long."""
    return _out_of_range(
        "Specified end_timestamp is too far in the future. Please specify an end_timestamp within "
        f"the earliest start timestamp: {_time(start_ns)}, and the current maximum end timestamp: "
        f"{_time(latest_ns)}. Received end_timestamp: {_time(end_ns)}."
    )


def heartbeat_out_of_range(heartbeat_ms: int, low_ms: int, high_ms: int) -> SpannerError:
    """The heartbeat interval is too short or too long."""
    return _out_of_range(
        f"heartbeat_milliseconds must be within min {low_ms} and max {high_ms}. Received "
        f"heartbeat_milliseconds: {heartbeat_ms}."
    )


def foreign_token(token: str) -> SpannerError:
    """The token names no stream partition of this change stream."""
    return _invalid(
        "Specified partition_token is invalid, as it does not belong to the Change Stream "
        f"associated with the TVF. Received partition_token: {token}."
    )


def no_longer_valid() -> SpannerError:
    """All records of the stream partition have expired."""
    return _out_of_range(
        "This partition is no longer valid. All Change Stream records associated with this "
        "partition have expired and have been deleted, as specified by the Change Stream "
        "retention period."
    )


def outside_life(start_ns: int, first_ns: int, last_ns: int) -> SpannerError:
    """The start lies before or after the life of the stream partition."""
    return _out_of_range(
        "Specified start_timestamp is invalid for the partition. Please specify a "
        f"start_timestamp within {_time(first_ns)} and {_time(last_ns)}. Received "
        f"start_timestamp: {_time(start_ns)}."
    )


def too_many_readers() -> SpannerError:
    """The documented limit of concurrent readers; the text is the simulator's own."""
    return SpannerError(
        Code.RESOURCE_EXHAUSTED,
        f"Too many concurrent change stream queries of one partition: the limit is {READERS_MAX}.",
    )
