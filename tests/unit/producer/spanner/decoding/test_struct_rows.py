"""Decoding: by names, in chunks, and never anything but records or a SchemaError."""

import copy
import json

import pytest
from google.cloud.spanner_v1.types import PartialResultSet

from tests.page_examples import DATA_CHANGES, MERGED, example
from tidegate.producer.accelerator import accelerator
from tidegate.producer.records import (
    ChildPartitionsRecord,
    DataChangeRecord,
    HeartbeatRecord,
    Mod,
    RecordColumn,
)
from tidegate.producer.spanner.decoding import response as raw_values
from tidegate.producer.spanner.decoding.json_rows import JsonResponseDecoder
from tidegate.producer.spanner.decoding.struct_rows import ColumnTypesCache, ResponseDecoder
from tidegate.schemas.avro_types import is_carried
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.progress import ChildPartition
from tidegate.schemas.tables import ColumnType

pytestmark = pytest.mark.usefixtures("each_way")


@pytest.fixture(scope="module", params=[1 << 16, 0], ids=["copies", "views"], autouse=True)
def large_bytes(request):
    """The size from which on values are views of their message; with 0 all of them are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(raw_values, "_LARGE_BYTES", request.param)
        yield


SECOND_NS = 1_704_164_645_000_000_000
INSERTED = DataChangeRecord(
    SECOND_NS + 678_901_000, "00000001", "tx", True, "t",
    (RecordColumn("id", ColumnType("INT64"), True, 1),
     RecordColumn("v", ColumnType("ARRAY", ColumnType("STRING")), False, 2)),
    (Mod({"id": "7"}, {"v": ["a", None]}, {}),), "INSERT", "NEW_ROW", 2, 1, "", False,
)  # fmt: skip


def decode(*messages, cache=None):
    decoder = ResponseDecoder(cache or ColumnTypesCache())
    if accelerator() is not None and messages:
        # It reads the messages after the one with the metadata.
        decoder.decode(PartialResultSet.pb()(metadata=messages[0].metadata).SerializeToString())
    records = [
        record for message in messages for record in decoder.decode(message.SerializeToString())
    ]
    decoder.end()
    return records


def decode_row(wire, row):
    (record,) = decode(wire.message(row, metadata=wire.row_type()))
    return record


@pytest.mark.rule("spanner-record-array")
def test_every_kind_of_record(wire):
    child = ["child", ["left", "right"]]
    rows = wire.data_row(), wire.heartbeat_row(), wire.children_row(child)
    children = (ChildPartition("child", ("left", "right"), SECOND_NS + 1),)
    expected = [
        INSERTED,
        HeartbeatRecord(SECOND_NS),
        ChildPartitionsRecord(SECOND_NS + 1, "00000000", children),
    ]
    assert decode(wire.message(*rows, metadata=wire.row_type())) == expected
    # The metadata comes once, and may come alone.
    assert decode(wire.message(metadata=wire.row_type()), wire.message(*rows), wire.message()) == (
        expected
    )
    with pytest.raises(SchemaError, match="metadata"):
        decode(wire.message(wire.heartbeat_row()))


def test_fields_are_found_by_name(wire):
    """Any order, any further fields, any name of the column."""
    shuffled = dict(sorted(wire.DATA.items()))
    record = {
        "child_partitions_record": wire.RECORD["child_partitions_record"],
        "brand_new_record": wire.array(wire.STRING),
        "data_change_record": wire.array(wire.struct(extra=wire.STRING, **shuffled)),
        "heartbeat_record": wire.RECORD["heartbeat_record"],
    }
    metadata = wire.row_type(record)
    metadata.fields[0].name = "anything"
    row = [[[], [], [["?", *(wire.INSERT[name] for name in shuffled)]], []]]
    assert decode(wire.message(row, metadata=metadata)) == [INSERTED]
    # Numbers may be in the place of strings.
    columns = [[*wire.INSERT["column_types"][0][:3], 1], wire.INSERT["column_types"][1]]
    counts = {
        f"number_of_{counted}_in_transaction": n
        for counted, n in (("records", 2), ("partitions", 1))
    }
    assert decode_row(wire, wire.data_row(column_types=columns, **counts)) == INSERTED


@pytest.mark.rule("spanner-initial-children")
def test_null_counts_as_absent(wire):
    rows = [
        [[None, [["2024-01-02T03:04:05Z"]], None]],
        [[[[None] * len(wire.INSERT)], wire.heartbeat_row()[0][1], [[None, "0", []]]]],
        wire.data_row(mods=[['{"id":"7"}', '{"v":["a",null]}', None]], transaction_tag=None),
        wire.children_row(["child", [None]], ["other", None]),
    ]
    heartbeat, other, inserted, children = decode(wire.message(*rows, metadata=wire.row_type()))
    assert heartbeat == other == HeartbeatRecord(SECOND_NS)
    assert inserted == INSERTED
    assert [child.parents for child in children.children] == [(), ()]


def chunks_of(row, cut):
    """Cut a row's value at its `cut`-th place, counted over all strings and lists, depth first."""
    seen = 0

    def walk(plain):
        nonlocal seen
        if isinstance(plain, str):
            if seen <= cut <= seen + len(plain):
                at, seen = cut - seen, cut + 1
                return plain[:at], plain[at:]
            seen += len(plain) + 1
        elif isinstance(plain, list):
            for index, item in enumerate(plain):
                halves = walk(item)
                if halves is not None:
                    return [*plain[:index], halves[0]], [halves[1], *plain[index + 1 :]]
            if seen == cut:
                seen += 1
                return plain, []
            seen += 1
        return None

    return walk(row)


