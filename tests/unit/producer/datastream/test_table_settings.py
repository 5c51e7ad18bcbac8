"""What the settings say of a table: a repair by a backfill, carried out as hints say, and a key."""

import random
from copy import deepcopy
from dataclasses import replace

import pytest

from tests.datastream_files import (
    SOURCES,
    START_MS,
    TABLES,
    avro_bytes,
    history,
    json_bytes,
    plain_row,
    schema_of,
)
from tests.datastream_folder import minute_folder
from tests.datastream_model import ObjectModel
from tidegate.local_stack.demo import event_forms as forms
from tidegate.local_stack.demo.event_forms import backfill_event, change_event
from tidegate.producer.datastream.errors import (
    FileDamaged,
    MissingKeyColumn,
    MissingSortKey,
    MixedSources,
    Position,
)
from tidegate.producer.datastream.event import parse_event
from tidegate.producer.datastream.file_ledger import US_PER_MINUTE
from tidegate.producer.datastream.table_settings import LaterBackfill, ServerOrder, TableSettings
from tidegate.spark_consumer.sinks.delta.side_tables import is_late
from tidegate.spark_consumer.sinks.merge.fold import newest_rows

FIRST = START_MS * 1_000 // US_PER_MINUTE
NAMES = {
    "mysql": "shop.orders", "oracle": "SHOP.ORDERS", "postgresql": "public.orders",
    "sqlserver": "dbo.orders", "salesforce": "Order",
}  # fmt: skip
ROTATED = 24
"""The first change after the operator has begun a log and noted the time."""
SECOND_MS = 1_000


def events_of(source, seed):
    """Return (changes, rows of a backfill that was started before the change `ROTATED`, rows)."""
    rng = random.Random(seed)
    rows, changes, alive, seen = {}, [], set(), {}
    for number in range(40):
        if number == ROTATED + 6:  # the backfill reads the table some changes later
            seen = dict(rows)
        key = rng.randrange(6)
        is_deleted = key in alive and rng.random() < 0.3
        kind = "DELETE" if is_deleted else "UPDATE" if key in alive else "INSERT"
        alive = alive - {key} if is_deleted else alive | {key}
        rows[key] = None if is_deleted else plain_row(number, key)
        at_ms = START_MS + number * SECOND_MS
        changes.append(
            change_event(
                TABLES[source], number, at_ms=at_ms, read_ms=at_ms, change_type=kind,
                uuid=f"3c0ffaeb-0000-0000-0000-{number:012x}", payload=plain_row(number, key),
            )
        )  # fmt: skip
    read_ms = START_MS + (ROTATED + 6) * SECOND_MS
    backfill = [
        backfill_event(
            TABLES[source], 0, read_ms=read_ms, payload=row,
            uuid=f"aaaaaaaa-0000-0000-0000-{key:012x}",
        )
        for key, row in seen.items() if row is not None
    ]  # fmt: skip
    return changes, backfill, rows


