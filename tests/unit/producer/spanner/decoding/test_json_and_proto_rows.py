"""The form of each dialect: its query, and rows of JSON and of protobuf, decoded or refused."""

import base64
import json

import pytest
from google.cloud.spanner_v1.types import ChangeStreamRecord, StructType, Type, TypeCode

from tests.page_examples import example
from tidegate.producer.description import (
    DIALECTS,
    GOOGLE_SQL,
    IMMUTABLE_KEY_RANGE,
    MUTABLE_KEY_RANGE,
    POSTGRESQL,
)
from tidegate.producer.records import (
    DataChangeRecord,
    HeartbeatRecord,
    PartitionEndRecord,
    PartitionEventRecord,
    PartitionStartRecord,
    UnreadableValues,
)
from tidegate.producer.spanner.forms import form_of
from tidegate.producer.spanner.stream import SpannerChangeStream
from tidegate.schemas.avro_types import is_carried
from tidegate.schemas.errors import ConfigError, SchemaError
from tidegate.schemas.tables import ColumnType

START_NS = 1_704_164_645_000_000_001
SECOND_NS = 1_704_164_645_000_000_000
NULLS = json.dumps({"v": None, "f": "NaN", "n": "1.50", "j": '{"a": [1]}', "e": []})

JSON_FORM = form_of(POSTGRESQL, IMMUTABLE_KEY_RANGE, "Feed")
PROTO_FORM = form_of(GOOGLE_SQL, MUTABLE_KEY_RANGE, "Feed")


def decode(form, *messages):
    decoder = form.decoder()
    records = [one for message in messages for one in decoder.decode(message.SerializeToString())]
    decoder.end()
    return records


@pytest.mark.rule("spanner-stream-name")
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("name", ["", "a-b", "a`) --", 'a"(', "1a", "x" * 119])
def test_an_invalid_name_is_refused(dialect, name):
    with pytest.raises(ConfigError, match="change_stream"):
        form_of(dialect, IMMUTABLE_KEY_RANGE, name)


def test_an_unknown_dialect_is_refused():
    with pytest.raises(ConfigError, match="dialect ORACLE") as caught:
        form_of("ORACLE", IMMUTABLE_KEY_RANGE, "Feed")
    assert all(dialect in caught.value.hint for dialect in DIALECTS)


@pytest.mark.rule("spanner-proto-records")
def test_mutable_key_ranges_are_read_as_protos():
    assert PROTO_FORM.sql == form_of(GOOGLE_SQL, IMMUTABLE_KEY_RANGE, "Feed").sql
    postgresql = form_of(POSTGRESQL, MUTABLE_KEY_RANGE, "Feed").sql
    assert postgresql == 'SELECT * FROM "spanner"."read_proto_bytes_Feed"($1, $2, $3, $4, null)'


@pytest.mark.rule("spanner-postgresql-query", "spanner-read-options", "P7")
def test_what_postgresql_is_asked(channels, spanner, wire, tasks):
    built = wire.message(wire.json_heartbeat_row(), metadata=wire.JSONB_TYPE)
    spanner.on_stream = lambda *_: iter([built])
    stream = SpannerChangeStream(channels, form_of(POSTGRESQL, IMMUTABLE_KEY_RANGE, "Everything"))
    query = stream.query(token="", start_ns=START_NS, end_ns=None, heartbeat_ms=1_000)
    # A message counts as much as its decoding takes.
    assert tasks.run(query.next_size) == built.ByteSize() * 16
    query.cancel()
    request = spanner.requests[-1]
    # Quoted: the name is not folded to lower case.
    assert request.sql == 'SELECT * FROM "spanner"."read_json_Everything"($1, $2, $3, $4, null)'
    assert dict(request.params) == {
        "p1": "2024-01-02T03:04:05.000000001Z", "p2": None, "p3": None, "p4": "1000",
    }  # fmt: skip
    assert set(request.param_types) == set(request.params)
    assert request.transaction.single_use.read_only.strong


