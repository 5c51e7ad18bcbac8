"""`status`: what the progress topic, the group and the workers say, as JSON and as a table."""

import json
import math
import socket
from dataclasses import replace
from itertools import islice

import pytest
from rich.console import Console

from tests.unit.producer.cli.conftest import NOWHERE, beat, started
from tidegate.lineage.errors import read_stop, stop_text
from tidegate.lineage.fleet_status import (
    FleetStatus,
    PartitionCondition,
    PartitionStatus,
    SlotStatus,
)
from tidegate.producer.backfill.read_partition import REST, ReadPartition, done_token, read_token
from tidegate.producer.backfill.table_run import RunWait
from tidegate.producer.cli import fleet_reader
from tidegate.producer.cli import status as command
from tidegate.producer.cli.status import (
    BackfillProgress,
    StreamStatus,
    WorkerCounts,
    as_json,
    ask_worker,
    backfill_progress,
    follow,
)
from tidegate.producer.cli.status_table import lag_text, status_table
from tidegate.producer.cli.stream_states import StreamState
from tidegate.producer.datastream.errors import MissingSortKey, Position
from tidegate.producer.datastream.objects_query import object_token
from tidegate.producer.observation.faults import ERRORS_PATH, RetriedFault, RetriedFaults
from tidegate.producer.observation.metrics import producer_metrics
from tidegate.program.status_server import Health, Metric, Metrics, StatusServer
from tidegate.schemas.progress import (
    ChildPartition,
    ControlState,
    PartitionGap,
    StreamControl,
    TopicTotals,
)

OPEN, STOPPED = PartitionCondition.OPEN, PartitionCondition.STOPPED
MINUTE_US = 60_000_000
FLEET = FleetStatus(
    stream="projects/p/instances/i/databases/d/changeStreams/Everything",
    epoch="0123456789abcdef" * 2, watermark_us=1_000_000, has_ended=False,
    slots=(SlotStatus(0, "w [1]", 2, 2, 1_000_000), SlotStatus(1, "", 0, 0, None)),
    partitions=(
        PartitionStatus(
            "slow", 0, "w [1]", STOPPED, 1_000_000, "it [broke]",
            stopped_since_us=1_700_000_040_000_000, error="QueryError",
        ),
        PartitionStatus("fast" * 20, 0, "w [1]", OPEN, 2_000_000, None),
    ),
)  # fmt: skip
STATUS = StreamStatus(FLEET, StreamState.FAILED, ("w [1]",), 3_500_000)


@pytest.fixture
def config(place, monkeypatch):
    monkeypatch.setattr(fleet_reader, "group_members", lambda _admin, _group: ["w1"])
    config = place.config(spanner_emulator_host=NOWHERE)
    place.record(started(config.stream_path))
    return config


def totals(mods):
    return (TopicTotals("t", 1, mods, 10 * mods, 0),)


def test_it_shows_what_every_slot_holds(place, config):
    for slot in range(4):
        place.record(beat(slot, stopped="refused" if slot == 2 else None), slot=slot)
    (status,) = islice(follow(config), 1)
    fleet = status.fleet
    assert (fleet.stream, fleet.epoch, fleet.watermark_us) == (config.stream_path, "epoch-1", 0)
    assert [(partition.token, partition.reason) for partition in fleet.partitions] == [
        ("t0", None), ("t1", None), ("t2", "refused"), ("t3", None),
    ]  # fmt: skip
    assert (status.state, status.members) == (StreamState.FAILED, ("w1",))
    assert (status.since_us, status.changes_a_second) == (0, None)


