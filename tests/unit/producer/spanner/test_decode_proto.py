"""Decoding the form of mutable key ranges: never anything but records or a SchemaError."""

from __future__ import annotations

import base64
import json
from contextlib import suppress

import pytest
from google.cloud.spanner_v1.types import ChangeStreamRecord, StructType, Type, TypeCode
from hypothesis import given
from hypothesis import strategies as st

from tidegate.producer.description import DIALECTS, GOOGLE_SQL, MUTABLE_KEY_RANGE
from tidegate.producer.records import (
    HeartbeatRecord,
    PartitionEndRecord,
    PartitionEventRecord,
    PartitionStartRecord,
)
from tidegate.producer.spanner.decode import ColumnTypesCache
from tidegate.producer.spanner.decode_proto import ProtoResponseDecoder
from tidegate.producer.spanner.forms import form_of
from tidegate.schemas.avro_types import is_carried
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.tables import ColumnType

NAME = "google.spanner.v1.ChangeStreamRecord"
AT = {"seconds": 1_704_164_645, "nanos": 678_901_000}
AT_NS = 1_704_164_645_678_901_000


def metadata(code=TypeCode.PROTO, name=NAME):
    kind = Type(code=code, proto_type_fqn=name)
    return StructType(fields=[StructType.Field(name="ChangeRecord", type_=kind)])


FORMS = {
    dialect: metadata() if dialect == GOOGLE_SQL else metadata(TypeCode.BYTES, "")
    for dialect in DIALECTS
}


def row(**record):
    serialised = ChangeStreamRecord.serialize(ChangeStreamRecord(**record))
    return base64.b64encode(serialised).decode()


def data_row(**changes):
    fields = {
        "commit_timestamp": AT,
        "record_sequence": "a1-00000001",
        "server_transaction_id": "tx",
        "is_last_record_in_transaction_in_partition": True,
        "table": "public.t",
        "column_metadata": [
            {"name": "id", "type_": {"code": 2}, "is_primary_key": True, "ordinal_position": 1},
            {
                "name": "v",
                "type_": {"code": 8, "array_element_type": {"code": 10, "type_annotation": 2}},
                "ordinal_position": 2,
            },
        ],
        "mods": [
            {
                "keys": [{"value": "7"}],
                "new_values": [{"column_metadata_index": 1, "value": ["1.5", None]}],
                "old_values": [{"column_metadata_index": 1, "value": None}],
            }
        ],
        "mod_type": 20,
        "value_capture_type": 10,
        "number_of_records_in_transaction": 2,
        "number_of_partitions_in_transaction": 1,
        "transaction_tag": "tag",
        "is_system_transaction": True,
        **changes,
    }
    return row(data_change_record=fields)


def decode(*messages, code=TypeCode.PROTO):
    decoder = ProtoResponseDecoder(ColumnTypesCache(), column_type=code)
    records = [one for message in messages for one in decoder.decode(message.SerializeToString())]
    decoder.end()
    return records


def decode_row(wire, text):
    (record,) = decode(wire.message(text, metadata=metadata()))
    return record


@pytest.mark.rule("spanner-proto-records")
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_change_is_read_alike_in_both_dialects(wire, dialect):
    decoder = form_of(dialect, MUTABLE_KEY_RANGE, "Feed").decoder()
    message = wire.message(data_row(), metadata=FORMS[dialect])
    (record,) = decoder.decode(message.SerializeToString())
    assert record._replace(columns=(), mods=()) == (
        AT_NS, "a1-00000001", "tx", True, "t", (), (), "UPDATE", "OLD_AND_NEW_VALUES",
        2, 1, "tag", True, 0,
    )  # fmt: skip
    assert record.mods == (({"id": "7"}, {"v": ["1.5", None]}, {"v": None}),)
    assert [(c.name, c.type, c.is_primary_key, c.ordinal) for c in record.columns] == [
        ("id", ColumnType("INT64"), True, 1),
        ("v", ColumnType("ARRAY", ColumnType("NUMERIC", annotation="PG_NUMERIC")), False, 2),
    ]


