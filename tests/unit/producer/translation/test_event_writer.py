"""Events of Debezium and of Datastream: each documented field, in both formats, of any change."""

import base64
import json
import re
import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.producer.translation import debezium_golden as golden
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
    left,
    record,
    right,
    same,
)
from tests.unit.producer.translation.translation_building import read_framed
from tidegate.producer.errors import TableChanged
from tidegate.producer.records import Mod, UnreadableValues
from tidegate.producer.translation.event_writer import DatastreamWriter, DebeziumWriter
from tidegate.producer.translation.translator import TableEncoding, Translator
from tidegate.schemas.change_schema import key_schema, row_fields, value_schema, with_row
from tidegate.schemas.debezium_schema import DEBEZIUM_TAIL
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.order_key import OrderKey, sequence_pair
from tidegate.schemas.output_form import Envelope, KeyFormat, ValueFormat
from tidegate.schemas.progress import TimestampForm
from tidegate.schemas.registry import RegisteredSchema
from tidegate.schemas.tables import Column, ColumnType, TableSchema

pytestmark = pytest.mark.usefixtures("each_way")

EVENTS = (Envelope.DEBEZIUM, Envelope.DATASTREAM)
EACH = list(product(EVENTS, ValueFormat))
MOD_TYPES = st.sampled_from(["INSERT", "UPDATE", "DELETE"])
NAMES = [column.name for column in TABLE.columns]
NO_KEYS = {column.name: None for column in TABLE.key_columns}
AT_US = 1_700_000_000_123_456
AT_MS = 1_700_000_000_123


def messages_of(change_record, envelope, value_format=ValueFormat.AVRO, token="k"):
    return translator_of(envelope, value_format).translate(change_record, token=token).messages


def events(change_record, envelope, value_format=ValueFormat.AVRO, token="k"):
    return [read_event(message, envelope, value_format)
            for message in messages_of(change_record, envelope, value_format, token)]  # fmt: skip


def change(*new_values, mod_type="INSERT", at_us=AT_US, sequence="00000007", **fields):
    """A record of one change for each of the values."""
    mods = tuple(Mod(NO_KEYS, values, {}) for values in new_values or ({},))
    return record([], mod_type, at_us, sequence)._replace(mods=mods, **fields)


@pytest.mark.parametrize(("envelope", "value_format"), EACH)
@given(MOD_TYPES, MODS)
def test_an_event_is_a_function_of_its_change(envelope, value_format, mod_type, mods):
    written_record = record(mods, mod_type, 5_000, "00000007")
    first = messages_of(written_record, envelope, value_format)
    parts = [
        messages_of(written_record.part(n), envelope, value_format)[0] for n in range(len(mods))
    ]
    assert tuple(parts) == first
    changes = messages_of(written_record, Envelope.TIDEGATE)
    assert [event._replace(value=b"") for event in first] == [
        change._replace(value=b"") for change in changes
    ]


def captured_row(envelope, event, mod_type):
    """The row after a change, of a DELETE that before it, and the names of what was captured."""
    if envelope is Envelope.DATASTREAM:
        return event["payload"], event["source_metadata"]["captured_columns"]
    place = "before" if mod_type == "DELETE" else "after"
    return event[place], event["source"][f"{place}_columns"]


@pytest.mark.parametrize("envelope", EVENTS)
@given(MOD_TYPES, MODS)
def test_json_and_avro_say_which_columns_were_captured(envelope, mod_type, mods):
    written_record = record(mods, mod_type, 5_000, "00000007")
    for value_format in ValueFormat:
        for event, (keys, new, old) in zip(
            events(written_record, envelope, value_format), mods, strict=True
        ):
            row, names = captured_row(envelope, event, mod_type)
            meant = {**left(old if mod_type == "DELETE" else new), **left(keys)}
            assert names == [name for name in NAMES if name in meant]
            nulls = {name for name in names if meant[name] is None}
            # A document that is null is null in JSON, as a column without a value is.
            documents = {name for name in names if name == "c_JSON" and meant[name] == "null"}
            assert {name for name in names if row[name] is None} - documents == nulls
            assert not any(row.get(name) for name in NAMES if name not in names)


