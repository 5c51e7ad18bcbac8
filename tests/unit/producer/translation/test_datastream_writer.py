"""Datastream's event: each documented field, in Avro and in JSON, for changes of any shape."""

from __future__ import annotations

import re
import uuid
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.producer.translation.event_reading import (
    FORM,
    KEY,
    read_event,
    translator_of,
    value_of,
)
from tests.unit.producer.translation.test_translator_properties import (
    MODS,
    SEQUENCES,
    TABLE,
    record,
    right,
    same,
)
from tidegate.producer.records import Mod
from tidegate.producer.translation.datastream_writer import DatastreamWriter
from tidegate.schemas.change_schema import row_fields, with_row
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.order_key import OrderKey, sequence_pair
from tidegate.schemas.output_form import Envelope, ValueFormat
from tidegate.schemas.registry import RegisteredSchema

pytestmark = pytest.mark.usefixtures("each_way")

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
AT_US = 1_700_000_000_123_456
AT_MS = 1_700_000_000_123
KEYS = {column.name: None for column in TABLE.key_columns}
STREAM = "projects/p/instances/i/databases/d/changeStreams/Feed"


def events(one, value_format=ValueFormat.AVRO, token="k"):
    messages = translator_of(Envelope.DATASTREAM, value_format).translate(one, token=token).messages
    return [read_event(message, Envelope.DATASTREAM, value_format) for message in messages]


def change(mod_type="INSERT", at_us=AT_US, sequence="00000007", mods=1, **fields):
    some = tuple(Mod(KEYS, {}, {}) for _ in range(mods))
    return record([], mod_type, at_us, sequence)._replace(mods=some, **fields)


@pytest.fixture(params=ValueFormat)
def event(request):
    (found,) = events(change("UPDATE", transaction_tag="app=x"), request.param)
    return found


def test_stream_name_is_the_change_streams_own(event):
    assert event["stream_name"] == STREAM == FORM.stream_path


def test_read_method_begins_with_the_kind_of_the_source(event):
    assert event["read_method"] == "spanner-cdc"


def test_object_is_the_table(event):
    assert event["object"] == "t"


def test_schema_key_is_that_of_the_payloads_schema(event):
    assert re.fullmatch(r"[0-9a-f]{40}", event["schema_key"])
    wider = with_row(
        value_of(Envelope.DATASTREAM).schema,
        {
            **row_fields(value_of(Envelope.DATASTREAM).schema),
            "later": {"name": "later", "type": ["null", "long"], "default": None},
        },
    )
    writer = DatastreamWriter(TABLE, key=KEY, value=RegisteredSchema(8, wider))
    ((_, value),) = writer.write_events(change(), "k")
    assert event["schema_key"].encode() not in value


def test_both_timestamps_are_the_commit_timestamp_in_milliseconds():
    (in_avro,) = events(change())
    (in_json,) = events(change(), ValueFormat.JSON)
    for name in ("read_timestamp", "source_timestamp"):
        assert in_avro[name] == EPOCH + timedelta(milliseconds=AT_MS)
        assert in_json[name] == "2023-11-14T22:13:20.123Z"
    assert in_avro["source_metadata"]["commit_timestamp"] == EPOCH + timedelta(microseconds=AT_US)
    assert in_json["source_metadata"]["commit_timestamp"] == "2023-11-14T22:13:20.123456Z"


@given(
    st.lists(
        st.tuples(st.integers(0, 2**53), st.sampled_from(["a", "b", "aa"]), SEQUENCES),
        min_size=2,
        unique=True,
    )
)
def test_sort_keys_sort_in_commit_order(places):
    found = []
    for at_us, transaction, sequence in places:
        both = events(change(at_us=at_us, sequence=sequence, mods=2,
                             server_transaction_id=transaction))  # fmt: skip
        for number, one in enumerate(both):
            order = OrderKey(at_us, transaction, sequence_pair(sequence), number).encode()
            found.append((order, one["sort_keys"]))
            assert one["sort_keys"][0] == at_us // 1000
    found.sort()
    assert all(one[1] < other[1] for one, other in pairwise(found))


def test_sort_keys_are_alike_in_both_formats():
    for sequence in ("00000007", "0a-1f"):
        one = change(sequence=sequence)
        (in_avro,), (in_json,) = events(one), events(one, ValueFormat.JSON)
        assert in_avro["sort_keys"] == in_json["sort_keys"]
        assert in_avro["sort_keys"][:3] == [AT_MS, AT_US, "tx"]


