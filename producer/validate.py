"""Whether the source can be read at all, found out before anything is started.

Every fault becomes a ConfigError or UnreachableError that names the setting and the fix; nothing is
written anywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from tidegate.producer.core.stream_description import StreamDescription, check_start, check_stream
from tidegate.producer.errors import PositionExpired, QueryError
from tidegate.schemas.errors import ConfigError, UnreachableError

if TYPE_CHECKING:
    from tidegate.producer.ports import ChangeStream

__all__ = ["Catalogue", "StreamDescription", "setup_error", "validate_stream"]

_UNREACHABLE = {"UNAVAILABLE", "DEADLINE_EXCEEDED"}
_PROBE_HEARTBEAT_MS = 1_000


class Catalogue(Protocol):
    """The catalogue as validation sees it."""

    def describe(self, stream: str) -> StreamDescription:
        """Return what is known of a change stream; raises QueryError."""
        ...


def validate_stream(
    catalogue: Catalogue, stream: ChangeStream, *, name: str, start_ns: int, now_ns: int
) -> StreamDescription:
    """Return the stream's description if it can be read from `start_ns`.

    Also begins the smallest possible query, because the right to read a stream shows in no table.
    Raises ConfigError or UnreachableError.
    """
    try:
        description = catalogue.describe(name)
        check_stream(description)
        check_start(description, start_ns=start_ns, now_ns=now_ns)
        _probe(stream, instant_ns=now_ns)
    except QueryError as error:
        raise setup_error(error) from error
    return description


def _probe(stream: ChangeStream, *, instant_ns: int) -> None:
    """Ask for the stream partitions of one instant, and read nothing else."""
    query = stream.query(
        token="",  # the initial query
        start_ns=instant_ns,
        end_ns=instant_ns,
        heartbeat_ms=_PROBE_HEARTBEAT_MS,
    )
    try:
        for _ in query:
            query.cancel()
            return
    except PositionExpired:
        # Only the instant does not fit (a stream made a moment ago, this host's clock): the right
        # to read is checked before.
        return


def setup_error(error: QueryError) -> ConfigError | UnreachableError:
    """Tell a failed call as a fault of the settings, or of what they point at."""
    fields: dict[str, Any] = dict(error.fields)
    if error.code in _UNREACHABLE:
        return UnreachableError(
            "Spanner does not answer",
            hint="Check SPANNER_EMULATOR_HOST if it is set, and the network",
            **fields,
        )
    return ConfigError(error.message, hint=error.hint, **fields)