@pytest.mark.rule("spanner-chunked-values")
def test_a_value_may_be_cut_anywhere(wire):
    row = wire.data_row()
    cuts = 0
    while (halves := chunks_of(row, cuts)) is not None:
        cuts += 1
        begun = wire.message(halves[0], metadata=wire.row_type(), chunked=True)
        rest = wire.message(halves[1], wire.heartbeat_row())
        assert decode(begun, rest) == [INSERTED, HeartbeatRecord(SECOND_NS)]
    assert cuts > 150


@pytest.mark.rule("spanner-chunked-values")
def test_a_response_that_stops_in_a_value_is_refused(wire):
    with pytest.raises(SchemaError, match="middle"):
        decode(wire.message([], metadata=wire.row_type(), chunked=True))


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("commit_timestamp", ["yesterday", 5]), ("record_sequence", [None, 1.5, True, ["7"]]),
        ("server_transaction_id", [None]),
        ("is_last_record_in_transaction_in_partition", [None, "true"]), ("table_name", [1]),
        ("mod_type", ["UPSERT", None]),
        ("mods", ["{}", [["{", "{}", "{}"]], [["[]", "{}", "{}"]], [["", "{}", "{}"]],
                  [["{}", "{}"]], ["{}"], [['{"id":"1"}', 5, "{}"]], [['{"id":"1"}', True, "{}"]],
                  [['{"id":"1"}', ["{}"], "{}"]]]),
        ("column_types", [[["id", "5", True, "1"]], [["id", '{"code":"INT64"}', True, "one"]]]),
        ("number_of_records_in_transaction", ["2.0", 1.5, "9" * 5000, None]),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_a_schema_error(wire, name, values):
    for value in values:
        with pytest.raises(SchemaError):
            decode_row(wire, wire.data_row(**{name: value}))


@pytest.mark.parametrize("text", ["{", "", "[]", "null", '{"v":1}x'])
def test_values_that_cannot_be_read_are_the_error_of_their_change(wire, text):
    """Its key is known, so the other changes of the record, and later ones, can go on."""
    good = ['{"id":"1"}', "{}", "{}"]
    mods = [good, ['{"id":"2"}', text, '{"v":["a"]}'], ['{"id":"3"}', "{}", text]]
    mods_read = decode_row(wire, wire.data_row(mods=mods)).mods
    assert [mod.keys["id"] for mod in mods_read] == ["1", "2", "3"]
    assert mods_read[0].new_values == {}
    assert mods_read[1].old_values == {"v": ["a"]}
    for values in (mods_read[1].new_values, mods_read[2].old_values):
        assert values.text == text
        for look in (
            iter,
            len,
            dict,
            lambda held: held["v"],
            lambda held: held.get("v"),
        ):
            with pytest.raises(SchemaError):
                look(values)


