"""Finds out what can be read of expired stream partitions, and has them go on there.

What is lost is asked from the change stream itself, stream partition by stream partition: a query
at the position says from which time on records are kept, and one at the end of the gap says whether
the stream partition can be read there.
"""

from __future__ import annotations

from tidegate.producer.core import events as on
from tidegate.producer.driver.sole_run import SoleRun
from tidegate.producer.errors import EndedInGap, GapNotAccepted, PositionExpired, TokenRefused
from tidegate.producer.ports import ChangeStream
from tidegate.schemas.errors import ConfigError, SchemaError
from tidegate.schemas.instants import NS_PER_US, parse_rfc3339_ns
from tidegate.schemas.progress import PartitionGap, TokenSnapshot

_PROBE_HEARTBEAT_MS = 1_000


async def find_gap(
    stream: ChangeStream,
    token: TokenSnapshot,
    *,
    margin_us: int,
    end_ns: int | None,
    accepted_by: str,
    now_us: int,
) -> PartitionGap:
    """Return the gap that has to be accepted for a stream partition to be read on; reads nothing.

    It ends `margin_us` after the first instant that can be read now, because that instant moves on
    with time and the stream partition is read again only when workers run.  `end_ns` is the end of
    a bounded stream.

    Raises ConfigError where its position has not expired or Spanner does not say since when records
    are kept, EndedInGap where it has ended before the gap's end or the whole stream has, and what
    else a query raises.
    """
    name, position_us = token.token, token.watermark_us
    refusal = await _refusal(stream, name, max(token.start_ns, position_us * NS_PER_US))
    if refusal is None:
        raise ConfigError(
            "the position of this stream partition has not expired: it can be read on",
            hint="Restart its worker",
            token=name,
        )
    if isinstance(refusal, TokenRefused):
        raise refusal
    earliest = str(refusal.fields["lost_until"])
    if earliest == "unknown":
        raise EndedInGap(name, details=refusal.fields.get("details"))
    earliest_us = -(-_instant_ns(earliest, refusal) // NS_PER_US)
    # The query begins at the watermark, one microsecond before what it brings.
    gap = PartitionGap(name, position_us + 1, earliest_us + margin_us + 1, accepted_by, now_us)
    is_past_end = end_ns is not None and (gap.until_us - 1) * NS_PER_US > end_ns
    if is_past_end or await _refusal(stream, name, (gap.until_us - 1) * NS_PER_US) is not None:
        raise EndedInGap(name, from_us=gap.from_us, until_us=gap.until_us)
    return gap


def _instant_ns(text: str, refusal: PositionExpired) -> int:
    """Return the time that Spanner names in a refusal; ConfigError if it is in no known form.

    Nothing is guessed: an earlier time cannot be read, and a later one loses changes unseen.
    """
    try:
        return parse_rfc3339_ns(text)
    except SchemaError as error:
        raise ConfigError(
            "Spanner names the first change that can be read in a form that is not a timestamp",
            hint=(
                "Nothing was accepted, and no repetition helps: start a new epoch and reload the "
                "tables, and report the text in `details`"
            ),
            token=refusal.fields.get("token"),
            lost_until=text,
            details=refusal.fields.get("details"),
        ) from error


async def _refusal(
    stream: ChangeStream, token: str, start_ns: int
) -> PositionExpired | TokenRefused | None:
    """Return why a stream partition cannot be read from a time on; None if it can be."""
    query = stream.query(
        token=token, start_ns=start_ns, end_ns=None, heartbeat_ms=_PROBE_HEARTBEAT_MS
    )
    try:
        await query.next_size()
    except (PositionExpired, TokenRefused) as error:
        return error
    finally:
        query.cancel()
    return None


class GapAcceptor(SoleRun):
    """One acceptance: `join`, `accept`, `close`."""

    failed = GapNotAccepted

    def accept(self, gaps: tuple[PartitionGap, ...]) -> None:
        """Write gaps, at most one for a stream partition, and pass them, in one transaction.

        Returns once it is committed.  Raises GapNotAccepted, and what else stops the worker.
        """
        self._finish(on.GapsAccepted(gaps))
