"""What has to be given up of a stream partition is what Spanner says it no longer has."""

from __future__ import annotations

import asyncio

import pytest

from tidegate.producer.driver.gap_acceptor import GapAcceptor, find_gap
from tidegate.producer.errors import (
    EndedInGap,
    GapNotAccepted,
    PositionExpired,
    QueryInterrupted,
    TokenRefused,
)
from tidegate.schemas.errors import ConfigError
from tidegate.schemas.instants import format_rfc3339
from tidegate.schemas.progress import PartitionGap, TokenSnapshot

START_US, POSITION_US, EARLIEST_NS = 1_000, 5_000, 9_000_500
SECOND = 1_000_000


def expired(lost_until):
    return PositionExpired("too old", code="OUT_OF_RANGE", lost_from="x", lost_until=lost_until)


class Stream:
    """Keeps records from a time on, of a stream partition that may have ended."""

    def __init__(self, *, earliest_ns=EARLIEST_NS, ended_ns=None, error=None):
        self.earliest_ns, self.ended_ns, self.error = earliest_ns, ended_ns, error
        self.asked, self.cancelled = [], 0

    def query(self, *, token, start_ns, end_ns, heartbeat_ms):
        assert (token, end_ns, heartbeat_ms) == ("t", None, 1_000)
        self.asked.append(start_ns)
        self._start_ns = start_ns
        return self

    async def next_size(self):
        if self.error is not None:
            raise self.error
        if self._start_ns < self.earliest_ns:
            raise expired(format_rfc3339(self.earliest_ns))
        if self.ended_ns is not None and self._start_ns > self.ended_ns:
            raise expired("unknown")
        return 100

    def cancel(self):
        self.cancelled += 1


def snapshot(**changes):
    fields = {"stopped": "it (lost_from='x')", "watermark_us": POSITION_US, **changes}
    return TokenSnapshot("t", START_US * 1_000 + 7, (), (), **fields)


def found(stream, *, margin_us=0, end_ns=None, **changes):
    gap = asyncio.run(
        find_gap(
            stream, snapshot(**changes), margin_us=margin_us, end_ns=end_ns, accepted_by="ops",
            now_us=77,
        )
    )  # fmt: skip
    assert stream.cancelled == len(stream.asked)
    return gap


def test_a_gap_begins_after_the_position_and_ends_where_a_query_can_start():
    stream = Stream()
    assert found(stream) == PartitionGap("t", POSITION_US + 1, 9_002, "ops", 77)
    assert stream.asked == [POSITION_US * 1_000, 9_001_000]
    assert stream.asked[1] >= EARLIEST_NS


def test_the_margin_leaves_time_to_start_workers():
    assert found(Stream(), margin_us=600 * SECOND).until_us == 9_002 + 600 * SECOND


def test_one_that_has_published_nothing_is_asked_for_at_its_exact_start():
    stream = Stream()
    assert found(stream, watermark_us=START_US - 1).from_us == START_US
    assert stream.asked[0] == START_US * 1_000 + 7


def test_a_position_that_can_be_read_is_no_gap():
    with pytest.raises(ConfigError, match="has not expired"):
        found(Stream(earliest_ns=0))


@pytest.mark.parametrize(
    "stream",
    [Stream(ended_ns=9_000_999), Stream(error=expired("unknown"))],
    ids=["ended inside", "nothing of it is left"],
)
def test_one_that_has_ended_inside_is_not_gone_on_with(stream):
    with pytest.raises(EndedInGap, match="new epoch") as caught:
        found(stream)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    "text", ["2026-03-01", "2026-03-01T12:00:00", "20260301T1200", "-", "2026-13-01T12:00:00Z"]
)
def test_a_time_that_spanner_names_in_another_form_is_no_schema_error(text):
    with pytest.raises(ConfigError, match="not a timestamp") as caught:
        found(Stream(error=expired(text)))
    assert caught.value.fields["lost_until"] == text
    assert "new epoch" in caught.value.hint


def test_a_bounded_stream_that_ends_inside_is_not_gone_on_with():
    assert found(Stream(), end_ns=9_001_000).until_us == 9_002
    with pytest.raises(EndedInGap):
        found(Stream(), end_ns=9_000_999)


@pytest.mark.parametrize(
    "error",
    [TokenRefused("no", code="INVALID_ARGUMENT"), QueryInterrupted("away", code="UNAVAILABLE")],
    ids=lambda error: type(error).__name__,
)
def test_whatever_else_a_query_says_is_raised(error):
    with pytest.raises(type(error)):
        found(Stream(error=error))


def test_an_acceptance_ends_with_the_workers_error():
    class Core:
        error = None
        given = ()

        def process(self, event):
            self.given += event.gaps
            self.error = GapNotAccepted("why")

        def step(self):
            return False

    core = Core()
    gap = PartitionGap("t", 1, 2, "ops", 3)
    with pytest.raises(GapNotAccepted, match="why"):
        GapAcceptor(core, core, patience_s=1).accept((gap,))
    assert core.given == (gap,)
