"""Decoding PostgreSQL's form: in chunks, and never anything but records or a SchemaError."""

import json
from contextlib import suppress

import pytest
from google.cloud.spanner_v1.types import TypeAnnotationCode, TypeCode
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.page_examples import example
from tidegate.producer.records import UnreadableValues
from tidegate.producer.spanner.decode import ColumnTypesCache
from tidegate.producer.spanner.decode_json import JsonResponseDecoder
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.tables import ColumnType

FUZZ = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
SECOND_NS = 1_704_164_645_000_000_000


def decode(*messages):
    decoder = JsonResponseDecoder(ColumnTypesCache())
    records = [one for message in messages for one in decoder.decode(message.SerializeToString())]
    decoder.end()
    return records


def decode_row(wire, text):
    (record,) = decode(wire.message(text, metadata=wire.JSONB_TYPE))
    return record


def with_mod(wire, **changes):
    """A row whose one mod has other documents; `...` leaves one out."""
    row = json.loads(wire.json_data_row())
    mod = {**row["data_change_record"]["mods"][0], **changes}
    row["data_change_record"]["mods"] = [{k: v for k, v in mod.items() if v is not ...}]
    return json.dumps(row)


@pytest.mark.parametrize("zone", ["Z", "+00:00"])
@pytest.mark.parametrize(
    ("fraction", "nanos"), [("", 0), (".5", 500_000_000), (".123456789", 123_456_789)]
)
def test_timestamps_have_either_text_of_utc(wire, zone, fraction, nanos):
    record = decode_row(wire, wire.json_heartbeat_row(f"2024-01-02T03:04:05{fraction}{zone}"))
    assert record.timestamp_ns == SECOND_NS + nanos


def test_types_keep_their_annotations(wire):
    types = [
        ("n", '{"code":"NUMERIC","type_annotation":"PG_NUMERIC"}'),
        ("j", '{"code":"JSON","type_annotation":"PG_JSONB"}'),
        ("o", '{"code":"INT64","type_annotation":"PG_OID"}'),
    ]
    listed = [[name, text, False, str(at)] for at, (name, text) in enumerate(types, 2)]
    record = decode_row(wire, wire.json_data_row(column_types=listed))
    assert [column.type for column in record.columns] == [
        ColumnType("NUMERIC", annotation="PG_NUMERIC"),
        ColumnType("JSON", annotation="PG_JSONB"),
        ColumnType("INT64", annotation="PG_OID"),
    ]


def test_a_table_of_the_default_schema_has_one_name(wire):
    for name, reported in (("t", "t"), ("public.t", "t"), ("sales.t", "sales.t")):
        assert decode_row(wire, wire.json_data_row(table_name=name)).table_name == reported


def test_a_row_may_come_in_many_chunks(wire):
    text = wire.json_data_row(transaction_tag="ä" * 300)
    messages = [wire.message(metadata=wire.JSONB_TYPE)]
    messages += [wire.message(text[at : at + 7], chunked=True) for at in range(0, len(text), 7)]
    messages += [wire.message("")]
    assert decode(*messages) == [decode_row(wire, text)]


def test_a_large_array_with_nulls(wire):
    values = [str(number) if number % 3 else None for number in range(100_000)]
    record = decode_row(wire, with_mod(wire, new_values={"v": values}))
    assert record.mods[0].new_values == {"v": values}


def test_a_response_that_stops_in_a_value_is_an_error(wire):
    with pytest.raises(SchemaError, match="middle of a value"):
        decode(wire.message('{"heart', metadata=wire.JSONB_TYPE, chunked=True))


def test_a_response_without_metadata_is_an_error(wire):
    with pytest.raises(SchemaError, match="without metadata"):
        decode(wire.message(wire.json_heartbeat_row()))


