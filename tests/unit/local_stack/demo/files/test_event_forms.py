"""Events in the forms of each source; what the producer reads of them: producer/datastream."""

from __future__ import annotations

import io
from decimal import Decimal

import fastavro
import pytest

from tidegate.local_stack.demo.files.event_forms import (
    CDC,
    SOURCES,
    avro_bytes,
    backfill_event,
    change_event,
    event_schema,
    named,
)
from tidegate.local_stack.demo.files.source_bank import FIELDS

ROW = {"id": 7, "from_account": 1, "to_account": 2, "amount": Decimal("1.50"), "note": None}


def events(source: str) -> list[dict[str, object]]:
    table = named(source, database="bank", table="ledger")
    shared = {"read_ms": 9_000, "payload": ROW}
    return [
        backfill_event(table, 0, uuid="a", **shared),
        change_event(table, 1, at_ms=8_000, uuid="b", change_type="INSERT", **shared),
        change_event(table, 2, at_ms=8_000, uuid="c", change_type="DELETE", **shared),
    ]


@pytest.mark.parametrize("source", SOURCES)
def test_a_file_has_the_events_under_the_sources_schema(source: str):
    table = named(source, database="bank", table="ledger")
    schema = event_schema(source, table.object_name, FIELDS["ledger"])
    read = list(fastavro.reader(io.BytesIO(avro_bytes(schema, events(source), codec="deflate"))))

    assert [one["uuid"] for one in read] == ["a", "b", "c"]
    assert [one["payload"] for one in read] == [ROW] * 3
    assert [one["source_metadata"]["is_deleted"] for one in read] == [False, False, True]
    assert {one["source_metadata"]["primary_keys"][0] for one in read} == {"id"}
    assert read[1]["read_method"] == CDC[source] != read[0]["read_method"]
    assert "backfill" in read[0]["read_method"]


def test_names_are_those_of_the_source():
    names = {
        source: (one.object_name, one.topic_name)
        for source in SOURCES
        for one in [named(source, database="bank", table="ledger")]
    }

    assert names == {
        "mysql": ("bank_ledger", "bank.ledger"),
        "oracle": ("BANK_LEDGER", "BANK.LEDGER"),
        "postgresql": ("public_ledger", "public.ledger"),
        "sqlserver": ("dbo_ledger", "dbo.ledger"),
        "salesforce": ("Ledger", "Ledger"),
    }


@pytest.mark.parametrize("key_fields", [{}, {"replication_index": ["id"]}])
def test_an_event_can_have_the_fields_that_the_page_has(key_fields: dict[str, list[str]]):
    source = "sqlserver" if key_fields else "oracle"
    table = named(source, database="bank", table="ledger")
    shared = {"payload": ROW, "read_ms": 9_000, "uuid": "a", "key_fields": key_fields}
    made = [
        change_event(table, 1, at_ms=1, change_type="INSERT", read_method="other", **shared),
        backfill_event(table, 1, read_method="another", **shared),
    ]
    schema = event_schema(source, table.object_name, FIELDS["ledger"], has_primary_keys=False)
    read = list(fastavro.reader(io.BytesIO(avro_bytes(schema, made))))

    assert [one["read_method"] for one in read] == ["other", "another"]
    for one in read:
        assert "primary_keys" not in one["source_metadata"]
        assert one["source_metadata"].get("replication_index") == key_fields.get(
            "replication_index"
        )


def test_positions_of_mysql_grow_within_a_log_and_over_logs():
    table = named("mysql", database="bank", table="ledger")
    made = [
        change_event(
            table, number, at_ms=1, read_ms=1, uuid="", change_type="INSERT", payload=ROW,
            per_log=4,
        )["source_metadata"]
        for number in range(6)
    ]  # fmt: skip

    assert [(one["log_file"], one["log_position"]) for one in made] == [
        ("mysql-bin.999999", 900), ("mysql-bin.999999", 1_100), ("mysql-bin.999999", 1_300),
        ("mysql-bin.999999", 1_500), ("mysql-bin.1000000", 900), ("mysql-bin.1000000", 1_100),
    ]  # fmt: skip
