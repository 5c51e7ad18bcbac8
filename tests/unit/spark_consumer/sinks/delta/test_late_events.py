"""Which events of files are late: those whose time was released when they were read."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace

import pytest

from tests.datastream_worlds import run_world
from tidegate.schemas.instants import format_rfc3339
from tidegate.schemas.source_order import SOURCE_ORDER, SOURCE_TIMESTAMP
from tidegate.spark_consumer.sinks.collected_table import CollectedTable
from tidegate.spark_consumer.sinks.delta.late_events import DeltaLateEvents, is_late

OPEN_US = 1_700_000_000_000_000


def change(source_us, *, order="01aa-1-1", deleted=False, as_text=False):
    at = format_rfc3339(source_us * 1_000) if as_text and source_us else source_us
    row = {SOURCE_ORDER: order, SOURCE_TIMESTAMP: at}
    new, old = (None, row) if deleted else (row, None)
    return {"record_sequence": f"{OPEN_US:x}-2a", "new_values": new, "old_values": old}


@pytest.mark.parametrize("as_text", [False, True])
@pytest.mark.parametrize("deleted", [False, True])
def test_an_event_is_late_if_its_time_is_before_the_first_one_that_was_open(deleted, as_text):
    how = {"deleted": deleted, "as_text": as_text}
    assert is_late(change(OPEN_US - 1, **how))
    assert not is_late(change(OPEN_US, **how))
    assert not is_late(change(OPEN_US + 1, **how))


def test_a_row_of_a_backfill_is_before_all_changes_and_never_late():
    assert not is_late(change(OPEN_US - 1, order="00-1-1"))


def test_an_event_without_a_time_is_not_late():
    assert not is_late(change(None))


def test_events_whose_time_the_stream_leaves_out_are_not_named():
    """`columns_left_out` may name any column but those of the key."""
    fields = [{"name": name} for name in ("id", SOURCE_ORDER)]
    row = {"name": "new_values", "type": ["null", {"type": "record", "fields": fields}]}
    values = {"id": 1, SOURCE_ORDER: "01aa-1-1"}
    changes = [{**change(0), "new_values": values, "ordinal": 0}]
    schemas = SimpleNamespace(reader_schema={"fields": [row]})
    table = CollectedTable(None, None, changes, schemas)

    assert DeltaLateEvents("/unused").write(SimpleNamespace(tables={"t": table})) == 0


@pytest.mark.rule("datastream-late-events", "datastream-in-order")
@pytest.mark.parametrize("seed", range(30))
def test_without_them_changes_of_a_key_are_released_in_the_order_of_the_source(seed):
    world = run_world(seed, late_files=True)
    place = {event["uuid"]: number for number, event in enumerate(world.changes)}
    of_key, late = defaultdict(list), 0
    for message, _ in sorted(world.model.published, key=lambda one: one[0].order_key):
        change = as_change(message.value)
        row = {**message.value.mods[0].keys, **(change["new_values"] or change["old_values"])}
        if is_late(change):
            late += 1
        elif row["_datastream_uuid"] in place:
            of_key[row["id"]].append(place[row["_datastream_uuid"]])
    assert {key: sorted(places) for key, places in of_key.items()} == of_key
    assert len(world.model.published) > late


@pytest.mark.parametrize("seed", range(12))
def test_they_are_those_that_the_producer_counts(seed):
    world = run_world(seed, late_files=True, deaths=False)
    published = [message.value for message, _ in world.model.published]
    late = [one for one in published if is_late(as_change(one))]
    assert len(late) == world.model.counts["late_events"]
    assert world.deaths == 0


def as_change(record):
    (mod,) = record.mods
    sides = {"new_values": mod.new_values or None, "old_values": mod.old_values or None}
    return {"record_sequence": record.record_sequence, **sides}