def test_another_row_type_is_refused(wire):
    for metadata in (
        wire.row_type(),
        wire.StructType(fields=[]),
        wire.StructType(fields=[wire.JSONB_TYPE.fields[0]] * 2),
        wire.StructType(
            fields=[wire.StructType.Field(name="b", type_=wire.scalar(TypeCode.BYTES))]
        ),
    ):
        with pytest.raises(SchemaError, match="PostgreSQL form"):
            decode(wire.message(wire.json_heartbeat_row(), metadata=metadata))
    assert wire.JSONB_TYPE.fields[0].type_.type_annotation == TypeAnnotationCode.PG_JSONB


@pytest.mark.rule("spanner-json-rows")
@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "1", "{}", '{"partition_start_record": {}}', "[" * 100_000,
     '{"heartbeat_record": null}', '{"heartbeat_record": {}}',
     '{"heartbeat_record": {"timestamp": "2024-01-02T03:04:05Z"}, "data_change_record": {}}'],
    ids=lambda text: text[:30],
)  # fmt: skip
def test_a_row_that_is_not_one_known_record_is_refused(wire, text):
    with pytest.raises(SchemaError):
        decode_row(wire, text)


def test_a_record_without_one_of_its_fields_is_refused(wire):
    for text in (wire.json_data_row(), wire.json_children_row(["a", []])):
        ((kind, record),) = json.loads(text).items()
        for name in record:
            rest = {key: value for key, value in record.items() if key != name}
            with pytest.raises(SchemaError) as caught:
                decode_row(wire, json.dumps({kind: rest}))
            assert caught.value.fields["field"] == name


def test_values_that_are_missing_are_refused_and_null_is_empty(wire):
    with pytest.raises(SchemaError):
        decode_row(wire, with_mod(wire, new_values=...))
    assert decode_row(wire, with_mod(wire, old_values=None)).mods[0].old_values == {}


def test_values_may_be_json_in_json(wire):
    assert decode_row(wire, with_mod(wire, new_values='{"v": []}')).mods[0].new_values == {"v": []}


@pytest.mark.parametrize("damaged", ["{", 5, [1], True])
def test_damaged_values_cost_only_their_own_change(wire, damaged):
    mod = decode_row(wire, with_mod(wire, new_values=damaged)).mods[0]
    assert isinstance(mod.new_values, UnreadableValues)
    assert mod.new_values.text == (damaged if damaged == "{" else json.dumps(damaged))
    with pytest.raises(SchemaError):
        mod.new_values["v"]
    with pytest.raises(SchemaError):
        decode_row(wire, with_mod(wire, keys=damaged))


@FUZZ
@given(data=st.data(), junk=st.sampled_from([None, 0, -1, 1.5, "x", "", [], {}, True, "9" * 30]))
def test_any_value_in_any_place_gives_records_or_a_schema_error(wire, data, junk):
    row = json.loads(wire.json_data_row())
    target = row
    while True:
        choices = sorted(target) if isinstance(target, dict) else list(range(len(target)))
        place = data.draw(st.sampled_from(choices))
        inner = target[place]
        if not inner or not isinstance(inner, dict | list) or data.draw(st.booleans()):
            break
        target = inner
    target[place] = junk
    with suppress(SchemaError):
        decode_row(wire, json.dumps(row))


@pytest.mark.rule("spanner-numeric-sequence")
@pytest.mark.parametrize("kind", ["data", "children"])
@pytest.mark.parametrize(("value", "expected"), [(1_000_012_389, "1000012389"), ("7", "7")])
def test_a_record_sequence_may_be_a_number(wire, kind, value, expected):
    row = json.loads(wire.json_data_row())
    if kind == "children":
        row = example("first_children")
    next(iter(row.values()))["record_sequence"] = value
    assert decode_row(wire, json.dumps(row)).record_sequence == expected


@pytest.mark.parametrize("value", [1.5, True, None, ["7"]])
def test_a_record_sequence_of_another_kind_is_refused(wire, value):
    row = json.loads(wire.json_data_row())
    row["data_change_record"]["record_sequence"] = value
    with pytest.raises(SchemaError, match="not text"):
        decode_row(wire, json.dumps(row))
