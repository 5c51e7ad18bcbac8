"""An event of a record: generic fields, change types, keys, timestamps; and what is refused."""

import json
import random

import pytest

from tests.datastream_files import SOURCES, history, json_bytes
from tests.page_examples import ORACLE, example
from tidegate.producer.datastream.errors import (
    InvalidEvent,
    MissingKeyColumn,
    UnknownReadMethod,
    WrongSchema,
)
from tidegate.producer.datastream.event import NEEDED_FIELDS, ChangeType, parse_event
from tidegate.producer.datastream.position import Position

HERE = Position("a.avro", 3)


def record(source="mysql", **changes):
    (found,) = history(source, random.Random(1), 1)
    metadata = {**found["source_metadata"], **changes.pop("metadata", {})}
    return {**found, "source_metadata": metadata, **changes}


def parsed(source="mysql", **changes):
    return parse_event(record(source, **changes), HERE)


@pytest.mark.rule("datastream-generic-fields")
@pytest.mark.parametrize("source", SOURCES)
def test_generic_fields_of_every_source(source):
    given = record(source)
    found = parse_event(given, HERE)
    for name in ("stream_name", "object", "schema_key", "uuid", "payload"):
        assert getattr(found, name) == given[name]
    assert found.read_method.text == given["read_method"]
    assert found.read_method.source.value == source
    assert found.read_timestamp_us == given["read_timestamp"] * 1_000
    assert found.source_timestamp_us == given["source_timestamp"] * 1_000
    assert found.sort_keys == tuple(given["sort_keys"])
    assert found.position == HERE


@pytest.mark.parametrize("source", SOURCES)
def test_json_and_avro_give_equal_events_but_for_values_of_the_row(source):
    changes = history(source, random.Random(2), 10)
    lines = json_bytes(changes).splitlines()
    for given, line in zip(changes, lines, strict=True):
        avro, text = parse_event(given, HERE), parse_event(json.loads(line), HERE)
        for name in avro.__slots__:
            if name != "payload":
                assert getattr(avro, name) == getattr(text, name), name
        assert avro.payload["id"] == text.payload["id"]


@pytest.mark.rule("datastream-change-types", "datastream-is-deleted")
@pytest.mark.parametrize(
    ("text", "is_deletion"),
    [("INSERT", False), ("UPDATE", False), ("UPDATE-INSERT", False), ("UPDATE-DELETE", True),
     ("DELETE", True)],
)  # fmt: skip
@pytest.mark.parametrize("source", SOURCES)
def test_change_types_and_is_deleted(source, text, is_deletion):
    found = parsed(source, metadata={"change_type": text, "is_deleted": is_deletion})
    assert (found.change_type, found.is_deleted) == (ChangeType(text), is_deletion)
    # It follows from the change type where a file does not say it.
    assert parsed(source, metadata={"change_type": text, "is_deleted": None}).is_deleted == (
        is_deletion
    )
    with pytest.raises(InvalidEvent, match=r"is_deleted is .* in a change of type"):
        parsed(source, metadata={"change_type": text, "is_deleted": not is_deletion})


@pytest.mark.rule("datastream-generic-fields")
def test_a_backfilled_row_of_an_old_file_says_neither():
    old = {"schema": "HR", "table": "LOCATIONS", "database": "XE", "row_id": "AAAEALAAEAAAACdAAB"}
    given = {**record("oracle"), "read_method": "oracle_dump", "source_metadata": old}
    del given["sort_keys"], given["schema_key"]
    found = parse_event(given, HERE)
    assert (found.change_type, found.is_deleted) == (ChangeType.INSERT, False)
    assert (found.key, found.schema_key, found.sort_keys) == (None, "", None)
    # Of a change something is missing.
    with pytest.raises(WrongSchema, match="change_type"):
        parsed("oracle", metadata={"change_type": None})


@pytest.mark.rule("datastream-change-types")
def test_an_unknown_change_type_is_refused():
    with pytest.raises(InvalidEvent, match="change_type is not one of INSERT, UPDATE"):
        parsed(metadata={"change_type": "TRUNCATE"})


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


@pytest.mark.rule("datastream-other-methods")
@pytest.mark.parametrize("method", ["mongodb-cdc", "", "x" * 10_000])
def test_an_unknown_read_method_is_refused(method):
    with pytest.raises(UnknownReadMethod, match="mysql-cdc-binlog") as caught:
        parsed(read_method=method)
    assert len(str(caught.value)) < 1_000


@pytest.mark.rule("datastream-needed-fields")
@pytest.mark.parametrize("name", NEEDED_FIELDS)
def test_a_field_that_every_event_has_is_needed(name):
    given = record()
    del given[name]
    with pytest.raises(WrongSchema, match=name):
        parse_event(given, HERE)


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


@pytest.mark.parametrize("value", ["", "yesterday", "1970-01-01", 2**63, -(2**63)])
def test_other_timestamps_are_refused(value):
    with pytest.raises(InvalidEvent, match="source_timestamp"):
        parsed(source_timestamp=value)


@pytest.mark.parametrize("value", [1.5, True, None, []])
def test_timestamps_of_another_type_are_refused(value):
    with pytest.raises(WrongSchema, match="source_timestamp"):
        parsed(source_timestamp=value)


@pytest.mark.parametrize("value", ["x", [1.5], [None], {}])
def test_sort_keys_of_another_type_are_refused(value):
    with pytest.raises(WrongSchema, match="sort_keys"):
        parsed(sort_keys=value)


@pytest.mark.rule("datastream-page-example")
def test_the_documentations_flow_of_events_is_read_and_sorts_by_record_set():
    """They are one row's INSERT, UPDATE and DELETE, and their places in the log are not so.

    By `rs_id` and `ssn`, which the page gives as Oracle's order, the INSERT is the last of them;
    their SCNs and times grow as the flow does.  The order is the page's rule, not its example.
    """
    events = [parse_event(example(name), Position("a.jsonl", 1)) for name in ORACLE]
    kinds = ["INSERT", "UPDATE", "DELETE"]
    assert [event.change_type.value for event in events] == kinds
    assert [event.is_deleted for event in events] == [False, False, True]
    by_order = sorted(events, key=lambda event: event.order_key)
    assert [event.change_type.value for event in by_order] == ["UPDATE", "DELETE", "INSERT"]
    for growing in ("scn", "source_timestamp_us"):
        values = [getattr(event.metadata, growing, getattr(event, growing, 0)) for event in events]
        assert values == sorted(values)
    assert {event.key for event in events} == {None}  # no example has `primary_keys`
    absent = {(event.object, event.schema_key, event.sort_keys) for event in events}
    assert absent == {("SAMPLE.TBL", "", None)}
    assert [event.payload["FIELD1"] for event in events] == ["foo", None, None]
    assert len({event.metadata.row_id for event in events}) == 3  # of one row, as the page says
    assert [event.metadata.path[-2:] for event in events] == [("ROOT", "SAMPLE")] * 3
    assert [event.read_timestamp_us for event in events] == [
        1_573_112_236_808_000, 1_573_112_238_808_000, 1_573_112_240_808_000,
    ]  # fmt: skip