def test_the_metadata_of_the_source(event):
    metadata = dict(event["source_metadata"])
    metadata.pop("commit_timestamp")
    assert metadata == {
        "database": "d",
        "schema": "",
        "table": "t",
        "primary_keys": [column.name for column in TABLE.key_columns],
        "is_deleted": False,
        "change_type": "UPDATE",
        "tx_id": "tx",
        "record_sequence": "00000007",
        "mod_number": 0,
        "is_last_record_in_transaction_in_partition": True,
        "number_of_records_in_transaction": 1,
        "number_of_partitions_in_transaction": 1,
        "transaction_tag": "app=x",
        "is_system_transaction": False,
        "value_capture_type": "OLD_AND_NEW_VALUES",
        "captured_columns": [c.name for c in TABLE.columns if c.key_position],
    }


@pytest.mark.parametrize("value_format", ValueFormat)
def test_a_delete_says_so(value_format):
    (deleted,) = events(change("DELETE"), value_format)
    assert deleted["source_metadata"]["is_deleted"] is True
    assert deleted["source_metadata"]["change_type"] == "DELETE"


class TestUuid:
    def test_it_is_a_uuid_whose_last_digits_count_the_changes_of_a_record(self):
        for value_format in ValueFormat:
            found = [one["uuid"] for one in events(change(mods=3), value_format)]
            assert [uuid.UUID(one).version for one in found] == [8, 8, 8]
            assert {uuid.UUID(one).variant for one in found} == {uuid.RFC_4122}
            assert [one[-8:] for one in found] == ["00000000", "00000001", "00000002"]
            assert len({one[:-8] for one in found}) == 1

    def test_a_repeat_has_the_id_of_the_first(self):
        first = [one["uuid"] for one in events(change(mods=2))]
        again = [one["uuid"] for one in events(change(mods=2), ValueFormat.JSON, token="other")]
        part = [one["uuid"] for one in events(change(mods=2).part(1))]
        assert first == again
        assert part == first[1:]

    def test_another_change_has_another_id(self):
        changes = [
            change(),
            change(at_us=AT_US + 1),
            change(sequence="00000008"),
            change(server_transaction_id="ty"),
        ]
        assert len({events(one)[0]["uuid"] for one in changes}) == len(changes)

    def test_another_stream_has_other_ids(self):
        ids = {
            DatastreamWriter(
                TABLE, key=KEY, value=value_of(Envelope.DATASTREAM), form=form
            ).write_events(change(), "k")[0][1][5:42]
            for form in (FORM, None)
        }
        assert len(ids) == 2


@given(st.sampled_from(["INSERT", "UPDATE", "DELETE"]), MODS)
def test_the_payload_is_the_captured_row(mod_type, mods):
    one = record(mods, mod_type, AT_US, "00000007")
    for found, (keys, new, old) in zip(events(one), mods, strict=True):
        meant = {**right(old if mod_type == "DELETE" else new), **right(keys)}
        assert list(found["payload"]) == [column.name for column in TABLE.columns]
        for column in TABLE.columns:
            assert same(found["payload"][column.name], meant.get(column.name))


@given(st.sampled_from(["INSERT", "UPDATE", "DELETE"]), MODS)
def test_a_payload_in_json_names_the_captured_columns_alone(mod_type, mods):
    one = record(mods, mod_type, AT_US, "00000007")
    for found in events(one, ValueFormat.JSON):
        assert list(found["payload"]) == found["source_metadata"]["captured_columns"]


def test_a_table_of_a_named_schema_has_both_names():
    writer_table = TABLE.__class__("shop.t", TABLE.columns)
    writer = DatastreamWriter(writer_table, key=KEY, value=value_of(Envelope.DATASTREAM))
    facts = writer._facts_of_record(change(table_name="shop.t"), "k")
    assert facts["object"] == "shop.t"
    assert facts["source_metadata"]["schema"] == "shop"
    assert facts["source_metadata"]["table"] == "t"


def test_a_registered_schema_of_another_form_is_refused():
    whole = value_of(Envelope.DATASTREAM).schema
    for fields in (whole["fields"][1:], whole["fields"][:-1], whole["fields"][::-1]):
        with pytest.raises(SchemaError, match="not that of a change"):
            DatastreamWriter(TABLE, key=KEY, value=RegisteredSchema(9, {**whole, "fields": fields}))