def test_the_second_status_has_what_came_since_and_the_rate(place, config, monkeypatch):
    monkeypatch.setattr(command, "ask_worker", lambda address: WorkerCounts(address, error="no"))
    place.record(beat(1, totals=totals(5)), slot=1)
    statuses = follow(config, metrics=["h:1"], interval_s=1.5)
    first = next(statuses)
    assert (first.state, first.fleet.watermark_us) == (StreamState.STARTING, None)

    for slot in range(4):
        place.record(beat(slot, 2, totals=totals(25) if slot == 1 else ()), slot=slot)
    second = next(statuses)
    assert (second.state, second.fleet.watermark_us) == (StreamState.RUNNING, 0)
    assert 20 / 60 < second.changes_a_second <= 20 / 1.5
    assert [worker.address for worker in second.workers] == ["h:1"]
    statuses.close()


def test_json_has_all_of_it_with_lags():
    open_one = PartitionStatus("t1", 1, "w1", OPEN, 1_000_000, None)
    fleet = FleetStatus("s", "e", None, False, (SlotStatus(1, "w1", 2, 1, 1_000_000),), (open_one,))
    worker = WorkerCounts("h:1", 3, 2, 1, 4, 0, retention_headroom_s=3_600.5)
    status = StreamStatus(
        fleet, StreamState.STARTING, ("w1",), 3_500_000, 1.5, (worker,), since_us=60_000_000
    )
    report = json.loads(as_json(status))
    assert {
        "state": "Starting", "members": ["w1"], "watermark_us": None, "lag_s": None,
        "since_us": 60_000_000, "since": "1970-01-01T00:01:00+00:00", "changes_a_second": 1.5,
    }.items() <= report.items()  # fmt: skip
    (partition,), (asked,) = report["partitions"], report["workers"]
    assert partition == {
        "token": "t1", "slot": 1, "worker": "w1", "condition": "open", "watermark_us": 1_000_000,
        "reason": None, "stopped_since_us": None, "error": None, "parked": 0, "lag_s": 2.5,
        "watermark": "1970-01-01T00:00:01+00:00",
    }  # fmt: skip
    assert asked == {
        "address": "h:1", "running": 3, "queued": 2, "paused": 1, "held": 4, "stopped": 0,
        "retention_headroom_s": 3_600.5, "error": "", "retried": None, "retried_dropped": 0,
    }  # fmt: skip


def printed(status=STATUS, *, slowest=10, width=200, title=""):
    """Return the table, or what follows a title, as one line with single spaces."""
    console = Console(width=width)
    with console.capture() as capture:
        console.print(status_table(status, slowest=slowest))
    text = capture.get()
    assert max(map(len, text.splitlines())) <= width
    return " ".join((text.partition(title)[2] if title else text).split())


def of_fleet(**changes):
    return replace(STATUS, fleet=replace(FLEET, **changes))


def stopped(token, reason, *, since_us=None, error=None):
    return PartitionStatus(
        token, 0, "w", STOPPED, 1_000_000, reason, stopped_since_us=since_us, error=error
    )


def test_all_of_it_fits_a_hundred_columns_and_any_text_is_shown_unchanged():
    gap = PartitionGap("gone [1]", 1_000_000, 2_000_000, "ops [1]", 3)
    workers = (
        WorkerCounts("127.0.0.1:9100", 31, 41, 59, 53, 26, 9_000),
        WorkerCounts("b:2", error="no"),
    )
    full = replace(of_fleet(gaps=(gap,)), changes_a_second=12_345.6, workers=workers)
    text = printed(full, width=100)
    for part in (
        "Failed; 1 worker; 2 stream partitions are open; the watermark is behind by 2.5 s;",
        "12,346 changes a second", "it [broke]", "QueryError", "2023-11-14T22:1", "gone [1]",
        "b:2: no", "2.5 h",
    ):  # fmt: skip
        assert part in text


def test_the_state_is_shown_with_since_when_and_who_paused_it():
    text = printed(replace(STATUS, since_us=1_700_000_040_000_000))
    assert "Failed since 2023-11-14T22:14:00Z; 1 worker" in text
    control = StreamControl(1, ControlState.PAUSED, "Ann", MINUTE_US)
    text = printed(replace(of_fleet(control=control), since_us=MINUTE_US))
    assert "since 1970-01-01T00:01:00Z (paused by Ann at 1970-01-01T00:01:00Z)" in text
    ended = of_fleet(has_ended=True, slots=(), partitions=())
    text = printed(replace(ended, state=StreamState.ENDED))
    assert "0 stream partitions are open; the stream has ended" in text
    assert "Errors" not in text
    assert (lag_text(None, 5), lag_text(1_000_000, 3_500_000)) == ("unknown", "2.5 s")