def history(data_row, heartbeat_row, children_row):
    return [
        data_row(),
        data_row(record_sequence="00000002"),
        data_row(mods=[['{"id": "7"}', NULLS, '{"v": ["b"]}'], ['{"id": "8"}', "{}", "{}"]]),
        data_row(mods=[], transaction_tag="tägg", is_system_transaction=True),
        data_row(mod_type="DELETE", is_last_record_in_transaction_in_partition=False),
        data_row(column_types=[["k", '{"code":"INT64"}', True, "1"]], table_name="sales.orders"),
        data_row(number_of_records_in_transaction="9007199254740993"),
        heartbeat_row(),
        heartbeat_row("2024-01-02T03:04:05.123456789Z"),
        children_row(["a", []], ["b", ["p", "q"]]),
        children_row(["c", [None]]),
        children_row(),
    ]


def rows_of(wire, dialect):
    if dialect == GOOGLE_SQL:
        rows = history(wire.data_row, wire.heartbeat_row, wire.children_row)
        return rows, wire.row_type()
    rows = history(wire.json_data_row, wire.json_heartbeat_row, wire.json_children_row)
    return rows, wire.JSONB_TYPE


@pytest.mark.rule("spanner-dialects-equal")
@pytest.mark.usefixtures("each_way")
def test_one_history_gives_equal_records_in_both_dialects(wire):
    found = []
    for dialect in DIALECTS:
        rows, metadata = rows_of(wire, dialect)
        form = form_of(dialect, IMMUTABLE_KEY_RANGE, "Feed")
        alone = [wire.message(metadata=metadata), *(wire.message(row) for row in rows)]
        found += [decode(form, wire.message(*rows, metadata=metadata)), decode(form, *alone)]
    assert len(found[0]) == len(rows)
    assert all(one == found[0] for one in found)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_equal_column_lists_are_one_object_for_all_queries(wire, dialect):
    rows, metadata = rows_of(wire, dialect)
    form = form_of(dialect, IMMUTABLE_KEY_RANGE, "Feed")
    assert form.decoder() is not form.decoder()
    messages = [wire.message(rows[0], metadata=metadata), wire.message(rows[1])]
    columns = [
        record.columns
        for _ in range(2)
        for record in decode(form, *messages)
        if isinstance(record, DataChangeRecord)
    ]
    assert len(columns) == 4
    assert all(column is columns[0] for column in columns)


def json_record(wire, text):
    (record,) = decode(JSON_FORM, wire.message(text, metadata=wire.JSONB_TYPE))
    return record


def json_mod(wire, **changes):
    """The one mod of a row that has other documents; `...` leaves one out."""
    row = json.loads(wire.json_data_row())
    mod = {**row["data_change_record"]["mods"][0], **changes}
    row["data_change_record"]["mods"] = [{k: v for k, v in mod.items() if v is not ...}]
    return json_record(wire, json.dumps(row)).mods[0]


def test_timestamps_types_and_names_have_the_forms_of_postgresql(wire):
    for end, nanos in (("Z", 0), (".5+00:00", 5 * 10**8), (".123456789+00:00", 123_456_789)):
        record = json_record(wire, wire.json_heartbeat_row(f"2024-01-02T03:04:05{end}"))
        assert record.timestamp_ns == SECOND_NS + nanos
    types = [("NUMERIC", "PG_NUMERIC"), ("JSON", "PG_JSONB"), ("INT64", "PG_OID")]
    listed = [
        [annotation, json.dumps({"code": code, "type_annotation": annotation}), False, str(at)]
        for at, (code, annotation) in enumerate(types, 2)
    ]
    record = json_record(wire, wire.json_data_row(column_types=listed))
    assert [column.type for column in record.columns] == [
        ColumnType(code, annotation=annotation) for code, annotation in types
    ]
    for name, reported in (("t", "t"), ("public.t", "t"), ("sales.t", "sales.t")):
        assert json_record(wire, wire.json_data_row(table_name=name)).table_name == reported


