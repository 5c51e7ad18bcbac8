"""An event of a record: its fields, its read method, its metadata, its types; what is refused."""

import dataclasses
import random

import pytest

from tests.datastream_files import SOURCES, history
from tests.page_examples import ORACLE, example
from tidegate.producer.datastream import errors, metadata
from tidegate.producer.datastream.errors import (
    InvalidEvent,
    MissingKeyColumn,
    Position,
    UnknownReadMethod,
    WrongSchema,
    printable,
)
from tidegate.producer.datastream.event import NEEDED_FIELDS, ChangeType, parse_event
from tidegate.producer.datastream.metadata import (
    MySqlMetadata,
    OracleMetadata,
    PostgreSqlMetadata,
    RecordFields,
    SalesforceMetadata,
    SpannerMetadata,
    SqlServerMetadata,
    metadata_of,
    read_flag,
    read_instant_us,
    read_joined,
    read_needed_text,
    read_number,
    read_numbers,
    read_record,
    read_text,
    read_texts,
)
from tidegate.producer.datastream.read_methods import (
    KNOWN_METHODS,
    ReadKind,
    SourceKind,
    read_method_of,
)
from tidegate.producer.datastream.unified_types import (
    PayloadField,
    named_types,
    payload_fields,
    without_logical_types,
)

HERE = Position("a.avro", 3)


def record(source="mysql", **changes):
    (generated,) = history(source, random.Random(1), 1)
    metadata = {**generated["source_metadata"], **changes.pop("metadata", {})}
    return {**generated, "source_metadata": metadata, **changes}


def parsed(source="mysql", **changes):
    return parse_event(record(source, **changes), HERE)


@pytest.mark.rule("datastream-generic-fields")
@pytest.mark.parametrize("source", SOURCES)
def test_generic_fields_of_every_source(source):
    given = record(source)
    event = parse_event(given, HERE)
    for name in ("stream_name", "object", "schema_key", "uuid", "payload"):
        assert getattr(event, name) == given[name]
    assert event.read_method.text == given["read_method"]
    assert event.read_method.source.value == source
    assert event.read_timestamp_us == given["read_timestamp"] * 1_000
    assert event.source_timestamp_us == given["source_timestamp"] * 1_000
    assert event.sort_keys == tuple(given["sort_keys"])
    assert event.position == HERE


@pytest.mark.rule("datastream-change-types", "datastream-is-deleted")
@pytest.mark.parametrize(
    ("text", "is_deletion"),
    [("INSERT", False), ("UPDATE", False), ("UPDATE-INSERT", False), ("UPDATE-DELETE", True),
     ("DELETE", True)],
)  # fmt: skip
@pytest.mark.parametrize("source", SOURCES)
def test_change_types_and_is_deleted(source, text, is_deletion):
    event = parsed(source, metadata={"change_type": text, "is_deleted": is_deletion})
    assert (event.change_type, event.is_deleted) == (ChangeType(text), is_deletion)
    # It follows from the change type where a file does not say it.
    event = parsed(source, metadata={"change_type": text, "is_deleted": None})
    assert event.is_deleted == is_deletion
    with pytest.raises(InvalidEvent, match=r"is_deleted is .* in a change of type"):
        parsed(source, metadata={"change_type": text, "is_deleted": not is_deletion})


@pytest.mark.rule("datastream-generic-fields")
def test_a_backfilled_row_of_an_old_file_says_neither():
    old = {"schema": "HR", "table": "LOCATIONS", "database": "XE", "row_id": "AAAEALAAEAAAACdAAB"}
    given = {**record("oracle"), "read_method": "oracle_dump", "source_metadata": old}
    del given["sort_keys"], given["schema_key"]
    event = parse_event(given, HERE)
    assert (event.change_type, event.is_deleted) == (ChangeType.INSERT, False)
    assert (event.key, event.schema_key, event.sort_keys) == (None, "", None)
    # Of a change something is missing.
    with pytest.raises(WrongSchema, match="change_type"):
        parsed("oracle", metadata={"change_type": None})


@pytest.mark.rule("datastream-primary-keys")
def test_keys_and_rows_without_one():
    assert parsed(metadata={"primary_keys": ["note", "id"]}).key == (
        "change 0", record()["payload"]["id"],
    )  # fmt: skip
    for nothing in ([], None):
        assert parsed(metadata={"primary_keys": nothing}).key is None
    assert parsed("sqlserver", metadata={"primary_keys": [], "replication_index": ["id"]}).key == (
        record("sqlserver")["payload"]["id"],
    )