@pytest.mark.rule("datastream-retried-errors")
def test_what_workers_retry_is_listed_the_newest_first():
    error = "QueryInterrupted UNAVAILABLE"
    fault = RetriedFault(error, "t [1]", 1_234, 0, 3 * MINUTE_US, "x", "Wait")
    two = RetriedFault("transaction aborted", "", 2, 0, MINUTE_US, "it failed. Wait", "Wait")
    status = replace(
        STATUS,
        workers=(
            WorkerCounts("a:1", retried=(fault, two), retried_dropped=5),
            WorkerCounts("b:2", retried=(replace(fault, subject="u", last_us=2 * MINUTE_US),)),
        ),
    )
    text = printed(status, title="Retried")
    first = f"1,234 │ 1970-01-01T00:00:00Z │ 1970-01-01T00:03:00Z │ {error} │"
    assert f"{first} t [1] │ x. Wait" in text
    assert text.index("t [1]") < text.index("│ u │") < text.index("│ a:1 │ it failed. Wait │")
    assert "5 older ones were dropped" in text
    assert "2 more: --slowest, or --json" in printed(status, slowest=1, title="Retried")
    quiet = printed(replace(STATUS, workers=(WorkerCounts("a:1", retried=()),)))
    assert "Retried" not in quiet


def test_workers_are_listed_with_what_they_own():
    text = printed(replace(STATUS, members=("idle", "w [1]")), title="Workers")
    for row in (
        "│ idle │ 0 │ 0 │ 0 │ 0 │ │", "│ w [1] │ 1 │ 1 │ 0 │ 1 │ 2.5 s │",
        "│ no heartbeat yet │ 1 │ 0 │ 0 │ 0 │ │",
    ):  # fmt: skip
        assert row in text


def test_as_many_rows_are_listed_as_asked_for():
    assert "fast" in printed()
    assert "fast" not in printed(slowest=1)
    assert "Slowest" not in printed(slowest=0)
    errors = of_fleet(partitions=tuple(map(stopped, "abc", ("one", "two", "six"))))
    text = printed(errors, slowest=1, title="Errors")
    assert ("one" in text, "two" in text, "2 more errors" in text) == (True, False, True)
    # Equal errors share a row with the first time.
    denied = "PermissionDenied"
    partitions = (
        stopped("a", "refused", since_us=2 * MINUTE_US, error=denied),
        stopped("b", "refused", since_us=MINUTE_US, error=denied),
        stopped("c", "expired"),
    )
    text = printed(of_fleet(partitions=partitions), title="Errors")
    assert f"1970-01-01T00:01:00Z │ {denied} │ a and 1 more │ refused" in text
    assert "unknown │ unknown │ c │ expired" in text


def test_the_file_and_the_record_of_an_error_of_files_are_named():
    position = Position("b/bank_Accounts/2024/01/02/03/04/a.avro", 7)
    reason = read_stop(stop_text(MissingSortKey.at(position, "a change has no lsn")))
    partition = stopped(object_token(3, "bank_Accounts"), reason.text, error=reason.kind)
    text = printed(of_fleet(partitions=(partition,)), title="Errors")
    for part in ("MissingSortKey", "/bank_Accounts", "a change has no lsn", position.file,
                 "record=7", "set source.backfills for the table"):  # fmt: skip
        assert part in text


