"""`status` says what the progress topic and the group hold now, and again as often as asked."""

from __future__ import annotations

import json
from itertools import islice

import pytest

from tests.unit.producer.commands.test_environment import started
from tests.unit.producer.commands.test_fleet_reader import beat
from tidegate.lineage.fleet_status import (
    FleetStatus,
    PartitionCondition,
    PartitionStatus,
    SlotStatus,
)
from tidegate.producer.commands import fleet_reader
from tidegate.producer.commands import status as command
from tidegate.producer.commands.status import StreamStatus, as_json, follow
from tidegate.producer.commands.stream_state import StreamState
from tidegate.producer.commands.worker_counts import WorkerCounts
from tidegate.schemas.progress import TopicTotals

ASKED = WorkerCounts(
    "h:1", running=3, queued=2, paused=1, held=4, stopped=0, retention_headroom_s=3_600.5
)


@pytest.fixture
def config(place, monkeypatch):
    """Settings of a stream that has begun, on a Spanner that does not answer."""
    monkeypatch.setattr(fleet_reader, "group_members", lambda _admin, _group: ["w1"])
    config = place.config(spanner_emulator_host="127.0.0.1:1")
    place.record(started(config.stream_path))
    return config


def totals(mods):
    return (TopicTotals("t", 1, mods, 10 * mods, 0),)


def test_it_shows_what_every_slot_holds(place, config):
    for slot in range(4):
        place.record(beat(slot, stopped="refused" if slot == 2 else None), slot=slot)
    (found,) = islice(follow(config), 1)

    assert (found.fleet.stream, found.fleet.epoch) == (config.stream_path, "epoch-1")
    assert found.fleet.watermark_us == 0
    assert [one.token for one in found.fleet.partitions] == ["t0", "t1", "t2", "t3"]
    assert [one.reason for one in found.fleet.partitions] == [None, None, "refused", None]
    assert (found.state, found.members) == (StreamState.FAILED, ("w1",))
    assert found.since_us == 0
    assert found.changes_a_second is None


def test_the_second_status_has_what_came_since_and_the_rate(place, config, monkeypatch):
    monkeypatch.setattr(command, "ask_worker", lambda address: WorkerCounts(address, error="no"))
    place.record(beat(1, totals=totals(5)), slot=1)
    found = follow(config, metrics=["h:1"], interval_s=1.5)
    first = next(found)
    assert (first.state, first.fleet.watermark_us) == (StreamState.STARTING, None)

    for slot in range(4):
        place.record(beat(slot, 2, totals=totals(25) if slot == 1 else ()), slot=slot)
    second = next(found)
    assert (second.state, second.fleet.watermark_us) == (StreamState.RUNNING, 0)
    assert 20 / 60 < second.changes_a_second <= 20 / 1.5
    assert [one.address for one in second.workers] == ["h:1"]
    found.close()


def test_json_has_all_of_it_with_lags():
    open_one = PartitionStatus("t1", 1, "w1", PartitionCondition.OPEN, 1_000_000, None)
    fleet = FleetStatus("s", "e", None, False, (SlotStatus(1, "w1", 2, 1, 1_000_000),), (open_one,))
    status = StreamStatus(
        fleet, StreamState.STARTING, ("w1",), 3_500_000, 1.5, (ASKED,), since_us=60_000_000
    )
    found = json.loads(as_json(status))

    assert (found["state"], found["members"]) == ("Starting", ["w1"])
    assert (found["since_us"], found["since"]) == (60_000_000, "1970-01-01T00:01:00+00:00")
    assert (found["watermark_us"], found["lag_s"], found["changes_a_second"]) == (None, None, 1.5)
    assert found["partitions"] == [
        {
            "token": "t1", "slot": 1, "worker": "w1", "condition": "open",
            "watermark_us": 1_000_000, "reason": None, "stopped_since_us": None,
                "error": None, "parked": 0,
            "lag_s": 2.5, "watermark": "1970-01-01T00:00:01+00:00",
        }
    ]  # fmt: skip
    assert found["workers"] == [
        {
            "address": "h:1",
            "running": 3,
            "queued": 2,
            "paused": 1,
            "held": 4,
            "stopped": 0,
            "retention_headroom_s": 3_600.5,
            "error": "",
            "retried": None,
            "retried_dropped": 0,
        }
    ]
