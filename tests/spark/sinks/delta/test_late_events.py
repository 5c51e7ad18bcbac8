"""The table of late events: both ways of a release name the same, each once."""

from __future__ import annotations

import pytest

from tidegate.schemas.source_order import SOURCE_ORDER, SOURCE_TIMESTAMP
from tidegate.spark_consumer.sinks.delta.late_events import DeltaLateEvents

pytestmark = pytest.mark.spark

COLUMNS = {
    "id": "INT64", SOURCE_ORDER: "STRING(MAX)", "_datastream_uuid": "STRING(MAX)",
    "_datastream_change_type": "STRING(MAX)", SOURCE_TIMESTAMP: "TIMESTAMP",
}  # fmt: skip
OPEN_US = 1_700_000_000_000_000


def event(kit, topic, key, source_us, *, order="01", deleted=False):
    row = {
        SOURCE_ORDER: f"{order}{key:02d}-1-1", "_datastream_uuid": f"u{key}",
        "_datastream_change_type": "DELETE" if deleted else "UPDATE",
        SOURCE_TIMESTAMP: kit.instant(source_us),
    }  # fmt: skip
    new, old = (None, row) if deleted else (row, None)
    mod = "DELETE" if deleted else "INSERT"
    place = {"us": max(source_us, OPEN_US), "open_us": OPEN_US, "sequence": key}
    return topic, kit.Change(mod, {"id": key}, new, old, **place)


def test_late_events_of_a_release_are_named_once_whichever_way_it_goes(kit):
    topics = [kit.Topic(name, {1: COLUMNS}, ["id"], key_id=9) for name in ("t", "u")]
    plain = kit.Topic("v", {1: {"id": "INT64"}}, ["id"])
    changes = [
        event(kit, topics[0], 1, OPEN_US - 1),
        event(kit, topics[0], 2, OPEN_US),
        event(kit, topics[1], 3, OPEN_US - 60_000_000, deleted=True),
        event(kit, topics[1], 4, OPEN_US - 1, order="00"),
        (plain, kit.Change("INSERT", {"id": 5}, {}, us=OPEN_US)),
    ]
    late = DeltaLateEvents(kit.output)
    for number, small in ((0, False), (1, True)):
        for _ in range(2):
            assert late.write(kit.release(number, changes, small=small)) == 2
        some = kit.release(number, [changes[1], changes[4]], small=small)
        assert late.write(some) == 0
    found = sorted(
        kit.read("late_events").to_pylist(), key=lambda row: (row["release"], row["table"])
    )
    assert len(found) == 4
    first, second = found[:2], found[2:]
    assert [{**row, "release": 0} for row in second] == first
    assert [(row["table"], row["key"], row["_datastream_uuid"]) for row in first] == [
        ("t", '{"id":1}', "u1"), ("u", '{"id":3}', "u3"),
    ]  # fmt: skip
    assert [row["_datastream_change_type"] for row in first] == ["UPDATE", "DELETE"]
    assert first[0]["first_open"] == kit.instant(OPEN_US) == first[0]["commit_timestamp"]
    assert first[0]["source_timestamp"] == kit.instant(OPEN_US - 1)