@pytest.mark.rule("spanner-record-array")
def test_another_form_of_stream_is_refused(wire):
    forms = [wire.row_type(), wire.row_type(), wire.row_type({"data_change_record": wire.STRING})]
    forms[0].fields[0].type_ = wire.JSON
    forms[1].fields.append(copy.deepcopy(forms[1].fields[0]))
    forms.append(wire.row_type({**wire.RECORD, "heartbeat_record": wire.array(wire.struct())}))
    forms.append(wire.row_type({**wire.RECORD, "data_change_record": wire.JSON}))
    for metadata in forms:
        with pytest.raises(SchemaError):
            decode(wire.message(metadata=metadata))


@pytest.mark.parametrize(("name", "place"), [("data_row", 0), ("children_row", 2)])
def test_a_record_without_its_timestamp_is_refused_unless_it_is_empty(wire, name, place):
    row = getattr(wire, name)()
    row[0][place][0][0] = None
    if name == "children_row":
        row[0][place][0][2] = [["child", []]]
    with pytest.raises(SchemaError, match="without its timestamp"):
        decode_row(wire, row)


def test_a_column_type_that_is_not_known_is_one_that_nothing_carries(wire):
    deep = '{"code":"ARRAY","array_element_type":' * 900 + '{"code":"INT64"}' + "}" * 900
    row = decode_row(wire, wire.data_row(column_types=[["id", deep, True, "1"]]))
    assert row.columns[0].type == ColumnType("ARRAY", ColumnType("ARRAY"))
    for text in ("{}", '{"code":99}', '{"code":"ARRAY","array_element_type":3}'):
        row = decode_row(wire, wire.data_row(column_types=[["id", text, True, "1"]]))
        assert not is_carried(row.columns[0].type)


@pytest.mark.rule("spanner-one-record-a-row")
def test_no_row_vanishes(wire):
    later = {"note": wire.array(wire.struct(text=wire.COLUMN["name"]))}
    row_type, more = wire.row_type(), wire.row_type({**later, **wire.RECORD})
    nothing = [None, [], None]
    for metadata, rows in (
        (row_type, [[], None, [nothing], [nothing, nothing], [[[], [[None]], []]],
                 [[[[None] * 13], [], []]]]),
        (more, [[[None, *nothing]], [[[["x"]], *nothing]], [[[None], *nothing]], [["x", *nothing]],
                [[[["x"]], *wire.data_row()[0]]]]),
    ):  # fmt: skip
        for row in rows:
            with pytest.raises(SchemaError, match="change stream record"):
                decode(wire.message(row, metadata=metadata))
    for absent in (None, []):
        row = [[absent, *wire.data_row()[0]], [absent, *wire.heartbeat_row()[0]]]
        records = decode(wire.message(row, metadata=more))
        assert records == [INSERTED, HeartbeatRecord(SECOND_NS)]


def test_equal_lists_of_another_layout_are_decoded_by_their_own(wire):
    """The same bytes mean other columns where the struct has its fields in another order."""
    swapped = {
        "type": wire.COLUMN["type"],
        "name": wire.COLUMN["name"],
        **{name: wire.COLUMN[name] for name in ("is_primary_key", "ordinal_position")},
    }
    data = {**wire.DATA, "column_types": wire.array(wire.struct(**swapped))}
    record = {**wire.RECORD, "data_change_record": wire.array(wire.struct(**data))}
    # A name that reads as a type's description, and a description that reads as a name.
    either = '{"code":"INT64"}'
    row = wire.data_row(column_types=[[either, '{"code":"BOOL"}', False, "1"]])
    cache = ColumnTypesCache()
    (first,) = decode(wire.message(row, metadata=wire.row_type()), cache=cache)
    (second,) = decode(wire.message(row, metadata=wire.row_type(record)), cache=cache)
    assert first.columns == (RecordColumn(either, ColumnType("BOOL"), False, 1),)
    assert second.columns == (RecordColumn('{"code":"BOOL"}', ColumnType("INT64"), False, 1),)