@pytest.mark.rule("spanner-proto-records")
def test_values_are_those_of_json(wire):
    values = [True, 0.1, "x", None, [], ["a", None], "NaN"]
    columns = [{"name": f"c{n}", "type_": {"code": 6}} for n in range(len(values))]
    listed = [{"column_metadata_index": n, "value": value} for n, value in enumerate(values)]
    mods = [{"keys": [], "new_values": listed}]
    record = decode_row(wire, data_row(column_metadata=columns, mods=mods))
    found = dict(record.mods[0].new_values)
    assert found == {f"c{n}": value for n, value in enumerate(values)}
    assert json.loads(json.dumps(found)) == found


def test_a_later_type_is_one_that_nothing_carries(wire):
    """Its record may be of a table that is left out."""
    types = [{"code": 99}, {"code": 8, "array_element_type": {"code": 99}},
             {"code": 6, "type_annotation": 77}]  # fmt: skip
    columns = [{"name": f"c{n}", "type_": kind} for n, kind in enumerate(types)]
    record = decode_row(wire, data_row(column_metadata=columns, mods=[]))
    assert [one.type.text for one in record.columns] == [
        "TYPE_CODE 99", "ARRAY<TYPE_CODE 99>", "STRING TYPE_ANNOTATION 77",
    ]  # fmt: skip
    assert [is_carried(one.type) for one in record.columns] == [False, False, True]


def test_the_records_about_stream_partitions(wire):
    rows = [
        row(heartbeat_record={"timestamp": AT}),
        row(
            partition_start_record={
                "start_timestamp": AT,
                "record_sequence": "1-0",
                "partition_tokens": ["a", "b"],
            }
        ),
        row(
            partition_event_record={
                "commit_timestamp": AT,
                "record_sequence": "1-1",
                "partition_token": "t",
                "move_in_events": [{"source_partition_token": "x"}],
                "move_out_events": [
                    {"destination_partition_token": "y"},
                    {"destination_partition_token": "z"},
                ],
            }
        ),
        row(
            partition_end_record={
                "end_timestamp": AT,
                "record_sequence": "1-2",
                "partition_token": "t",
            }
        ),
    ]
    assert decode(wire.message(*rows, metadata=metadata())) == [
        HeartbeatRecord(AT_NS),
        PartitionStartRecord(AT_NS, "1-0", ("a", "b")),
        PartitionEventRecord(AT_NS, "1-1", ("x",), ("y", "z")),
        PartitionEndRecord(AT_NS, "1-2"),
    ]


def test_a_row_may_come_in_chunks(wire):
    text = data_row()
    cut = len(text) // 3
    first = wire.message(text[:cut], metadata=metadata(), chunked=True)
    (record,) = decode(first, wire.message(text[cut:]))
    assert record == decode_row(wire, text)


@pytest.mark.parametrize(
    "form",
    [
        metadata(TypeCode.BYTES),
        metadata(name="another.Record"),
        metadata(TypeCode.STRING, ""),
        StructType(fields=[*metadata().fields, *metadata().fields]),
    ],
)
def test_another_form_is_refused(wire, form):
    with pytest.raises(SchemaError, match="mutable key ranges"):
        decode(wire.message(data_row(), metadata=form))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("%", "cannot be read"),
        (base64.b64encode(b"\xff\xff").decode(), "cannot be read"),
        (None, "not bytes"),
        ("", "not one change stream record"),
        (row(heartbeat_record={}), "without its timestamp"),
        (data_row(commit_timestamp=None), "without its timestamp"),
        (data_row(mod_type=0), "unknown mod type"),
        (data_row(mod_type=77), "number that is not known"),
        (data_row(value_capture_type=77), "number that is not known"),
        (data_row(column_metadata=[]), "does not name"),
        (
            data_row(mods=[{"keys": [{"column_metadata_index": -1, "value": "x"}]}]),
            "does not name",
        ),
        (data_row(mods=[{"keys": [{"value": {"a": 1}}]}]), "struct"),
    ],
)
def test_what_cannot_be_read_is_named(wire, text, reason):
    with pytest.raises(SchemaError, match=reason):
        decode_row(wire, text)


def test_a_response_needs_its_metadata(wire):
    with pytest.raises(SchemaError, match="without metadata"):
        decode(wire.message(data_row()))


WHOLE = base64.b64decode(data_row())


@given(st.binary(max_size=60) | st.integers(0, len(WHOLE)).map(lambda cut: WHOLE[:cut]))
def test_any_bytes_are_records_or_a_schema_error(content):
    from tests.unit.producer.spanner.conftest import message

    built = message(base64.b64encode(content).decode(), metadata=metadata())
    with suppress(SchemaError):
        decode(built)
