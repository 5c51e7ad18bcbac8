"""The status fits a terminal of 100 columns, and shows any text as it is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.console import Console

from tidegate.lineage.fleet_status import (
    FleetStatus,
    PartitionCondition,
    PartitionStatus,
    SlotStatus,
)
from tidegate.lineage.stop_reason import read_stop, stop_text
from tidegate.producer.commands.backfill_progress import BackfillProgress
from tidegate.producer.commands.status import StreamStatus
from tidegate.producer.commands.status_table import behind, status_table
from tidegate.producer.commands.stream_state import StreamState
from tidegate.producer.commands.worker_counts import WorkerCounts
from tidegate.producer.datastream.errors import MissingSortKey
from tidegate.producer.datastream.position import Position
from tidegate.producer.datastream_source.tokens import object_token
from tidegate.producer.retried_faults import RetriedFault
from tidegate.schemas.progress import ControlState, PartitionGap, StreamControl

FLEET = FleetStatus(
    stream="projects/p/instances/i/databases/d/changeStreams/Everything",
    epoch="0123456789abcdef" * 2, watermark_us=1_000_000, has_ended=False,
    slots=(SlotStatus(0, "w [1]", 2, 2, 1_000_000), SlotStatus(1, "", 0, 0, None)),
    partitions=(
        PartitionStatus(
            "slow", 0, "w [1]", PartitionCondition.STOPPED, 1_000_000, "it [broke]",
            stopped_since_us=1_700_000_040_000_000, error="QueryError",
        ),
        PartitionStatus("fast" * 20, 0, "w [1]", PartitionCondition.OPEN, 2_000_000, None),
    ),
)  # fmt: skip
STATUS = StreamStatus(FLEET, StreamState.FAILED, ("w [1]",), 3_500_000)


def printed(status, *, slowest=10, width=100):
    console = Console(width=width)
    with console.capture() as capture:
        console.print(status_table(status, slowest=slowest))
    return capture.get()


def test_all_of_it_fits_a_hundred_columns():
    gap = PartitionGap("gone [1]", 1_000_000, 2_000_000, "ops [1]", 3)
    workers = (
        WorkerCounts("127.0.0.1:9100", 31, 41, 59, 53, 26, 9_000),
        WorkerCounts("b:2", error="no"),
    )
    full = replace(
        STATUS, fleet=replace(FLEET, gaps=(gap,)), changes_a_second=12_345.6, workers=workers
    )
    lines = printed(full).splitlines()
    assert max(map(len, lines)) <= 100

    text = " ".join(" ".join(lines).split())
    for part in (
        "Failed; 1 worker; 2 stream partitions are open; the watermark is behind by 2.5 s;",
        "12,346 changes a second",
        "it [broke]",
        "QueryError",
        "2023-11-14T22:1",
        "gone [1]",
        "b:2: no",
        "2.5 h",
    ):
        assert part in text


def test_the_state_stands_there_with_since_when():
    text = " ".join(printed(replace(STATUS, since_us=1_700_000_040_000_000)).split())
    assert "Failed since 2023-11-14T22:14:00Z; 1 worker" in text
    control = StreamControl(1, ControlState.PAUSED, "Ann", 60_000_000)
    paused = replace(STATUS, fleet=replace(FLEET, control=control), since_us=60_000_000)
    text = " ".join(printed(paused).split())
    assert "since 1970-01-01T00:01:00Z (paused by Ann at 1970-01-01T00:01:00Z)" in text


@pytest.mark.rule("datastream-retried-errors")
def test_what_workers_retry_is_listed_the_newest_first():
    minute_us = 60_000_000
    retried = (
        RetriedFault("QueryInterrupted UNAVAILABLE", "t [1]", 1_234, 0, 3 * minute_us, "x", "Wait"),
        RetriedFault("transaction aborted", "", 2, 0, minute_us, "it failed. Wait", "Wait"),
    )
    workers = (
        WorkerCounts("a:1", retried=retried, retried_dropped=5),
        WorkerCounts("b:2", retried=(replace(retried[0], subject="u", last_us=2 * minute_us),)),
    )
    lines = printed(replace(STATUS, workers=workers), width=200)
    text = " ".join(lines.partition("Retried")[2].split())
    first = "1,234 │ 1970-01-01T00:00:00Z │ 1970-01-01T00:03:00Z │ QueryInterrupted UNAVAILABLE │"
    assert f"{first} t [1] │ x. Wait" in text
    assert text.index("t [1]") < text.index("│ u │") < text.index("│ a:1 │ it failed. Wait │")
    assert "5 older ones were dropped" in text

    shown = printed(replace(STATUS, workers=workers), slowest=1, width=200).partition("Retried")[2]
    assert "2 more: --slowest, or --json" in " ".join(shown.split())
    quiet = printed(replace(STATUS, workers=(WorkerCounts("a:1", retried=()),)))
    assert "Retried" not in quiet


def test_workers_are_listed_with_what_they_own():
    lines = printed(replace(STATUS, members=("idle", "w [1]"))).splitlines()
    cells = [
        [cell.strip() for cell in line.strip("│").split("│")]
        for line in lines
        if line.startswith("│")
    ]
    assert ["idle", "0", "0", "0", "0", ""] in cells
    assert ["w [1]", "1", "1", "0", "1", "2.5 s"] in cells
    assert ["no heartbeat yet", "1", "0", "0", "0", ""] in cells


def test_it_lists_as_many_as_asked_for():
    assert "fast" in printed(STATUS)
    assert "fast" not in printed(STATUS, slowest=1)
    assert "Slowest" not in printed(STATUS, slowest=0)


def stopped(token, reason, *, since_us=None, error=None):
    return PartitionStatus(
        token, 0, "w", PartitionCondition.STOPPED, 1_000_000, reason,
        stopped_since_us=since_us, error=error,
    )  # fmt: skip


def errors_of(partitions, **options):
    fleet = replace(FLEET, partitions=tuple(partitions))
    return printed(replace(STATUS, fleet=fleet), width=200, **options).partition("Errors")[2]


def test_equal_errors_share_a_row_with_the_first_time():
    text = errors_of(
        [
            stopped("a", "refused", since_us=120_000_000, error="PermissionDenied"),
            stopped("b", "refused", since_us=60_000_000, error="PermissionDenied"),
            stopped("c", "expired"),
        ]
    )
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in text.splitlines()]
    assert ["1970-01-01T00:01:00Z", "PermissionDenied", "a and 1 more", "refused"] in rows
    assert ["unknown", "unknown", "c", "expired"] in rows


def test_as_many_errors_are_listed_as_stream_partitions():
    text = errors_of([stopped("a", "one"), stopped("b", "two"), stopped("c", "six")], slowest=1)
    assert "one" in text
    assert "two" not in text
    assert "2 more errors" in text


def test_it_is_said_which_file_and_record_an_error_of_files_is_about():
    position = Position("b/bank_Accounts/2024/01/02/03/04/a.avro", 7)
    error = MissingSortKey.at(position, "a change has no lsn")
    reason = read_stop(stop_text(error))
    one = PartitionStatus(
        object_token(3, "bank_Accounts"), 0, "w", PartitionCondition.STOPPED, 1, reason.text,
        error=reason.kind,
    )  # fmt: skip
    text = " ".join(errors_of([one]).split())
    for part in (
        "MissingSortKey",
        "/bank_Accounts",
        "a change has no lsn",
        position.file,
        "record=7",
        "set source.backfills for the table",
    ):
        assert part in text


def test_what_was_set_aside_is_counted_the_most_first():
    few, many, nothing = (
        PartitionStatus(token, 0, "w", PartitionCondition.OPEN, 1, None, parked=count)
        for token, count in (("few", 2), ("many", 3_000), ("nothing", 0))
    )
    found = replace(STATUS, fleet=replace(FLEET, partitions=(few, many, nothing)))
    text = printed(found).partition("Set aside")[2]
    assert text.index("3,000") < text.index(" 2 ")
    assert "nothing" not in text
    assert "1 more" in printed(found, slowest=1).partition("Set aside")[2]
    assert "Set aside" not in printed(STATUS)


def test_without_an_error_there_is_no_table_of_them():
    assert "Errors" not in printed(replace(STATUS, fleet=replace(FLEET, partitions=())))


def test_a_stream_that_has_ended_says_so():
    ended = replace(FLEET, has_ended=True, slots=(), partitions=())
    text = printed(replace(STATUS, fleet=ended, state=StreamState.ENDED))
    assert "0 stream partitions are open; the stream has ended" in text


def test_an_unknown_watermark_is_not_a_number():
    assert (behind(None, 5), behind(1_000_000, 3_500_000)) == ("unknown", "2.5 s")


def test_a_backfill_has_a_line_while_it_goes_on():
    assert "backfill" not in printed(STATUS)
    some = replace(STATUS, backfill=BackfillProgress(5_000_000, 1_250_000))
    assert "backfill: 1,250,000 of 5,000,000 rows are published (25%)\n" in printed(some)
    timed = replace(STATUS, backfill=BackfillProgress(4, 1, 90.4))
    assert "(25%); about 90 s are left\n" in printed(timed)
    assert "(100%)" in printed(replace(STATUS, backfill=BackfillProgress(0, 0)))
