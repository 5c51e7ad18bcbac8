"""Changes, and what Debezium's own classes make of them (`debezium/README.md`)."""

from __future__ import annotations

import json
from pathlib import Path

from tests.unit.producer.translation.translation_building import columns_of
from tidegate.producer.records import DataChangeRecord, Mod
from tidegate.producer.translation.event_writer import EventForm
from tidegate.schemas.instants import parse_rfc3339_ns
from tidegate.schemas.tables import Column, ColumnType, TableSchema

_FOLDER = Path(__file__).parent / "debezium"
CHANGES = json.loads((_FOLDER / "changes.json").read_text())
RECORDS = json.loads((_FOLDER / "records.json").read_text())


def _type(kind):
    return ColumnType(kind[0], ColumnType(kind[1])) if isinstance(kind, list) else ColumnType(kind)


_POSITIONS = {one["name"]: n for n, one in enumerate(
    (one for one in CHANGES["columns"] if one["is_key"]), 1)}  # fmt: skip
TABLE = TableSchema(
    CHANGES["table"],
    tuple(
        Column(one["name"], _type(one["type"]), one["ordinal"], _POSITIONS.get(one["name"]))
        for one in CHANGES["columns"]
    ),
)
TOPIC = f"{CHANGES['prefix']}.{CHANGES['table']}"
FORM = EventForm(
    **{name: CHANGES[name] for name in ("prefix", "project", "instance", "database",
                                        "change_stream")}
)  # fmt: skip


def record_of(change):
    return DataChangeRecord(
        parse_rfc3339_ns(CHANGES["commit_timestamp"]), CHANGES["record_sequence"],
        CHANGES["server_transaction_id"], True, TABLE.name, columns_of(TABLE),
        (Mod(change["keys"], change["new_values"], change["old_values"]),), change["mod_type"],
        change["value_capture_type"], CHANGES["number_of_records_in_transaction"],
        CHANGES["number_of_partitions_in_transaction"], CHANGES["transaction_tag"], False,
        change["mod_number"],
    )  # fmt: skip