@pytest.mark.rule("datastream-entire-row")
def test_a_key_that_the_row_does_not_have_is_refused():
    with pytest.raises(MissingKeyColumn, match=r"no column nope.*record=3.*key="):
        parsed(metadata={"primary_keys": ["id", "nope"]})
    # A file's schema decides where there is one.
    with pytest.raises(MissingKeyColumn):
        parse_event(record(), HERE, columns=frozenset({"note"}))


@pytest.mark.rule("datastream-timestamps")
@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("1970-01-01 00:00:01.500", 1_500_000), ("1970-01-01T00:00:01.500", 1_500_000),
        ("1970-01-01T00:00:01.500Z", 1_500_000), ("1970-01-01T01:00:01.5+01:00", 1_500_000),
        ("1970-01-01T00:00:01", 1_000_000), ("1970-01-01T00:00:01.123456789", 1_123_456),
        (-1, -1_000), ("1573112236808", 1_573_112_236_808_000), ("-1", -1_000),
    ],
)  # fmt: skip
def test_timestamps(text, us):
    found = parsed(source_timestamp=text, read_timestamp=text, sort_keys=None)
    assert (found.source_timestamp_us, found.read_timestamp_us) == (us, us)


@pytest.mark.rule("datastream-page-example")
def test_the_documentations_flow_of_events_is_read_and_sorts_by_record_set():
    """By `rs_id` and `ssn`, the page's rule, the example's INSERT is the last; SCNs grow."""
    events = [parse_event(example(name), Position("a.jsonl", 1)) for name in ORACLE]
    kinds = [(event.change_type.value, event.is_deleted) for event in events]
    assert kinds == [("INSERT", False), ("UPDATE", False), ("DELETE", True)]
    by_order = sorted(events, key=lambda event: event.order_key)
    assert [event.change_type.value for event in by_order] == ["UPDATE", "DELETE", "INSERT"]
    for growing in ("scn", "source_timestamp_us"):
        values = [getattr(event.metadata, growing, getattr(event, growing, 0)) for event in events]
        assert values == sorted(values)
    assert {event.key for event in events} == {None}  # no example has `primary_keys`
    absent = {(event.object, event.schema_key, event.sort_keys) for event in events}
    assert absent == {("SAMPLE.TBL", "", None)}
    assert [event.payload["FIELD1"] for event in events] == ["foo", None, None]
    assert [event.metadata.path[-2:] for event in events] == [("ROOT", "SAMPLE")] * 3


@pytest.mark.rule("datastream-change-types", "datastream-other-methods")
@pytest.mark.parametrize(
    ("changes", "kind", "text"),
    [
        ({"metadata": {"change_type": "TRUNCATE"}}, InvalidEvent, "not one of INSERT, UPDATE"),
        *(
            ({"read_method": one}, UnknownReadMethod, "mysql-cdc-binlog")
            for one in ("mongodb-cdc", "", "x" * 10_000)
        ),
        *(
            ({"source_timestamp": one}, InvalidEvent, "source_timestamp")
            for one in ("", "yesterday", "1970-01-01", 2**63, -(2**63))
        ),
        *(
            ({"source_timestamp": one}, WrongSchema, "source_timestamp")
            for one in (1.5, True, None, [])
        ),
        *(({"sort_keys": one}, WrongSchema, "sort_keys") for one in ("x", [1.5], [None], {})),
    ],
    ids=lambda one: str(one)[:30] if isinstance(one, dict) else "",
)
def test_an_event_with_another_value_is_refused(changes, kind, text):
    with pytest.raises(kind, match=text) as caught:
        parsed(**changes)
    assert len(str(caught.value)) < 1_000


@pytest.mark.rule("datastream-needed-fields")
def test_a_field_that_every_event_has_is_needed():
    for name in NEEDED_FIELDS:
        given = record()
        del given[name]
        with pytest.raises(WrongSchema, match=name):
            parse_event(given, HERE)


KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type)
    and issubclass(kind, errors.DatastreamError)
    and kind is not errors.DatastreamError
]