def test_what_was_set_aside_is_counted_the_most_first():
    partitions = tuple(
        PartitionStatus(token, 0, "w", OPEN, 1, None, parked=count)
        for token, count in (("few", 2), ("many", 3_000), ("nothing", 0))
    )
    text = printed(of_fleet(partitions=partitions), title="Set aside")
    assert text.index("3,000") < text.index(" 2 ")
    assert "nothing" not in text
    assert "1 more" in printed(of_fleet(partitions=partitions), slowest=1, title="Set aside")
    assert "Set aside" not in printed()


def test_a_backfill_has_a_line_while_it_goes_on():
    assert "backfill" not in printed()
    for progress, text in (
        ((5_000_000, 1_250_000), "backfill: 1,250,000 of 5,000,000 rows are published (25%) "),
        ((4, 1, 90.4), "(25%); about 90 s are left "),
        ((0, 0), "(100%)"),
    ):
        assert text in printed(replace(STATUS, backfill=BackfillProgress(*progress)))


def test_a_backfill_goes_on_until_the_change_stream_has_begun():
    first, second = (ReadPartition("t", number, 2, 30, None, None) for number in range(2))
    children = tuple(ChildPartition(read_token(place), (), 0) for place in (first, second))
    begun = replace(started("s").body, children=children)
    for token, changes, rate, expected in (
        (read_token(first), 15, None, (60, 15)),
        (read_token(second), 30, 10.0, (60, 30, 3.0)),
        (read_token(second), 15, 0.0, (60, 15)),
        (done_token(first), 60, 5.0, (60, 60, 0.0)),
        (REST, 60, None, (60, 60)),
        ("token", 61, None, None),
        (RunWait(1, "t").token, 61, None, None),  # a backfill on demand
    ):
        progress = backfill_progress(begun, [token], changes=changes, rate=rate)
        assert progress == (expected and BackfillProgress(*expected)), token
    assert backfill_progress(started("s").body, ["p"], changes=3, rate=1.0) is None


def asked(metrics, **pages):
    """Return the address of a worker with these metrics, and what it answers."""
    with StatusServer(
        "127.0.0.1", 0, registry=metrics.registry, health=Health(), **pages
    ) as server:
        address = f"127.0.0.1:{server.port}"
        return address, ask_worker(address)


def test_the_gauges_of_a_worker_are_read():
    metrics = producer_metrics()
    for name, value in {
        "queries_running": 3, "stream_partitions_queued": 2, "stream_partitions_paused": 1,
        "stream_partitions_held": 5, "stream_partitions_stopped": 4,
        "retention_headroom_seconds": 7.5,
    }.items():  # fmt: skip
        metrics.set(name, value)
    metrics.add("records_total", 7, topic="t")
    address, counts = asked(metrics)
    assert counts == WorkerCounts(address, 3, 2, 1, 5, 4, 7.5)
    # Another program's number may be infinite: the worker is reported as one that does not answer.
    metrics.set("queries_running", math.inf)
    assert "not the metrics" in asked(metrics)[1].error
    metrics.set("queries_running", 3)
    # Where nothing expires, no time is left.
    metrics.set("retention_headroom_seconds", math.inf)
    assert asked(metrics)[1].retention_headroom_s is None


@pytest.mark.rule("datastream-retried-errors")
def test_what_a_worker_retries_is_read_with_them():
    faults = RetriedFaults(entries_max=1)
    for subject in ("t", "u"):
        faults.note("QueryInterrupted", subject, text="away", remedy="Wait", at_us=7)
    _, counts = asked(producer_metrics(), pages={ERRORS_PATH: faults.as_json})
    assert (counts.retried, counts.retried_dropped) == (faults.listed(), 1)


def test_what_is_not_a_worker_or_does_not_answer_is_reported():
    _, counts = asked(Metrics("other", (Metric("queries_running", "gauge", "no"),)))
    assert counts.running is None
    assert "not the metrics of a tidegate-producer" in counts.error
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    counts = ask_worker(f"127.0.0.1:{port}")
    assert (counts.queued, "refused" in counts.error) == (None, True)
    for address in ("a host", "127.0.0.1:no-port", "no-such-host.invalid:1"):
        assert ask_worker(address).error