@pytest.mark.parametrize(
    ("envelope", "value_format"),
    [*EACH, (Envelope.FLAT, ValueFormat.AVRO), (Envelope.TIDEGATE, ValueFormat.AVRO)],
)
def test_what_cannot_be_written_is_named(envelope, value_format):
    translator = translator_of(envelope, value_format)
    first_key = next(name for name in NAMES if name in NO_KEYS)

    def refused(keys, new, old, mod_type="INSERT"):
        wrong_change = change(mod_type=mod_type)._replace(mods=(Mod(keys, new, old),))
        with pytest.raises((SchemaError, TableChanged)) as caught:
            translator.translate(wrong_change, token="k")
        return caught.value

    wrong = refused(NO_KEYS, {"c_BOOL": "no", "c_DATE": "2023-01-01"}, {})
    assert wrong.fields["column"] == "c_BOOL"
    assert wrong.fields["record_sequence"] == "00000007"
    assert refused({**NO_KEYS, first_key: []}, {}, {}).fields["column"] == first_key
    assert isinstance(refused(NO_KEYS, {"later": "1"}, {}), TableChanged)
    assert "primary key" in str(refused({}, {}, {}))
    unreadable = UnreadableValues("{", SchemaError("values cannot be read"))
    assert "cannot be read" in str(refused(NO_KEYS, {}, unreadable, "DELETE"))
    assert "cannot be read" in str(refused(NO_KEYS, unreadable, {}))
    if envelope is not Envelope.FLAT:
        assert "cannot be read" in str(refused(NO_KEYS, {}, unreadable, "UPDATE"))
    with pytest.raises(SchemaError):
        translator.translate(change(transaction_tag="\ud800"), token="k")


def test_json_has_no_frame_and_no_spaces():
    for envelope in EVENTS:
        (message,) = messages_of(change({"c_STRING": "a b"}), envelope, ValueFormat.JSON)
        text = message.value.decode()
        assert json.dumps(json.loads(text), ensure_ascii=False, separators=(",", ":")) == text


def other_fields():
    """For each product's writer the fields of schemas that are not its own."""
    debezium = golden_value().schema["fields"]
    datastream = value_of(Envelope.DATASTREAM).schema["fields"]
    for fields in ([*debezium[:2], *DEBEZIUM_TAIL[::-1]], [*debezium[1::-1], *DEBEZIUM_TAIL],
                   debezium[:-1]):  # fmt: skip
        yield DebeziumWriter, golden.TABLE, fields
    for fields in (datastream[1:], datastream[:-1], datastream[::-1]):
        yield DatastreamWriter, TABLE, fields


def golden_value():
    schema = value_schema(golden.TOPIC, golden.TABLE, TimestampForm.STRING, Envelope.DEBEZIUM)
    return RegisteredSchema(2, schema)


@pytest.mark.parametrize(("writer", "table", "fields"), list(other_fields()))
def test_a_registered_schema_of_another_form_is_refused(writer, table, fields):
    value = RegisteredSchema(9, {**value_of(Envelope.DATASTREAM).schema, "fields": fields})
    with pytest.raises(SchemaError, match="not that of a change"):
        writer(table, key=KEY, value=value)


GOLDEN_KEY = RegisteredSchema(1, key_schema(golden.TOPIC, golden.TABLE))
GOLDEN = list(zip(golden.CHANGES["changes"], golden.RECORDS["records"], strict=True))
OURS = {"before_columns", "after_columns"}
OTHERS = {"version": "tidegate"}
"""What differs on purpose: Debezium's version is a number of its release."""


def written(one, value_format, key_format=KeyFormat.AVRO):
    form = replace(golden.FORM, value_format=value_format, key_format=key_format)
    encoding = TableEncoding(
        golden.TABLE, golden.TOPIC, GOLDEN_KEY, golden_value(), event_form=form
    )
    translator = Translator({golden.TABLE.name: encoding}, change_stream=form.change_stream)
    token = golden.CHANGES["partition_token"]
    (message,) = translator.translate(golden.record_of(one), token=token).messages
    return message