def test_an_error_names_file_and_record_and_the_fix():
    assert len(KINDS) == 13
    for kind in KINDS:
        error = kind.at(HERE, "something is wrong", found=7)
        assert str(error) == f"something is wrong (file='a.avro', record=3, found=7). {kind.fix}"
        assert kind.fix
        assert error.exit_code == 2
        branch = "├" if kind.__name__ != "MissingKeyColumn" else "└"
        assert f"    {branch}── {kind.__name__} " in errors.__doc__


@pytest.mark.rule("datastream-equal-positions")
def test_positions_sort_by_file_then_by_number():
    first = Position("o/2024/02/28/23/59/0_a.avro", 10)
    assert sorted([Position("o/2024/02/29/00/00/0_a.avro", 1), first, Position(first.file, 9)]) == [
        Position(first.file, 9),
        first,
        Position("o/2024/02/29/00/00/0_a.avro", 1),
    ]


def test_a_path_of_any_bytes_can_be_printed_and_encoded():
    assert printable("a b/naïve-日本") == "a b/naïve-日本"
    assert printable("caf\udce9.avro").encode() == rb"caf\udce9.avro"


KNOWN = {
    ("oracle", "cdc"): ["oracle-cdc-logminer"],
    ("oracle", "backfill"): ["oracle-backfill", "oracle_dump"],  # the second in real files only
    ("oracle", "supplementation"): ["oracle-supplementation"],
    ("mysql", "cdc"): ["mysql-cdc-binlog"],
    ("mysql", "backfill"): ["mysql-backfill-incremental", "mysql-backfill-fulldump"],
    ("postgresql", "cdc"): ["postgres-cdc-wal", "postgresql-cdc"],
    ("postgresql", "backfill"): ["postgresql-backfill"],
    **{
        (source, kind): [f"{source}-{kind}"]
        for source in ("salesforce", "sqlserver", "spanner")
        for kind in ("cdc", "backfill")
    },
}


@pytest.mark.rule("datastream-read-methods", "datastream-tidegate-methods")
@pytest.mark.rule("datastream-backfill-methods")
def test_known_methods():
    for expected, texts in KNOWN.items():
        for text in texts:
            method = read_method_of(text)
            assert (method.text, method.source.value, method.kind.value) == (text, *expected)
    for source in SourceKind:
        method = read_method_of(f"{source.value}-backfill-of-another-kind")
        assert (method.source, method.kind) == (source, ReadKind.BACKFILL)
    for text in ("", "mysql", "mysql-cdc", "mongodb-cdc", "MYSQL-CDC-BINLOG"):
        assert read_method_of(text) is None
    assert "mysql-cdc-binlog" in KNOWN_METHODS


@pytest.mark.rule("datastream-methods-without-source")
@pytest.mark.parametrize(
    ("metadata", "is_mysql"),
    [
        ({"gtid"}, True), ({"binlog_file", "table"}, True), ({"log_file", "log_position"}, True),
        ({"database", "table", "primary_keys"}, True), ((), False),
        ({"collection", "database"}, False), ({"schema", "table", "lsn"}, False),
    ],
)  # fmt: skip
def test_a_method_that_names_no_source_is_mysqls_by_its_metadata(metadata, is_mysql):
    for text, kind in (("cdc", ReadKind.CDC), ("backfill", ReadKind.BACKFILL)):
        method = read_method_of(text, metadata)
        expected = (SourceKind.MYSQL, kind) if is_mysql else None
        assert (method and (method.source, method.kind)) == expected


def of(**values):
    return RecordFields(values, HERE, within="m")


def test_what_is_absent_or_null_has_no_value():
    for fields in (of(), of(x=None)):
        for reader in (read_text, read_number, read_flag, read_joined, read_instant_us):
            assert fields.read(reader, "x") is None
        for reader in (read_texts, read_numbers):
            assert fields.read(reader, "x") == ()


@pytest.mark.parametrize(
    ("method", "value"),
    [
        ("text", 1.5), ("text", True), ("text", []), ("number", "x"), ("number", 1.5),
        ("number", True), ("number", "\u0661"), ("flag", 1), ("flag", "true"), ("texts", "a"),
        ("texts", [1]), ("numbers", ["1"]), ("numbers", [True]), ("joined", [1]),
        ("record", "x"), ("needed_text", {}),
    ],
)  # fmt: skip
def test_another_type_is_named(method, value):
    with pytest.raises(WrongSchema, match=r"m\.x is .* and not ") as caught:
        of(x=value).read(getattr(metadata, f"read_{method}"), "x")
    assert caught.value.fields == {"file": "a.avro", "record": 3}
    with pytest.raises(WrongSchema) as caught:
        of(x="y" * 10_000).read(read_flag, "x")
    assert len(str(caught.value)) < 400  # a long value is shown in part


