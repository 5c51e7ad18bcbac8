"""One file of any format, and what a stream delivers; real files where they are at hand."""

import functools
import gzip
import os
import random
from collections import Counter, defaultdict
from io import BytesIO
from pathlib import Path

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.datastream_files import (
    ADDED_COLUMN,
    SOURCES,
    avro_bytes,
    delivered,
    history,
    in_another_order,
    json_bytes,
    schema_of,
    write_stream,
)
from tests.datastream_table import drawn_table
from tidegate.producer.datastream.errors import (
    DatastreamError,
    FileCutShort,
    FileDamaged,
    MissingKeyColumn,
    UnknownReadMethod,
    WrongSchema,
)
from tidegate.producer.datastream.event import ChangeType
from tidegate.producer.datastream.event_file import EventFile
from tidegate.producer.datastream.event_order import BACKFILL_KEY
from tidegate.producer.datastream.file_store import LocalStore
from tidegate.producer.datastream.listing import all_files, object_folders
from tidegate.producer.datastream.read_methods import ReadKind

REPOSITORY = Path(__file__).resolve().parents[4]
REAL = Path(
    os.environ.get("TIDEGATE_DATASTREAM_FILES", REPOSITORY.parent / "shared/data/datastream")
)
"""A folder with files that Datastream wrote: not a part of the repository."""


def read(data, name="a.avro"):
    return list(EventFile(name, BytesIO(data)))


@pytest.mark.rule("datastream-entire-row", "datastream-formats")
@pytest.mark.parametrize("source", SOURCES)
def test_all_formats_hold_the_same_events(source):
    events = history(source, random.Random(4), 9)
    avro, lines = avro_bytes(source, events), json_bytes(events)
    expected = [event["uuid"] for event in events]
    two_members = gzip.compress(lines[:700]) + gzip.compress(lines[700:])
    keys = set()
    for data in (avro, lines, gzip.compress(avro), two_members):
        read_events = read(data)
        assert [event.uuid for event in read_events] == expected
        assert [event.position.record for event in read_events] == list(range(1, 10))
        # Each has the entire row, whatever the change; values of JSON have other forms.
        assert [event.payload["note"] for event in read_events] == [
            event["payload"]["note"] for event in events
        ]
        assert {tuple(event.payload) for event in read_events} == {("id", "note", "at", "price")}
        keys.add(tuple(event.order_key for event in read_events))
    assert len(keys) == 1


@pytest.mark.rule("datastream-generic-fields")
@pytest.mark.parametrize("source", SOURCES)
def test_fields_are_read_by_name_whatever_their_order(source):
    events = history(source, random.Random(4), 9)
    shuffled = [in_another_order(event, random.Random(5)) for event in events]
    assert list(shuffled[0]) != list(events[0])
    for write in (functools.partial(avro_bytes, source), json_bytes):
        assert write(events) != write(shuffled)
        assert read(write(events)) == read(write(shuffled))


@pytest.mark.rule("datastream-entire-row")
def test_an_event_that_is_refused_is_named_and_those_behind_it_can_be_read():
    events = history("mysql", random.Random(4), 5)
    events[1]["read_method"] = "db2-cdc"
    for data in (avro_bytes("mysql", events), json_bytes(events)):
        read_events = list(EventFile("a", BytesIO(data)).each())
        assert isinstance(read_events[1], UnknownReadMethod)
        assert [event.uuid for n, event in enumerate(read_events) if n != 1] == [
            event["uuid"] for n, event in enumerate(events) if n != 1
        ]
        with pytest.raises(UnknownReadMethod, match=r"record=2.*db2-cdc"):
            read(data)
    with pytest.raises(FileCutShort):
        list(EventFile("a", BytesIO(avro_bytes("mysql", events)[:-3])).each())
    events[0]["source_metadata"]["primary_keys"] = ["nope"]
    for data in (avro_bytes("mysql", events[:1]), json_bytes(events[:1])):
        with pytest.raises(MissingKeyColumn, match="record=1"):
            read(data)


@pytest.mark.rule("datastream-unified-types")
def test_the_schema_gives_the_fields_and_json_has_none():
    file = EventFile("a.avro", BytesIO(avro_bytes("mysql", [])))
    assert [(field.name, field.type, field.nullable) for field in file.fields] == [
        ("id", "LONG", True), ("note", "STRING", True), ("at", "TIMESTAMP", True),
        ("price", "DECIMAL(10,2)", True),
    ]  # fmt: skip
    assert EventFile("a.jsonl", BytesIO(b"{}\n")).fields is None


