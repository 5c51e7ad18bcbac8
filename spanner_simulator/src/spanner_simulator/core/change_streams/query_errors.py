"""The errors of change stream queries: codes and texts of the service, in one place.

Timestamps in them have the service's format: RFC 3339 with +00:00.
"""

from __future__ import annotations

from spanner_simulator.core.timestamps import format_ns
from spanner_simulator.errors import Code, SpannerError, invalid_argument, out_of_range

_ONLY_SINGLE_USE = (
    "Change stream queries must be strong reads executed via single use transactions using the "
    "ExecuteStreamingSql API."
)
READERS_MAX = 20


def time_text(timestamp_ns: int) -> str:
    """A time in the format of the errors."""
    return format_ns(timestamp_ns).removesuffix("Z") + "+00:00"


def located(message: str, sql: str, position: int) -> SpannerError:
    """An error of the analyser: the message, line and column, and the line with a caret."""
    line_start = sql.rfind("\n", 0, position) + 1
    line_end = sql.find("\n", position)
    line = sql[line_start:] if line_end < 0 else sql[line_start:line_end]
    column = position - line_start
    number = sql.count("\n", 0, position) + 1
    return invalid_argument(f"{message} [at {number}:{column + 1}]\n{line}\n{' ' * column}^")


def wrong_transaction() -> SpannerError:
    """The transaction is not a strong single-use read."""
    return invalid_argument(
        f"Change stream queries are not supported for multi use transactions. {_ONLY_SINGLE_USE}"
    )


def wrong_method() -> SpannerError:
    """ExecuteSql instead of ExecuteStreamingSql."""
    return invalid_argument(
        f"Change stream queries are not supported for the ExecuteSql API. {_ONLY_SINGLE_USE}"
    )


def start_too_old(start_ns: int, earliest_us: int) -> SpannerError:
    """The start is before the retention period or the creation of the stream."""
    return out_of_range(
        "Specified start_timestamp is too far in the past. Please specify a start_timestamp "
        f"within the earliest read timestamp: {time_text(earliest_us * 1000)}. Received "
        f"start_timestamp: {time_text(start_ns)}."
    )


def no_longer_valid() -> SpannerError:
    """All records of the stream partition have expired."""
    return out_of_range(
        "This partition is no longer valid. All Change Stream records associated with this "
        "partition have expired and have been deleted, as specified by the Change Stream "
        "retention period."
    )


def too_many_readers() -> SpannerError:
    """Too many concurrent readers, by the documented limit; the text is the simulator's own."""
    return SpannerError(
        Code.RESOURCE_EXHAUSTED,
        f"Too many concurrent change stream queries of one partition: the limit is {READERS_MAX}.",
    )
