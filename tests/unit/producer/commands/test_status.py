"""`status` reads the progress topic to its end, and asks Spanner nothing."""

from __future__ import annotations

import json

import pytest

from tests.unit.producer.commands.conftest import SLOTS
from tests.unit.producer.commands.test_environment import started
from tidegate.producer.commands import status as status_command
from tidegate.producer.commands.status import as_json, status
from tidegate.producer.commands.worker_counts import WorkerCounts
from tidegate.schemas.errors import ConfigError, ConsumerError, UnreachableError
from tidegate.schemas.progress import ProgressRecord, SlotProgress, TokenSnapshot

ASKED = WorkerCounts("h:1", running=3, queued=2, paused=1, held=4, stopped=0)


def beat(slot, revision=1, **fields):
    token = TokenSnapshot(f"t{slot}", 0, (), ("",), 1_000_000 * slot, number=0, **fields)
    return ProgressRecord("epoch-1", "w1", SlotProgress(slot, revision, 0, -1, (), (token,)))


@pytest.fixture
def config(place):
    """Settings of a stream that has begun, on a Spanner that does not answer."""
    config = place.config(spanner_emulator_host="127.0.0.1:1")
    place.record(started(config.stream_path))
    return config


def test_it_shows_what_every_slot_holds(place, config):
    for slot in range(SLOTS):
        place.record(beat(slot, stopped="refused" if slot == 2 else None), slot=slot)
    found = status(config)

    assert (found.stream, found.epoch) == (config.stream_path, "epoch-1")
    assert found.watermark_us == 0
    assert [one.token for one in found.partitions] == ["t0", "t1", "t2", "t3"]
    assert [one.reason for one in found.partitions] == [None, None, "refused", None]


def test_json_has_all_of_it_with_lags(place, config):
    place.record(beat(1), slot=1)
    found = json.loads(as_json(status(config), [ASKED], now_us=3_500_000))

    assert (found["watermark_us"], found["lag_s"]) == (None, None)
    assert found["partitions"] == [
        {
            "token": "t1", "slot": 1, "worker": "w1", "condition": "open",
            "watermark_us": 1_000_000, "reason": None, "stopped_since_us": None,
            "lag_s": 2.5, "watermark": "1970-01-01T00:00:01+00:00",
        }
    ]  # fmt: skip
    assert [slot["open"] for slot in found["slots"]] == [0, 1, 0, 0]
    assert found["workers"] == [
        {
            "address": "h:1",
            "running": 3,
            "queued": 2,
            "paused": 1,
            "held": 4,
            "stopped": 0,
            "error": "",
        }
    ]


def test_a_stream_that_has_not_begun_is_named(place):
    with pytest.raises(ConfigError, match="nothing was ever published"):
        status(place.config(spanner_emulator_host="127.0.0.1:1"))


def test_records_that_contradict_the_protocol_end_it(place, config):
    place.record(beat(1), beat(1), slot=1)

    with pytest.raises(ConsumerError, match="two workers"):
        status(config)


def test_a_topic_whose_end_is_not_reached_is_given_up(config, monkeypatch):
    monkeypatch.setattr(status_command, "_PATIENCE_S", -1.0)
    monkeypatch.setattr(status_command, "_POLL_S", 0.0)

    with pytest.raises(UnreachableError, match="cannot be read to its end"):
        status(config)