@pytest.mark.rule("datastream-cut-files")
def test_a_compressed_file_cut_anywhere_is_noticed():
    lines = json_bytes(history("mysql", random.Random(5), 3))
    for data in (gzip.compress(lines), gzip.compress(avro_bytes("mysql", []))):
        for end in range(2, len(data)):
            with pytest.raises(DatastreamError):
                read(data[:end])


def test_a_compressed_file_with_another_byte_is_noticed():
    data = gzip.compress(json_bytes(history("mysql", random.Random(5), 3)))
    for place in (2, 12, len(data) // 2, len(data) - 6):
        changed = bytearray(data)
        changed[place] ^= 0x40
        with pytest.raises(DatastreamError, match=r"file='a\.avro'"):
            read(bytes(changed))


def test_a_file_of_which_only_the_first_bytes_are_there_is_cut_short():
    """It is one that is being written, and is read once it is whole."""
    for first in (b"O", b"Ob", b"Obj", b"\x1f", b"\x1f\x8b", b"\x1f\x8b\x08"):
        with pytest.raises(FileCutShort):
            read(first)
    for data in (b"", gzip.compress(b"", mtime=0)):
        with pytest.raises(FileCutShort, match="empty"):
            read(data)


@pytest.mark.parametrize("data", [b"PAR1....", b"id,name\n1,x\n", b"<xml/>"])
def test_another_format_is_named(data):
    with pytest.raises(FileDamaged, match="neither Avro nor JSON"):
        read(data)


def avro_without(*names, **changed):
    schema = schema_of("mysql")
    schema["fields"] = [
        {**field, **changed.get(field["name"], {})}
        for field in schema["fields"]
        if field["name"] not in names
    ]
    out = BytesIO()
    fastavro.writer(out, fastavro.parse_schema(schema), [])
    return out.getvalue()


@pytest.mark.rule("datastream-needed-fields")
def test_a_schema_of_another_writer_is_refused_before_any_record():
    with pytest.raises(WrongSchema, match=r"no field read_method, payload.*record=0"):
        read(avro_without("read_method", "payload"))
    with pytest.raises(WrongSchema, match=r"field payload .* not a record"):
        read(avro_without(payload={"type": "string"}))
    out = BytesIO()
    fastavro.writer(out, fastavro.parse_schema({"type": "map", "values": "int"}), [])
    with pytest.raises(WrongSchema, match="not a record"):
        read(out.getvalue())
    read(avro_without("sort_keys", "schema_key"))


@pytest.fixture(scope="module")
def real():
    """The events of real files, by the end of the file's name."""
    if not REAL.is_dir():
        pytest.skip(f"no files of Datastream: {REAL} does not exist (TIDEGATE_DATASTREAM_FILES)")
    files = {}
    for path in sorted(REAL.glob("*.avro")):
        file = EventFile(path.name, BytesIO(path.read_bytes()))
        files[path.stem.partition("__")[2]] = (file.fields, list(file))
    return files


@pytest.mark.rule("datastream-equal-positions")
def test_real_files_are_read_in_order(real):
    events = {name: read_events for name, (_, read_events) in real.items()}
    assert {name: len(read_events) for name, read_events in events.items()} == {
        "mysql-backfill-AllDatatypeColumns": 2, "mysql-cdc1-AllDatatypeColumns": 1,
        "mysql-cdc-Users": 4, "Books": 3, "DateData": 2, "avro_file_ut": 23, "bytearray": 1,
        "mysql_people_test": 1, "alltypes-test-3-inserts": 3, "alltypes-test-pk-update": 2,
        "alltypes-test-update-delete": 2,
    }  # fmt: skip
    kinds = Counter(event.read_method.kind for rows in events.values() for event in rows)
    assert kinds == {ReadKind.CDC: 16, ReadKind.BACKFILL: 28}
    moved = events["alltypes-test-pk-update"]
    in_order = [
        *events["alltypes-test-3-inserts"], *events["alltypes-test-update-delete"], *moved,
    ]  # fmt: skip
    assert sorted(in_order, key=lambda event: (event.order_key, event.position)) == in_order
    assert min(event.order_key for event in in_order) > events["DateData"][0].order_key
    # An update of a key is two events at one position.
    removed, added = moved
    types = [ChangeType.UPDATE_DELETE, ChangeType.UPDATE_INSERT]
    assert [removed.change_type, added.change_type] == types
    assert removed.source_timestamp_us < added.source_timestamp_us
    assert removed.metadata.log_position == added.metadata.log_position
    assert removed.order_key < added.order_key
    assert removed.key != added.key
    # Rows without a primary key.
    assert {event.key for event in events["Books"]} == {None}
    assert len({event.order_key for event in events["Books"]}) == 1


def test_types_and_names_of_real_files(real):
    for file, column, expected in (
        ("mysql-cdc1-AllDatatypeColumns", "decimal_column", "DECIMAL(10,2)"),
        ("mysql-cdc1-AllDatatypeColumns", "time_column", "TIME INTERVAL"),
        ("bytearray", "integer_array_field", "ARRAY<INTEGER>"),
        ("bytearray", "jsonb_column", "ARRAY<JSON>"),
        ("avro_file_ut", "POSTAL_CODE", "VARCHAR"),
        ("avro_file_ut", "timestamp_with_tz", "TIMESTAMP WITH TIMEZONE"),
        ("avro_file_ut", "update_timestamp_micros", "TIMESTAMP"),
    ):
        assert {field.name: field.type for field in real[file][0]}[column] == expected
    for file, path in (
        ("bytearray", ("public", "source_table")),
        ("avro_file_ut", ("XE", "HR", "LOCATIONS")),
        ("alltypes-test-3-inserts", ("ea-main", "alltypes")),
    ):
        assert real[file][1][0].metadata.path == path


def read_all(location):
    store = LocalStore()
    for folder in object_folders(store, str(location)):
        for file in all_files(store, folder):
            with store.open(file.path) as stream:
                yield from EventFile(file.path, stream)


@pytest.mark.rule("datastream-rows-without-key", "datastream-row-history")
@pytest.mark.rule("datastream-arrival", "datastream-copies")
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("form", ["avro", "jsonl", "jsonl.gz"])
@given(seed=st.integers(0, 2**32))
@settings(max_examples=8, deadline=None)
def test_sorted_and_without_copies_it_is_the_sources_history(tmp_path_factory, source, form, seed):
    rng = random.Random(seed)
    table = drawn_table(source, rng, changes=40, rows=6)
    folder = tmp_path_factory.mktemp("stream")
    write_stream(folder, source, delivered(table.changes, table.backfill, rng), form=form)
    events = {event.uuid: event for event in read_all(folder)}
    in_order = sorted(events.values(), key=lambda event: (event.order_key, event.position))
    later = [event for event in in_order if event.order_key != BACKFILL_KEY]
    read = {event.uuid for event in in_order[: len(table.backfill)]}
    assert read == {event["uuid"] for event in table.backfill}
    places = [table.places[event.uuid] for event in later]
    assert places == sorted(places)
    assert len(places) == len(table.changes)
    assert of_keys((event.payload["id"], event.uuid) for event in later) == of_keys(
        (change["payload"]["id"], change["uuid"]) for change in table.changes
    )
    rows = {}
    for one in in_order:
        rows.pop(one.payload["id"], None)
        if not one.is_deleted:
            rows[one.payload["id"]] = content(one.payload)
    assert rows == {key: content(row) for key, row in table.rows.items()}
    assert {event.key is not None for event in in_order} == {table.clauses.has_key}


def of_keys(pairs):
    uuids_of_key = defaultdict(list)
    for key, uuid in pairs:
        uuids_of_key[key].append(uuid)
    return uuids_of_key


def content(row):
    return row["note"], row.get(ADDED_COLUMN)


@pytest.mark.parametrize("source", SOURCES)
def test_tables_of_the_generator_meet_the_clauses_of_the_documentation(source):
    met, key_fields = Counter(), set()
    for seed in range(40):
        table = drawn_table(source, random.Random(seed), changes=40, rows=6)
        met += table.met
        key_fields |= {field for field, key in table.clauses.key_fields.items() if key}
    expected = {"column added", "without a key", "fields in another order"}
    if source != "salesforce":
        expected |= {"key updated", "reverse operations"}
    expected |= {
        "mysql": {"rows that follow each other"},
        "oracle": {"supplementation", "oracle-supplementation"},
        "postgresql": {"postgres-cdc-wal", "postgresql-cdc"},
    }.get(source, set())
    assert set(met) - {"no other method"} == expected
    assert key_fields == {"primary_keys", *(["replication_index"] if source == "sqlserver" else [])}
