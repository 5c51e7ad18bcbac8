"""The progress topic is read to its end, again and again, and Spanner is asked nothing."""

from __future__ import annotations

from contextlib import closing

import pytest

from tests.unit.producer.commands.conftest import SLOTS
from tests.unit.producer.commands.test_environment import started
from tidegate.producer.commands import fleet_reader
from tidegate.producer.commands.fleet_reader import FleetReader, read_fleet
from tidegate.producer.errors import StreamChangedError
from tidegate.producer.fleet_config import FleetConfig
from tidegate.schemas.errors import ConfigError, ConsumerError, UnreachableError
from tidegate.schemas.progress import (
    PartitionFinished,
    ProgressRecord,
    SlotProgress,
    TokenSnapshot,
    TopicTotals,
)


def beat(slot, revision=1, **fields):
    token = TokenSnapshot(f"t{slot}", 0, (), ("",), 1_000_000 * slot, number=0, **fields)
    return ProgressRecord("epoch-1", "w1", SlotProgress(slot, revision, 0, -1, (), (token,)))


@pytest.fixture
def config(place):
    """Settings of a stream that has begun, on a Spanner that does not answer."""
    config = place.config(spanner_emulator_host="127.0.0.1:1")
    place.record(started(config.stream_path))
    return config


def test_it_reads_what_every_slot_holds(place, config):
    for slot in range(SLOTS):
        place.record(beat(slot), slot=slot)
    found = read_fleet(config)

    assert (found.started.stream, found.epoch) == (config.stream_path, "epoch-1")
    assert [list(slot.tokens) for slot in found.view.slots] == [["t0"], ["t1"], ["t2"], ["t3"]]


def test_it_needs_no_setting_of_spanner_and_no_number_of_slots(place, config):
    place.record(beat(1), slot=1)
    names = ("bootstrap_servers", "registry_url", "prefix")
    settings = FleetConfig.load(None, **{name: place.settings[name] for name in names})
    assert settings.slots != SLOTS
    found = read_fleet(settings)
    assert found.started.stream == config.stream_path
    assert [len(slot.tokens or ()) for slot in found.view.slots] == [0, 1, 0, 0]
    # With them the stream is compared.
    other = {**place.settings, "change_stream": "Other"}
    with pytest.raises(StreamChangedError):
        read_fleet(FleetConfig.load(None, **other))


def test_it_reads_on_to_what_came_since(place, config):
    with closing(FleetReader(config)) as reader:
        place.record(beat(1, totals=(TopicTotals("t", 1, 3, 30, 0),)), slot=1)
        reader.wait(0.1)
        assert reader.read().changes == 3

        marker = PartitionFinished("t0", (), 0, 5, (), (TopicTotals("t", 1, 4, 40, 0),))
        place.record(ProgressRecord("epoch-1", "w1", marker), slot=2)
        reader.wait(1.5)
        assert reader.read().changes == 7


def test_a_stream_that_has_not_begun_is_named(place):
    with pytest.raises(ConfigError, match="nothing was ever published"):
        FleetReader(place.config(spanner_emulator_host="127.0.0.1:1"))


def test_records_that_contradict_the_protocol_end_it(place, config):
    place.record(beat(1), beat(1), slot=1)

    with pytest.raises(ConsumerError, match="two workers"):
        read_fleet(config)


def test_a_topic_whose_end_is_not_reached_is_given_up(config, monkeypatch):
    monkeypatch.setattr(fleet_reader, "_PATIENCE_S", -1.0)
    monkeypatch.setattr(fleet_reader, "_POLL_S", 0.0)

    with pytest.raises(UnreachableError, match="cannot be read to its end"):
        read_fleet(config)


def test_members_are_asked_of_the_fleets_group(config, monkeypatch):
    asked = []
    monkeypatch.setattr(
        fleet_reader, "group_members", lambda _admin, group: asked.append(group) or ["w1"]
    )
    with closing(FleetReader(config)) as reader:
        assert reader.members() == ["w1"]
    assert asked == ["bank-fleet"]