def test_a_row_may_come_in_many_chunks(wire):
    text = wire.json_data_row(transaction_tag="ä" * 300)
    messages = [wire.message(metadata=wire.JSONB_TYPE)]
    messages += [wire.message(text[at : at + 7], chunked=True) for at in range(0, len(text), 7)]
    assert decode(JSON_FORM, *messages, wire.message("")) == [json_record(wire, text)]
    with pytest.raises(SchemaError, match="middle of a value"):
        decode(JSON_FORM, *messages)


def test_a_response_of_another_form_or_without_metadata_is_refused(wire):
    fields = wire.JSONB_TYPE.fields
    of_bytes = StructType.Field(name="b", type_=Type(code=TypeCode.BYTES))
    for metadata in (wire.row_type(), StructType(fields=[]), StructType(fields=[fields[0]] * 2),
                     StructType(fields=[of_bytes])):  # fmt: skip
        with pytest.raises(SchemaError, match="PostgreSQL form"):
            decode(JSON_FORM, wire.message(wire.json_heartbeat_row(), metadata=metadata))
    for metadata in (
        proto_metadata(TypeCode.BYTES), proto_metadata(name="another.Record"),
        proto_metadata(TypeCode.STRING, ""), StructType(fields=[*proto_metadata().fields] * 2),
    ):  # fmt: skip
        with pytest.raises(SchemaError, match="mutable key ranges"):
            decode(PROTO_FORM, wire.message(proto_data(), metadata=metadata))
    for form, row in ((JSON_FORM, wire.json_heartbeat_row()), (PROTO_FORM, proto_data())):
        with pytest.raises(SchemaError, match="without metadata"):
            decode(form, wire.message(row))


@pytest.mark.rule("spanner-json-rows")
def test_a_row_that_is_not_one_known_record_is_refused(wire):
    for text in ("", "{", "[]", "null", "1", "{}", '{"partition_start_record": {}}', "[" * 100_000,
                 '{"heartbeat_record": null}', '{"heartbeat_record": {}}',
                 '{"heartbeat_record": {"timestamp": ""}}',
                 '{"heartbeat_record": {"timestamp": "2024-01-02T03:04Z"}, "other_record": {}}',
                 ):  # fmt: skip
        with pytest.raises(SchemaError):
            json_record(wire, text)


def test_a_record_without_one_of_its_fields_is_refused(wire):
    for text in (wire.json_data_row(), wire.json_children_row(["a", []])):
        ((kind, record),) = json.loads(text).items()
        for name in record:
            rest = {key: value for key, value in record.items() if key != name}
            with pytest.raises(SchemaError) as caught:
                json_record(wire, json.dumps({kind: rest}))
            assert caught.value.fields["field"] == name


@pytest.mark.parametrize(
    ("name", "junk"),
    [
        ("mod_type", ["UPSERT", 1]), ("commit_timestamp", ["x", 5]), ("table_name", [None, 1]),
        ("is_system_transaction", [0, "true"]), ("mods", [{}, [1], ["x"]]),
        ("transaction_tag", [1]),
        ("number_of_records_in_transaction", [1.5, True, "x", None]), ("column_types", [1, [{}]]),
    ],
)  # fmt: skip
def test_a_field_of_another_kind_is_refused(wire, name, junk):
    row = json.loads(wire.json_data_row(number_of_records_in_transaction="2"))
    for value in junk:
        changed = {**row["data_change_record"], name: value}
        with pytest.raises(SchemaError):
            json_record(wire, json.dumps({"data_change_record": changed}))
    texts = {**row["data_change_record"], "number_of_records_in_transaction": "2"}
    found = json_record(wire, json.dumps({"data_change_record": texts}))
    assert found.number_of_records_in_transaction == 2