def settings(source, **more):
    log = {"mysql": f"mysql-bin.{999_999 + ROTATED // 3}", "oracle": str(0xFF_FFFE + ROTATED // 4)}
    since_us = (START_MS + ROTATED * SECOND_MS) * 1_000
    later = LaterBackfill(more.get("since_us", since_us), more.get("log", log.get(source, "")))
    return TableSettings(backfills={NAMES[source]: later})


def put(reader, minute, data):
    path = f"root/shop_orders/{minute_folder(minute)}/1.avro"
    reader.files.put(path, data, modified_us=(minute + 1) * US_PER_MINUTE)


def published(source, changes, backfill, *, first=None, tables, order=(0, 1, 2, 3)):
    """Return what is published of files, of which `first` has lost changes."""
    reader = ObjectModel(
        now_us=(FIRST + 9) * US_PER_MINUTE, start_us=(FIRST - 1) * US_PER_MINUTE, tables=tables
    )
    reason, spoiled = first or damaged(source, changes)
    files = [spoiled, avro_bytes(source, backfill)]
    files += [avro_bytes(source, changes[ROTATED:32]), avro_bytes(source, changes[32:])]
    for minute, file in enumerate(order):
        put(reader, FIRST + minute, files[file])
    reader.run()
    assert reason.__name__ in {letter.reason for letter in reader.dead_letters}
    return reader


def damaged(source, changes):
    """Return the error that a first file meets after its first events, and its bytes."""
    whole = avro_bytes(source, changes[:ROTATED], per_block=600)
    middle = len(whole) // 2
    return FileDamaged, whole[:middle] + b"\xff" * 40 + whole[middle + 40 :]


def without_place(source, changes):
    """Return the error of a first file's later events, and its bytes."""
    some = deepcopy(changes[:ROTATED])
    for event in some[ROTATED // 2 :]:
        event["sort_keys"] = None
        metadata = event["source_metadata"]
        metadata.update(dict.fromkeys({"log_file", "rs_id", "lsn"} & set(metadata)))
    schema = schema_of(source, some)
    fields = {field["name"]: field for field in schema["fields"]}
    fields["sort_keys"]["type"] = ["null", fields["sort_keys"]["type"]]
    return MissingSortKey, forms.avro_bytes(schema, some)


def without_key(source, changes):
    """Return the error of a first file's later events, and its bytes."""
    some = deepcopy(changes[:ROTATED])
    for event in some[ROTATED // 2 :]:
        event["source_metadata"]["primary_keys"] = ["left_out"]
    return MissingKeyColumn, avro_bytes(source, some)


def mirror(reader):
    """Return the rows that a mirror has: by the consumer's own rule."""
    changes = []
    for message, _ in reader.published:
        (mod,) = message.value.mods
        deleted = message.value.mod_type == "DELETE"
        row = mod.old_values if deleted else mod.new_values
        changes.append({
            "key": mod.keys, "mod_type": message.value.mod_type,
            "record_sequence": message.value.record_sequence,
            "new_values": None if deleted else row, "old_values": row if deleted else None,
            "new_columns": list(row), "old_columns": list(row),
        })  # fmt: skip
    rows = newest_rows(changes, list(changes[0]["new_values"] or changes[0]["old_values"]))
    return changes, {change["key"]["id"]: change["new_values"] for change in rows}


@pytest.mark.rule("datastream-later-backfill")
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("lose", [damaged, without_place, without_key])
def test_a_lost_file_is_repaired_by_a_backfill_with_its_place_in_the_settings(source, lose):
    if (source, lose) == ("salesforce", without_place):
        return  # its changes are ordered by a time that each event has
    stale = 0
    for seed in range(12 if lose is damaged else 3):
        changes, backfill, rows = events_of(source, seed)
        for order in ((0, 1, 2, 3), (1, 2, 3, 0), (3, 2, 1, 0)):
            how = {"first": lose(source, changes), "order": order}
            reader = published(source, changes, backfill, tables=settings(source), **how)
            found_changes, merged = mirror(reader)
            # A row that was deleted in the lost file is of no backfill: it is below its place.
            place = min(
                (row for row in merged.values() if "backfill" in row["_datastream_read_method"]),
                key=lambda row: row["_datastream_order"], default=None,
            )  # fmt: skip
            alive = {
                key: row["note"]
                for key, row in merged.items()
                if "DELETE" not in row["_datastream_change_type"]
                and (place is None or row["_datastream_order"] >= place["_datastream_order"])
            }
            assert alive == {key: row["note"] for key, row in rows.items() if row is not None}
            assert not [
                change for change in found_changes
                if is_late(change)
                and "backfill" in (change["new_values"] or {}).get("_datastream_read_method", "")
            ]  # fmt: skip
            _, plain = mirror(published(source, changes, backfill, tables=None, **how))
            stale += {key: plain.get(key, {}).get("note") for key in alive} != alive
    assert stale  # without the setting the mirror keeps rows of before the lost changes


@pytest.mark.parametrize("source", SOURCES)
def test_a_row_of_an_earlier_backfill_stays_before_every_change(source):
    changes, backfill, _ = events_of(source, 1)
    later = (START_MS + 39 * SECOND_MS) * 1_000
    tables = settings(source, since_us=later)
    reader = published(source, changes, backfill, tables=tables)
    orders = [
        message.value.server_transaction_id
        for (message, _), row in zip(reader.published, reader.rows(), strict=True)
        if "backfill" in row["_datastream_read_method"]
    ]
    assert len(orders) == len(backfill)
    assert all(order.startswith("00-") for order in orders)


@pytest.mark.parametrize(
    ("source", "log", "error", "text"),
    [
        ("mysql", "", MissingSortKey, "log of shop.orders must be the name of a binary log"),
        ("mysql", "124", MissingSortKey, "such as mysql-bin.000124"),
        ("mysql", "replica-bin.000124", MixedSources, "two binary logs"),
        ("oracle", "", MissingSortKey, "the sequence number of a redo log"),
        ("oracle", "mysql-bin.000124", MissingSortKey, "the sequence number of a redo log"),
        ("postgresql", "7", MissingSortKey, "left out"),
        ("salesforce", "7", MissingSortKey, "left out"),
    ],
)
def test_a_place_that_is_not_one_of_the_source_is_refused_by_name(source, log, error, text):
    changes, backfill, _ = events_of(source, 1)
    reader = published(source, changes, backfill, tables=settings(source, log=log))
    dead_letters = [letter for letter in reader.dead_letters if letter.reason == error.__name__]
    assert len(dead_letters) == len(backfill)
    assert text in dead_letters[0].error
    assert "backfill" not in repr([mod for one_, _ in reader.published for mod in one_.value.mods])


def test_a_place_for_rows_of_spanner_is_refused_because_their_events_have_it():
    (event,) = history("postgresql", random.Random(1), 1)
    event |= {"read_method": "spanner-backfill", "payload": {"id": 1}, "sort_keys": None}
    event["source_metadata"] = {
        "table": "Orders", "primary_keys": ["id"], "is_deleted": False, "change_type": "INSERT",
        "tx_id": "t", "record_sequence": "00000003", "mod_number": 0, "commit_timestamp": 5,
    }  # fmt: skip
    row = parse_event(event, Position("o/a.avro", 4))
    for log in ("", "7"):
        tables = TableSettings(backfills={"Orders": LaterBackfill(0, log)})
        with pytest.raises(MissingSortKey, match="leave Orders out"):
            tables.applied(row)


@pytest.mark.parametrize("former", [[], ["8f6a1c52-71ca-11e1-9e33-c80aa9429562"]])
def test_a_place_may_be_the_last_transaction_before(former):
    server = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
    servers = ServerOrder.of([*former, server])
    changes, backfill, _ = events_of("mysql", 1)
    for number, event in enumerate(changes):
        metadata = event["source_metadata"]
        del metadata["log_file"], event["sort_keys"]
        event["read_method"] = "cdc"
        metadata.update(gtid=f"{server}:{number}", binlog_position=metadata.pop("log_position"))
    for event in backfill:
        event["read_method"] = "backfill"
        del event["sort_keys"]
    reader = ObjectModel(
        now_us=(FIRST + 9) * US_PER_MINUTE, start_us=(FIRST - 1) * US_PER_MINUTE,
        tables=replace(settings("mysql", log=f"{server}:{ROTATED - 1}"), servers=servers),
    )  # fmt: skip
    put(reader, FIRST, json_bytes([*backfill, *changes]))
    reader.run()
    assert reader.dead_letters == []
    pairs = zip(reader.published, reader.rows(), strict=True)
    placed = [
        row["_datastream_read_method"]
        for _, row in sorted(pairs, key=lambda pair: pair[0][0].value.server_transaction_id)
    ]
    assert placed[:ROTATED] == ["cdc"] * ROTATED
    assert placed[ROTATED : ROTATED + len(backfill)] == ["backfill"] * len(backfill)


@pytest.mark.rule("datastream-rows-without-key")
def test_a_table_whose_events_name_no_key_has_the_settings_one():
    tables = TableSettings(keys={"SHOP.ORDERS": ("id",)})
    reader = ObjectModel(now_us=(FIRST + 9) * US_PER_MINUTE, tables=tables)
    changes, _, _ = events_of("oracle", 1)
    for event in changes:
        del event["source_metadata"]["primary_keys"]
    changes[3]["payload"]["id"] = None
    put(reader, FIRST, avro_bytes("oracle", changes))
    reader.run()
    keys = [message.value.mods[0].keys for message, _ in reader.published]
    assert keys == [
        {"id": event["payload"]["id"]} for event in changes if event["payload"]["id"] is not None
    ]
    assert "DELETE" in {message.value.mod_type for message, _ in reader.published}
    (letter,) = reader.dead_letters
    assert letter.reason == MissingKeyColumn.__name__
    assert "source.keys" in letter.error


def test_a_key_that_events_name_is_not_replaced():
    tables = TableSettings(keys={"shop.orders": ("note",)})
    reader = ObjectModel(now_us=(FIRST + 9) * US_PER_MINUTE, tables=tables)
    changes, _, _ = events_of("mysql", 1)
    put(reader, FIRST, avro_bytes("mysql", changes))
    reader.run()
    assert {name for message, _ in reader.published for name in message.value.mods[0].keys} == {
        "id"
    }