def as_debezium(event):
    """An event without what is ours alone, bytes as JSON has them."""
    source = {name: value for name, value in event["source"].items() if name not in OURS}
    rows = {
        place: event[place] and {
            name: base64.b64encode(value).decode() if isinstance(value, bytes) else value
            for name, value in event[place].items()
        }
        for place in ("before", "after")
    }  # fmt: skip
    return {**event, **rows, "source": source}


def expected_of(change, value):
    """Debezium's record, but for its row before an UPDATE without old values: we say null."""
    has_before = change["mod_type"] == "DELETE" or (
        change["mod_type"] == "UPDATE" and change["old_values"]
    )
    before = value["before"] if has_before else None
    if change["mod_type"] == "UPDATE" and not has_before:
        # Debezium's is a row of which it knows the key alone.
        assert {name for name, value in value["before"].items() if value is not None} <= set(
            change["keys"]
        )
    return {**value, "before": before, "source": {**value["source"], **OTHERS}}


@pytest.mark.parametrize("value_format", ValueFormat)
@pytest.mark.parametrize(("one", "theirs"), GOLDEN)
def test_a_change_is_what_debeziums_classes_write_of_it(one, theirs, value_format):
    event = read_golden(written(one, value_format), value_format)
    expected = expected_of(one, theirs["value"])
    compared = as_debezium(event)
    assert compared == expected
    # In JSON the order counts for people.
    assert [name for name in event["source"] if name not in OURS] == list(theirs["value"]["source"])
    assert list(compared) == list(expected)
    assert golden.RECORDS["topic"] == golden.TOPIC


def read_golden(message, value_format):
    if value_format is ValueFormat.JSON:
        return json.loads(message.value)
    return read_framed(message.value, {2: golden_value().schema}.get)


@pytest.mark.parametrize(("one", "theirs"), GOLDEN)
def test_a_key_in_json_is_what_debeziums_converter_writes(one, theirs):
    message = written(one, ValueFormat.JSON, KeyFormat.JSON)
    assert json.loads(message.key) == theirs["key"]
    assert message.value == written(one, ValueFormat.JSON).value
    # Without spaces, and in the order of the primary key: the bytes decide the topic partition.
    assert list(json.loads(message.key)) == [column.name for column in golden.TABLE.key_columns]
    assert b" " not in message.key
    assert written(one, ValueFormat.JSON).key.startswith(b"\0")


def json_key_of(keys, **types):
    """Return the key in JSON of a table with these columns, all of the key."""
    columns = tuple(
        Column(name, ColumnType(kind), place, place)
        for place, (name, kind) in enumerate(types.items(), 1)
    )
    table = TableSchema("T", columns)
    form = replace(golden.FORM, value_format=ValueFormat.JSON, key_format=KeyFormat.JSON)
    value = value_schema("bank.T", table, TimestampForm.MICROS, Envelope.DEBEZIUM)
    key = RegisteredSchema(1, key_schema("bank.T", table))
    return TableEncoding(
        table, "bank.T", key, RegisteredSchema(2, value), event_form=form
    ).writer.key(keys)


def test_a_value_that_does_not_fit_is_named_next_to_a_key_that_only_json_holds():
    columns = (Column("at", ColumnType("TIMESTAMP"), 1, 1), Column("n", ColumnType("INT64"), 2))
    keys = {"at": "2023-11-14T22:13:20.123456789Z"}
    table = TableSchema("T", columns)
    form = replace(golden.FORM, value_format=ValueFormat.JSON, key_format=KeyFormat.JSON)
    value = value_schema("bank.T", table, TimestampForm.MICROS, Envelope.DEBEZIUM)
    key = RegisteredSchema(1, key_schema("bank.T", table))
    encoding = TableEncoding(table, "bank.T", key, RegisteredSchema(2, value), event_form=form)
    for values, column in (({"n": "x"}, "n"), ({"n": "1"}, "at")):
        mod = Mod({"at": "yesterday"} if column == "at" else keys, values, {})
        with pytest.raises(SchemaError) as raised:
            encoding.writer.write("INSERT", mod, before=b"", number=b"", after=b"")
        assert raised.value.fields["column"] == column