@pytest.mark.parametrize(
    ("method", "value", "expected"),
    [
        ("text", 363_552, "363552"), ("number", "363552", 363_552), ("number", -5, -5),
        ("instant_us", 5, 5), ("instant_us", "1970-01-01T00:00:00.000005Z", 5),
        ("instant_us", "1970-01-01T01:00:00+01:00", 0), ("instant_us", None, None),
        ("texts", ["a", "b"], ("a", "b")), ("numbers", [1, 2], (1, 2)),
        ("joined", ["a", "b"], "a.b"), ("joined", "dbo", "dbo"), ("joined", [], None),
        ("record", {"a": 1}, {"a": 1}), ("needed_text", "a", "a"),
    ],
)  # fmt: skip
def test_fields_have_the_types_of_files(method, value, expected):
    assert of(x=value).read(getattr(metadata, f"read_{method}"), "x") == expected


def test_what_is_needed_and_missing_or_not_a_time_is_named():
    for reader in (read_needed_text, read_record):
        with pytest.raises(WrongSchema, match=r"no m\.x.*record=3"):
            of().read(reader, "x")
    with pytest.raises(InvalidEvent, match=r"m\.x is not a time.*record=3"):
        of(x="noon").read(read_instant_us, "x")


DOCUMENTED = {
    SourceKind.MYSQL: (
        MySqlMetadata, ("shop", "orders"),
        {"log_file": "mysql-bin.000014", "log_position": 48351, "primary_keys": ["id"],
         "is_deleted": True, "database": "shop", "table": "orders", "change_type": "DELETE"},
    ),
    SourceKind.ORACLE: (
        OracleMetadata, ("DB1", "ROOT", "SAMPLE"),
        {"log_file": "", "scn": 15869116216871, "row_id": "AAAPwRAALAAMzMBABD",
         "is_deleted": False, "database": "DB1", "schema": "ROOT", "table": "SAMPLE",
         "change_type": "INSERT", "tx_id": "1.2.3", "rs_id": "0x0073c9.000a4e4c.01d0", "ssn": 67},
    ),
    SourceKind.POSTGRESQL: (
        PostgreSqlMetadata, ("public", "orders"),
        {"schema": "public", "table": "orders", "is_deleted": False, "change_type": "UPDATE",
         "tx_id": "363552", "lsn": "16/CB002DB0", "primary_keys": ["a", "b"]},
    ),
    SourceKind.SQL_SERVER: (
        SqlServerMetadata, ("7", "dbo", "orders"),
        {"table": "orders", "database": 7, "schema": ["dbo"], "is_deleted": False,
         "lsn": "00000025:00000728:0003", "tx_id": "0000:00000777",
         "physical_location": [1, 2, 3], "replication_index": ["id"], "change_type": "INSERT"},
    ),
    SourceKind.SALESFORCE: (
        SalesforceMetadata, ("shop.example", "Account"),
        {"object_name": "Account", "domain": "shop.example", "is_deleted": False,
         "change_type": "INSERT", "primary_keys": ["Id"]},
    ),
    SourceKind.SPANNER: (
        SpannerMetadata, ("shop", "Items"),
        {"database": "d", "schema": "shop", "table": "Items", "primary_keys": ["Shop", "Sku"],
         "is_deleted": False, "change_type": "UPDATE", "tx_id": "MTIz",
         "record_sequence": "00000002", "mod_number": 1, "commit_timestamp": 1700000000123456,
         "is_last_record_in_transaction_in_partition": True,
         "number_of_records_in_transaction": 3, "number_of_partitions_in_transaction": 2,
         "transaction_tag": "reprice", "is_system_transaction": False,
         "value_capture_type": "NEW_ROW", "captured_columns": ["Shop", "Sku"]},
    ),
}  # fmt: skip


