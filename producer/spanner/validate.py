"""Checks, before anything starts, that the change stream can be read.

Every fault is a ConfigError or UnreachableError that names the setting and the fix; nothing is
written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from tidegate.producer.description import StreamDescription, check_start, check_stream
from tidegate.producer.errors import PositionExpired, QueryError
from tidegate.producer.ports import Catalogue, ChangeStream
from tidegate.schemas.errors import ConfigError, UnreachableError
from tidegate.schemas.instants import format_rfc3339

_NO_ANSWER = {"UNAVAILABLE", "DEADLINE_EXCEEDED"}
_NOT_TRUSTED = re.compile("certificate.verify.failed", re.IGNORECASE)
"""As gRPC and Python's own TLS say it."""
_PROBE_HEARTBEAT_MS = 1_000

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
    """Return the stream and its description if it can be read from `start_ns`, and its start.

    `start_ns` is None for one that starts now, or has begun.  `now_ns` asks the service for its
    time, with which every start is compared: the clock of this host may be wrong.

    Also runs the smallest possible query, because no table shows the right to read a stream, nor
    since when it holds changes.
    `open_stream` makes the stream's reader from what the catalogue says; `run_task` runs a task to
    its end; `has_begun`: its tables may have changed since.  Raises ConfigError or
    UnreachableError.
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
            # Only the instant does not fit (a stream that is a moment old): the right to read is
            # checked before it.
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


def setup_error(error: QueryError) -> ConfigError | UnreachableError:
    """Return a failed call as an error of the settings, or of the system they point at.

    What the same call may do a moment later is no error of the settings.
    """
    fields: dict[str, Any] = dict(error.fields)
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