def test_keys_in_json_are_equal_bytes_however_the_service_writes_them():
    types = {"at": "TIMESTAMP", "price": "NUMERIC", "id": "UUID", "day": "DATE", "data": "BYTES",
             "text": "STRING"}  # fmt: skip
    key = {
        "at": "2023-11-14T22:13:20Z", "price": "19.9", "id": "6b1f9f2e-5a0e-4d2b-9d5a-0f3f1f7a7a10",
        "day": "1999-12-31", "data": "AAEC/w==", "text": 'Ü"',
    }  # fmt: skip
    other = {**key, "at": "2023-11-14T22:13:20.000Z", "price": "19.900", "id": key["id"].upper()}
    assert json_key_of(key, **types) == json_key_of(other, **types)
    assert json.loads(json_key_of(other, **types)) == key
    nulls = dict.fromkeys(key)
    assert json.loads(json_key_of(nulls, **types)) == nulls
    # A change stream writes 0.1, a read of the table the double that is next to it.
    for weight in (0.1, 0.10000000149011612):
        assert json_key_of({"weight": weight}, weight="FLOAT32") == b'{"weight":0.1}'
    assert json_key_of({"weight": "NaN"}, weight="FLOAT32") == b'{"weight":"NaN"}'
    assert json_key_of({"weight": None}, weight="FLOAT32") == b'{"weight":null}'
    assert json_key_of({"id": "9223372036854775807"}, id="INT64") == b'{"id":9223372036854775807}'
    for keys in ({}, {"id": "1", "other": "2"}, {"id": "x"}):
        with pytest.raises(SchemaError):
            json_key_of(keys, id="INT64")


def test_a_sequence_of_two_numbers_stays_text_and_sorts_alike_in_both_formats():
    assert messages_of(change(sequence="0a-1f")._replace(mods=()), Envelope.DEBEZIUM) == ()
    both_events = []
    for value_format in ValueFormat:
        (event,) = events(change(sequence="0a-1f"), Envelope.DEBEZIUM, value_format)
        assert event["source"]["sequence"] == "0a-1f"
        both_events += events(change(sequence="0a-1f"), Envelope.DATASTREAM, value_format)
    in_avro, in_json = (event["sort_keys"] for event in both_events)
    assert in_avro == in_json
    assert in_avro[:3] == [AT_MS, AT_US, "tx"]


@pytest.mark.parametrize("value_format", ValueFormat)
def test_each_documented_field_of_datastreams_event(value_format):
    tagged = change(mod_type="UPDATE", transaction_tag="app=x")
    (event,) = events(tagged, Envelope.DATASTREAM, value_format)
    assert event["stream_name"] == "projects/p/instances/i/databases/d/changeStreams/Feed"
    assert (event["read_method"], event["object"]) == ("spanner-cdc", "t")
    assert re.fullmatch(r"[0-9a-f]{40}", event["schema_key"])
    metadata = dict(event["source_metadata"])
    commits = [event["read_timestamp"], event["source_timestamp"], metadata.pop("commit_timestamp")]
    if value_format is ValueFormat.JSON:
        assert commits == ["2023-11-14T22:13:20.123Z"] * 2 + ["2023-11-14T22:13:20.123456Z"]
    else:
        epoch = datetime(1970, 1, 1, tzinfo=UTC)
        assert commits == [epoch + timedelta(milliseconds=AT_MS)] * 2 + [
            epoch + timedelta(microseconds=AT_US)
        ]
    assert metadata == {
        "database": "d", "schema": "", "table": "t", "primary_keys": list(NO_KEYS),
        "is_deleted": False, "change_type": "UPDATE", "tx_id": "tx", "record_sequence": "00000007",
        "mod_number": 0, "is_last_record_in_transaction_in_partition": True,
        "number_of_records_in_transaction": 1, "number_of_partitions_in_transaction": 1,
        "transaction_tag": "app=x", "is_system_transaction": False,
        "value_capture_type": "OLD_AND_NEW_VALUES",
        "captured_columns": [name for name in NAMES if name in NO_KEYS],
    }  # fmt: skip
    (deleted,) = events(change(mod_type="DELETE"), Envelope.DATASTREAM, value_format)
    assert deleted["source_metadata"]["is_deleted"] is True
    assert deleted["source_metadata"]["change_type"] == "DELETE"
    # A table of a named schema has both names.
    table, form = replace(TABLE, name="shop.t"), replace(FORM, value_format=ValueFormat.JSON)
    writer = DatastreamWriter(table, key=KEY, value=value_of(Envelope.DATASTREAM), form=form)
    ((_, value),) = writer.write_events(change(table_name="shop.t"), "k")
    event = json.loads(value)
    named = event["source_metadata"]
    assert (event["object"], named["schema"], named["table"]) == ("shop.t", "shop", "t")