@pytest.mark.rule("datastream-source-fields", "datastream-field-types")
@pytest.mark.parametrize("source", SourceKind)
def test_every_documented_field_is_read(source):
    kind, path, values = DOCUMENTED[source]
    metadata = metadata_of(source, values, HERE)
    assert type(metadata) is kind
    assert metadata.path == path
    assert metadata.source is source
    for name, value in values.items():
        read = getattr(metadata, name)
        if isinstance(value, list) and name != "schema":
            assert read == tuple(value)
        elif name in ("schema", "database"):
            assert read == (value[0] if isinstance(value, list) else str(value))
        else:
            assert read == value
    assert {one.name for one in dataclasses.fields(kind)} - set(values) <= {
        "source", "primary_keys", "gtid",
    }  # fmt: skip


@pytest.mark.rule("datastream-source-fields")
@pytest.mark.parametrize("source", SourceKind)
def test_old_files_have_few_of_them_and_new_ones_may_have_more(source):
    name = "object_name" if source is SourceKind.SALESFORCE else "table"
    metadata = metadata_of(source, {name: "t", "new_field": 3}, HERE)
    assert metadata.path == ("t",)
    assert metadata.change_type is metadata.is_deleted is None
    assert metadata.key_columns == ()
    assert not hasattr(metadata, "new_field")
    with pytest.raises(WrongSchema, match=r"no source_metadata\."):
        metadata_of(source, {}, HERE)


@pytest.mark.rule("datastream-field-types")
def test_types_of_real_files_where_the_documentation_has_others():
    values = {"table": "t", "database": "shop", "schema": "dbo"}
    assert metadata_of(SourceKind.SQL_SERVER, values, HERE).path == ("shop", "dbo", "t")
    postgresql = metadata_of(SourceKind.POSTGRESQL, {"table": "t", "tx_id": 363552}, HERE)
    assert postgresql.tx_id == "363552"


@pytest.mark.rule("datastream-replication-index")
def test_an_index_identifies_rows_where_there_is_no_primary_key():
    def key(**values):
        return metadata_of(SourceKind.SQL_SERVER, {"table": "t", **values}, HERE).key_columns

    assert key(replication_index=["a", "b"]) == ("a", "b")
    assert key(replication_index=["a"], primary_keys=["id"]) == ("id",)
    assert key(replication_index=["a"], primary_keys=[]) == ("a",)
    assert key() == ()


@pytest.mark.rule("datastream-tidegate-commit-time")
def test_a_table_of_spanner_may_have_no_schema_and_its_time_is_a_number_or_text():
    def found(**values):
        return metadata_of(SourceKind.SPANNER, {"table": "t", "schema": "", **values}, HERE)

    assert found().path == ("t",)
    at = found(commit_timestamp="2023-11-14T22:13:20.123456Z").commit_timestamp
    assert at == found(commit_timestamp=1_700_000_000_123_456).commit_timestamp
    with pytest.raises(InvalidEvent, match=r"source_metadata\.commit_timestamp is not a time"):
        found(commit_timestamp="yesterday")


@pytest.mark.parametrize(
    ("change_type", "capture", "is_whole"),
    [("INSERT", "NEW_VALUES", True), ("UPDATE", "NEW_ROW", True), ("UPDATE", "NEW_VALUES", False),
     ("UPDATE", "NEW_ROW_AND_OLD_VALUES", True), ("UPDATE", "OLD_AND_NEW_VALUES", False),
     ("UPDATE", None, False)],
)  # fmt: skip
def test_an_update_of_spanner_is_a_whole_row_if_it_is_captured(change_type, capture, is_whole):
    values = {"table": "t", "change_type": change_type, "value_capture_type": capture}
    assert metadata_of(SourceKind.SPANNER, values, HERE).is_whole_row is is_whole


def test_mysql_with_global_identifiers_has_other_names_for_its_place():
    values = {"table": "t", "gtid": "a:23", "binlog_file": "bin.000014", "binlog_position": 0}
    metadata = metadata_of(SourceKind.MYSQL, values, HERE)
    place = (metadata.gtid, metadata.log_file, metadata.log_position)
    assert place == ("a:23", "bin.000014", 0)
    with pytest.raises(
        WrongSchema, match=r"source_metadata\.binlog_position is 'x' and not a whole"
    ):
        metadata_of(SourceKind.MYSQL, {**values, "binlog_position": "x"}, HERE)


ARRAY = {
    "type": "record",
    "name": "multidimensionalArray_tags",
    "fields": [
        {"name": "nestedArray", "default": None,
         "type": ["null", {"type": "array", "items": "multidimensionalArray_tags"}]},
        {"name": "elementValue", "default": None,
         "type": ["null", {"type": "string", "logicalType": "json"}]},
    ],
}  # fmt: skip
VARCHAR = {"type": "record", "name": "varchar", "fields": [{"name": "value", "type": "string"}]}