def test_values_that_are_missing_are_refused_and_null_is_empty(wire):
    with pytest.raises(SchemaError):
        json_mod(wire, new_values=...)
    assert json_mod(wire, old_values=None).old_values == {}
    # Values may be JSON in JSON, and long.
    assert json_mod(wire, new_values='{"v": []}').new_values == {"v": []}
    values = {"v": [str(number) if number % 3 else None for number in range(100_000)]}
    assert json_mod(wire, new_values=values).new_values == values


@pytest.mark.parametrize("damaged", ["{", 5, [1], True])
def test_damaged_values_cost_only_their_own_change(wire, damaged):
    mod = json_mod(wire, new_values=damaged)
    assert isinstance(mod.new_values, UnreadableValues)
    assert mod.new_values.text == (damaged if damaged == "{" else json.dumps(damaged))
    with pytest.raises(SchemaError):
        mod.new_values["v"]
    with pytest.raises(SchemaError):
        json_mod(wire, keys=damaged)


@pytest.mark.rule("spanner-numeric-sequence")
@pytest.mark.parametrize("kind", ["data", "children"])
def test_a_record_sequence_may_be_a_number(wire, kind):
    row = example("first_children") if kind == "children" else json.loads(wire.json_data_row())

    def read(value):
        next(iter(row.values()))["record_sequence"] = value
        return json_record(wire, json.dumps(row)).record_sequence

    assert (read(1_000_012_389), read("7")) == ("1000012389", "7")
    for value in (1.5, True, None, ["7"]):
        with pytest.raises(SchemaError, match="not text"):
            read(value)


AT = {"seconds": 1_704_164_645, "nanos": 678_901_000}
AT_NS = 1_704_164_645_678_901_000


def proto_metadata(code=TypeCode.PROTO, name="google.spanner.v1.ChangeStreamRecord"):
    kind = Type(code=code, proto_type_fqn=name)
    return StructType(fields=[StructType.Field(name="ChangeRecord", type_=kind)])


def proto_row(**record):
    return base64.b64encode(ChangeStreamRecord.serialize(ChangeStreamRecord(**record))).decode()


def proto_data(**changes):
    element = {"code": 10, "type_annotation": 2}
    mod = {
        "keys": [{"value": "7"}],
        "new_values": [{"column_metadata_index": 1, "value": ["1.5", None]}],
        "old_values": [{"column_metadata_index": 1, "value": None}],
    }
    fields = {
        "commit_timestamp": AT, "record_sequence": "a1-00000001", "server_transaction_id": "tx",
        "is_last_record_in_transaction_in_partition": True, "table": "public.t",
        "column_metadata": [
            {"name": "id", "type_": {"code": 2}, "is_primary_key": True, "ordinal_position": 1},
            {"name": "v", "type_": {"code": 8, "array_element_type": element},
             "ordinal_position": 2},
        ],
        "mods": [mod], "mod_type": 20, "value_capture_type": 10,
        "number_of_records_in_transaction": 2, "number_of_partitions_in_transaction": 1,
        "transaction_tag": "tag", "is_system_transaction": True, **changes,
    }  # fmt: skip
    return proto_row(data_change_record=fields)


def proto_record(wire, text):
    (record,) = decode(PROTO_FORM, wire.message(text, metadata=proto_metadata()))
    return record


@pytest.mark.rule("spanner-proto-records")
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_change_is_read_alike_in_both_dialects(wire, dialect):
    metadata = proto_metadata() if dialect == GOOGLE_SQL else proto_metadata(TypeCode.BYTES, "")
    form, text = form_of(dialect, MUTABLE_KEY_RANGE, "Feed"), proto_data()
    (record,) = decode(form, wire.message(text, metadata=metadata))
    assert record._replace(columns=(), mods=()) == (
        AT_NS, "a1-00000001", "tx", True, "t", (), (), "UPDATE", "OLD_AND_NEW_VALUES",
        2, 1, "tag", True, 0,
    )  # fmt: skip
    assert record.mods == (({"id": "7"}, {"v": ["1.5", None]}, {"v": None}),)
    assert [(c.name, c.type, c.is_primary_key, c.ordinal) for c in record.columns] == [
        ("id", ColumnType("INT64"), True, 1),
        ("v", ColumnType("ARRAY", ColumnType("NUMERIC", annotation="PG_NUMERIC")), False, 2),
    ]
    begun = wire.message(text[:50], metadata=metadata, chunked=True)
    assert decode(form, begun, wire.message(text[50:])) == [record]