TWO_ELEMENTS = [
    [["v", json.dumps({"code": "ARRAY", "array_element_type": {"code": code}}), False, "1"]]
    for code in ("STRING", "BYTES")
]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("is_last_record_in_transaction_in_partition", (True, False)), ("table_name", ("t", "u")),
        ("mod_type", ("INSERT", "UPDATE")), ("value_capture_type", ("NEW_ROW", "NEW_VALUES")),
        ("number_of_records_in_transaction", ("2", "3")), ("transaction_tag", ("a", "b")),
        ("number_of_partitions_in_transaction", ("2", "3")), ("column_types", TWO_ELEMENTS),
        ("commit_timestamp", ("2024-01-02T03:04:05.678901001Z", "2024-01-02T03:04:05.678901002Z")),
        ("record_sequence", ("00000001", "00000002")), ("server_transaction_id", ("tx", "ty")),
        ("is_system_transaction", (True, False)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_records_that_differ_in_one_field_are_not_taken_for_each_other(wire, name, values):
    """Also an array's element type alone, and commit times within one microsecond."""
    rows = [wire.data_row(**{name: value}) for value in values]
    together = decode(wire.message(*rows, metadata=wire.row_type()))
    assert together == [decode_row(wire, row) for row in rows]
    assert together[0] != together[1]


def test_what_is_kept_for_later_records_keeps_no_message_alive(wire):
    decoder = ResponseDecoder(ColumnTypesCache())
    tag = "x" * 100_000
    (record,) = decoder.decode(
        wire.message(
            wire.data_row(transaction_tag=tag), metadata=wire.row_type()
        ).SerializeToString()
    )
    assert record.transaction_tag == tag
    kept = [field for identity in decoder._repeated for field in identity]
    assert kept
    assert {type(field) for field in kept} == {bytes}
    assert all(type(value) is bytes for _, value in decoder._column_lists._lists)


def googlesql_row(wire, page_example):
    """Return an example of the documentation as a row of GoogleSQL has it."""
    ((kind, record),) = page_example.items()
    if kind == "heartbeat_record":
        return wire.heartbeat_row(record["timestamp"])
    if kind == "child_partitions_record":
        children = [[child["token"], child["parent_partition_tokens"]]
                    for child in record["child_partitions"]]  # fmt: skip
        return [[[], [], [[record["start_timestamp"], record["record_sequence"], children]]]]
    columns = [
        [
            column["name"],
            json.dumps(column["type"]),
            column["is_primary_key"],
            column["ordinal_position"],
        ]
        for column in record["column_types"]
    ]
    mods = [[json.dumps(values) for values in mod.values()] for mod in record["mods"]]
    values = {**record, "column_types": columns, "mods": mods}
    return [[[[values[name] for name in wire.DATA]], [], []]]


@pytest.mark.rule("spanner-page-examples", "spanner-numeric-sequence")
@pytest.mark.parametrize("name", [
    "heartbeat", "child_partitions", *DATA_CHANGES, *MERGED,
    *(f"{merged}_with_numbers" for merged in MERGED),
])  # fmt: skip
def test_examples_of_the_documentation_say_the_same_in_both_dialects(wire, name):
    page_example = example(name)
    record = decode_row(wire, googlesql_row(wire, page_example))
    of_json = JsonResponseDecoder(ColumnTypesCache()).decode(
        wire.message(json.dumps(page_example), metadata=wire.JSONB_TYPE).SerializeToString()
    )
    assert [record] == of_json
    if name.endswith("_with_numbers"):
        assert type(record.record_sequence) is str
        plain = example(name.removesuffix("_with_numbers"))
        assert record == decode_row(wire, googlesql_row(wire, plain))


@pytest.mark.rule("spanner-page-examples")
def test_examples_of_the_documentation_are_read_as_it_describes_them(wire):
    def read(name):
        return decode_row(wire, googlesql_row(wire, example(name)))

    first_change, other = (read(name) for name in DATA_CHANGES[:2])
    assert first_change.server_transaction_id == other.server_transaction_id == "6329047911"
    assert (first_change.record_sequence, other.record_sequence) == ("00000000", "00000001")
    assert (
        first_change.commit_timestamp_ns == other.commit_timestamp_ns == 1_664_281_800_123_456_000
    )
    assert (
        first_change.mods[0].new_values["Balance"] - first_change.mods[0].old_values["Balance"]
        == -500
    )
    assert other.mods[0].new_values["Balance"] - other.mods[0].old_values["Balance"] == 500
    assert [read(name).value_capture_type for name in DATA_CHANGES[2:]] == [
        "NEW_VALUES", "NEW_ROW", "NEW_ROW_AND_OLD_VALUES",
    ]  # fmt: skip
    first, second, merged = (read(f"{name}_with_numbers") for name in MERGED)
    assert [change.record_sequence for change in (first, second)] == ["1000012389", "1000012390"]
    assert first.start_ns == second.start_ns  # those of one query always share it
    assert {child.parents for child in (*first.children, *second.children)} == {()}
    assert merged.children[0].parents == ("child_token_2", "child_token_3")