def logical(base, name, **more):
    return {"type": base, "logicalType": name, **more}


def empty_record(name):
    return {"type": "record", "name": name, "fields": []}


@pytest.mark.rule("datastream-unified-types", "datastream-custom-types")
@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ("boolean", "BOOLEAN"), ("bytes", "BYTES"), ("double", "DOUBLE"), ("float", "FLOAT"),
        ("int", "INTEGER"), ("long", "LONG"), ("string", "STRING"),
        (logical("int", "date"), "DATE"), (logical("string", "json"), "JSON"),
        (logical("string", "number"), "NUMBER"), (logical("long", "time-micros"), "TIME"),
        (logical("long", "time-interval-micros"), "TIME INTERVAL"),
        (logical("long", "timestamp-micros"), "TIMESTAMP"),
        (logical("bytes", "decimal", precision=10, scale=2), "DECIMAL(10,2)"),
        (logical("bytes", "decimal", precision=5), "DECIMAL(5,0)"),
        (logical("long", "a-new-one"), "LONG"), ({"type": "string"}, "STRING"),
        (empty_record("datetime"), "DATETIME"), (empty_record("interval"), "INTERVAL"),
        (empty_record("timestampTz"), "TIMESTAMP WITH TIMEZONE"), (VARCHAR, "VARCHAR"),
        (empty_record("point"), "RECORD point"), (ARRAY, "ARRAY<JSON>"),
        ({"type": "array", "items": "int"}, "ARRAY<INTEGER>"),
        ({"type": "map", "values": "int"}, "MAP<INTEGER>"),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, "STRING"),
        ({"type": "fixed", "name": "f", "size": 2}, "BYTES"),
        (["int", "string"], "UNION(INTEGER, STRING)"),
    ],
)  # fmt: skip
def test_types(schema, expected):
    branches = schema if isinstance(schema, list) else [schema]
    fields = [{"name": "a", "type": schema}, {"name": "b", "type": ["null", *branches]}]
    payload = {"fields": fields}
    assert payload_fields(payload, named_types(payload)) == [
        PayloadField("a", expected, nullable=False),
        PayloadField("b", expected, nullable=True),
    ]


def test_a_type_that_is_named_again_is_found():
    fields = [{"name": "a", "type": ["null", VARCHAR]}, {"name": "b", "type": "varchar"}]
    payload = {"type": "record", "name": "payload", "fields": fields}
    named_columns = payload_fields(payload, named_types(payload))
    assert [field.type for field in named_columns] == ["VARCHAR", "VARCHAR"]


def test_a_logical_type_may_stand_on_the_field_in_old_files():
    payload = {"fields": [{"name": "a", "type": "long", "logicalType": "timestamp-micros"}]}
    assert payload_fields(payload, {}) == [PayloadField("a", "TIMESTAMP", nullable=False)]


def test_a_type_that_contains_itself_has_an_end():
    loop = {"type": "array", "items": "r"}
    named = {"r": loop}
    (field,) = payload_fields({"fields": [{"name": "a", "type": loop}]}, named)
    assert field.type.startswith("ARRAY<ARRAY<")


@pytest.mark.rule("datastream-custom-types")
def test_decoding_knows_no_logical_types_and_all_else():
    def schema(time, number):
        fields = [
            {"name": "type", "type": ["null", time], "default": None},
            {"name": "b", "type": {"type": "array", "items": number}},
        ]
        return {"type": "record", "name": "logicalType", "fields": fields}

    given = schema(logical("long", "timestamp-micros"), logical("bytes", "decimal"))
    assert without_logical_types(given) == schema({"type": "long"}, {"type": "bytes"})


def test_names_within_names_do_not_grow_without_end():
    """Each of these names the next one twice: written out, the first has 2^60 parts."""
    schemas = {}
    for n in range(60):
        name, further = (f"multidimensionalArray_{at}" for at in (n, n + 1))
        value = {"name": "elementValue", "type": [further, {"type": "array", "items": further}]}
        schemas[name] = {"type": "record", "name": name, "fields": [value]}
    payload = {"fields": [{"name": "a", "type": "multidimensionalArray_0"}]}
    (field,) = payload_fields(payload, schemas)
    assert len(field.type) < 3_000