@pytest.mark.rule("spanner-proto-records")
def test_values_are_those_of_json(wire):
    values = [True, 0.1, "x", None, [], ["a", None], "NaN", {"of": [{"a later": "type"}, None]}]
    columns = [{"name": f"c{n}", "type_": {"code": 6}} for n in range(len(values))]
    listed = [{"column_metadata_index": n, "value": value} for n, value in enumerate(values)]
    mods = [{"keys": [], "new_values": listed}]
    record = proto_record(wire, proto_data(column_metadata=columns, mods=mods))
    found = dict(record.mods[0].new_values)
    assert found == {f"c{n}": value for n, value in enumerate(values)}
    assert json.loads(json.dumps(found)) == found


def test_a_later_type_is_one_that_nothing_carries(wire):
    """Its record may be of a table that is left out."""
    types = [{"code": 99}, {"code": 8, "array_element_type": {"code": 99}},
             {"code": 6, "type_annotation": 77}]  # fmt: skip
    columns = [{"name": f"c{n}", "type_": kind} for n, kind in enumerate(types)]
    record = proto_record(wire, proto_data(column_metadata=columns, mods=[]))
    assert [(column.type.text, is_carried(column.type)) for column in record.columns] == [
        ("TYPE_CODE 99", False),
        ("ARRAY<TYPE_CODE 99>", False),
        ("STRING TYPE_ANNOTATION 77", True),
    ]


def test_the_records_about_stream_partitions(wire):
    start = {"start_timestamp": AT, "record_sequence": "1-0", "partition_tokens": ["a", "b"]}
    event = {
        "commit_timestamp": AT, "record_sequence": "1-1", "partition_token": "t",
        "move_in_events": [{"source_partition_token": "x"}],
        "move_out_events": [{"destination_partition_token": one} for one in "yz"],
    }  # fmt: skip
    end = {"end_timestamp": AT, "record_sequence": "1-2", "partition_token": "t"}
    rows = [
        proto_row(heartbeat_record={"timestamp": AT}), proto_row(partition_start_record=start),
        proto_row(partition_event_record=event), proto_row(partition_end_record=end),
    ]  # fmt: skip
    assert decode(PROTO_FORM, wire.message(*rows, metadata=proto_metadata())) == [
        HeartbeatRecord(AT_NS),
        PartitionStartRecord(AT_NS, "1-0", ("a", "b")),
        PartitionEventRecord(AT_NS, "1-1", ("x",), ("y", "z")),
        PartitionEndRecord(AT_NS, "1-2"),
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("%", "cannot be read"), (base64.b64encode(b"\xff\xff").decode(), "cannot be read"),
        (None, "not bytes"), ("", "not one change stream record"),
        (proto_row(heartbeat_record={}), "without its timestamp"),
        (proto_data(commit_timestamp=None), "without its timestamp"),
        (proto_data(mod_type=0), "unknown mod type"),
        (proto_data(mod_type=77), "number that is not known"),
        (proto_data(value_capture_type=77), "number that is not known"),
        (proto_data(column_metadata=[]), "does not name"),
        (proto_data(mods=[{"keys": [{"column_metadata_index": -1, "value": "x"}]}]),
         "does not name"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_named(wire, text, reason):
    with pytest.raises(SchemaError, match=reason):
        proto_record(wire, text)