def test_schema_key_is_that_of_the_payloads_schema():
    (event,) = events(change(), Envelope.DATASTREAM)
    schema = value_of(Envelope.DATASTREAM).schema
    later = {"name": "later", "type": ["null", "long"], "default": None}
    wider = RegisteredSchema(8, with_row(schema, {**row_fields(schema), "later": later}))
    ((_, value),) = DatastreamWriter(TABLE, key=KEY, value=wider).write_events(change(), "k")
    assert event["schema_key"].encode() not in value


PLACES = st.tuples(st.integers(0, 2**53), st.sampled_from(["a", "b", "aa"]), SEQUENCES)


@given(st.lists(PLACES, min_size=2, unique=True))
def test_sort_keys_sort_in_commit_order(places):
    placed_keys = []
    for at_us, transaction, sequence in places:
        written_record = change(
            {}, {}, at_us=at_us, sequence=sequence, server_transaction_id=transaction
        )
        for number, event in enumerate(events(written_record, Envelope.DATASTREAM)):
            order = OrderKey(at_us, transaction, sequence_pair(sequence), number).encode()
            placed_keys.append((order, event["sort_keys"]))
            assert event["sort_keys"][0] == at_us // 1000
    placed_keys.sort()
    assert all(placed_key[1] < other[1] for placed_key, other in pairwise(placed_keys))


def ids_of(one, value_format=ValueFormat.AVRO, token="k"):
    return [event["uuid"] for event in events(one, Envelope.DATASTREAM, value_format, token)]


class TestUuid:
    def test_it_is_a_uuid_whose_last_digits_count_the_changes_of_a_record(self):
        for value_format in ValueFormat:
            ids = ids_of(change({}, {}, {}), value_format)
            assert [
                (uuid.UUID(uuid_text).version, uuid.UUID(uuid_text).variant) for uuid_text in ids
            ] == [(8, uuid.RFC_4122)] * 3
            assert [uuid_text[-8:] for uuid_text in ids] == ["00000000", "00000001", "00000002"]
            assert len({uuid_text[:-8] for uuid_text in ids}) == 1

    def test_a_repeat_has_the_id_of_the_first(self):
        first = ids_of(change({}, {}))
        assert ids_of(change({}, {}), ValueFormat.JSON, token="other") == first
        assert ids_of(change({}, {}).part(1)) == first[1:]

    def test_another_change_has_another_id(self):
        changes = [change(), change(at_us=AT_US + 1), change(sequence="00000008"),
                   change(server_transaction_id="ty")]  # fmt: skip
        assert len({*map(tuple, map(ids_of, changes))}) == len(changes)
        ids = {
            DatastreamWriter(
                TABLE, key=KEY, value=value_of(Envelope.DATASTREAM), form=form
            ).write_events(change(), "k")[0][1][5:42]
            for form in (FORM, None)  # of another stream
        }
        assert len(ids) == 2


@given(MOD_TYPES, MODS)
def test_the_payload_is_the_captured_row(mod_type, mods):
    written_record = record(mods, mod_type, AT_US, "00000007")
    in_avro, in_json = (events(written_record, Envelope.DATASTREAM, kind) for kind in ValueFormat)
    for avro, plain, (keys, new, old) in zip(in_avro, in_json, mods, strict=True):
        meant = {**right(old if mod_type == "DELETE" else new), **right(keys)}
        assert list(avro["payload"]) == NAMES
        assert all(same(avro["payload"][name], meant.get(name)) for name in NAMES)
        # In JSON it names the captured columns alone.
        assert list(plain["payload"]) == plain["source_metadata"]["captured_columns"]
