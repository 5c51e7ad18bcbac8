"""Files in Datastream's layout: in order, once, the same whatever dies; and what is in them."""

from __future__ import annotations

import gzip
import json
import math
from decimal import Decimal
from io import BytesIO

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.datastream_output import (
    Killed,
    MemoryOutput,
    event_files,
    release_of,
    sink_of,
)
from tests.topics import Change, Topic
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
    same,
)
from tidegate.producer.datastream.avro_container import AvroContainer
from tidegate.producer.datastream.event_file import EventFile
from tidegate.schemas.errors import ConfigError, InvariantViolation, SchemaError
from tidegate.schemas.output_form import Envelope, ValueFormat
from tidegate.spark_consumer.core.topic_schemas import TopicSchemas
from tidegate.spark_consumer.errors import CheckpointMismatch, UndecodableRecord
from tidegate.spark_consumer.sinks.files.datastream import KEPT, BegunReleases
from tidegate.spark_consumer.sinks.files.events import (
    EventEncoder,
    FileFormat,
    FileLimits,
    OpenFiles,
    avro_file,
    database_of,
    json_field,
    json_file,
)
from tidegate.spark_consumer.sinks.port import TableVersion
from tidegate.spark_consumer.sinks.row_decoding import RowDecoder

COLUMNS = {"id": "INT64", "note": "STRING(MAX)"}

MINUTE = 30_000_000

FOLDER = "2027/01/15/08/00"


@pytest.fixture
def topics():
    return [Topic("shop.a", {1: COLUMNS}, ["id"]), Topic("b", {2: COLUMNS}, ["id"], key_id=101)]


def changes(topics, times, *, wide=()):
    return [
        (topics[us % 2], Change("INSERT", {"id": us}, {"note": "x" * (700 if us in wide else 5)},
                                us=us))
        for us in times
    ]  # fmt: skip


def write_all(output, releases, form):
    sink = sink_of(output, form=form, rows_max=3, bytes_max=700)
    for release in releases:
        sink.write(release)


def events(output, table):
    """Return the commit times of a table's events, file by file, by path."""
    return [
        [event.metadata.commit_timestamp for event in EventFile(path, BytesIO(data))]
        for path, data in sorted(event_files(output).items())
        if path.startswith(f"datastream_files/{table}/")
    ]


@pytest.mark.rule("sink-datastream-files")
@pytest.mark.parametrize("form", FileFormat)
def test_files_have_datastreams_layout_and_are_in_commit_order(topics, form):
    output = MemoryOutput()
    sink = sink_of(output, form=form, rows_max=3)
    assert sink.write(release_of(7, changes(topics, range(20, 0, -1)))) == {
        "shop.a": TableVersion(f"datastream_files/shop.a/{FOLDER}", 7, 10),
        "b": TableVersion(f"datastream_files/b/{FOLDER}", 7, 10),
    }
    assert sink.write(release_of(8, [], topics=topics)) == {}
    sink.write(release_of(9, changes(topics, range(22, 26, 2)), topics=topics))
    assert sorted(event_files(output)) == [
        *(f"datastream_files/b/{FOLDER}/000000000007-0000{n}.{form.value}" for n in range(4)),
        *(f"datastream_files/shop.a/{FOLDER}/000000000007-0000{n}.{form.value}" for n in range(4)),
        f"datastream_files/shop.a/{FOLDER}/000000000009-00000.{form.value}",
    ]
    assert events(output, "shop.a") == [[2, 4, 6], [8, 10, 12], [14, 16, 18], [20], [22, 24]]
    assert events(output, "b") == [[1, 3, 5], [7, 9, 11], [13, 15, 17], [19]]


@pytest.mark.rule("sink-datastream-files")
@pytest.mark.parametrize("form", FileFormat)
def test_a_release_that_is_repeated_after_a_kill_at_any_step_writes_the_same_files(topics, form):
    """By another process, at another time, with other settings; no file changes afterwards."""
    releases = [
        release_of(0, changes(topics, range(1, 14), wide={4, 8})),
        release_of(1, changes(topics, range(14, 20))),
    ]
    whole = MemoryOutput()
    write_all(whole, releases, form)
    expected = event_files(whole)
    assert len(expected) == 8
    for step in range(whole.steps):
        output = MemoryOutput()
        output.dies_at = step
        with pytest.raises(Killed):
            write_all(output, releases, form)
        output.dies_at = None
        files_before = set(event_files(output))
        begun = len(output.names("_datastream_files"))
        # What was begun keeps its minute and settings; what was not begins with those of now.
        again = sink_of(output, form=form, rows_max=3, bytes_max=700)
        other = sink_of(output, form=FileFormat.JSON, rows_max=1, bytes_max=1, minute=MINUTE + 5)
        for release in releases:
            (other if release.number < begun else again).write(release)
        assert event_files(output) == expected
        assert len(output.writes) == len(set(output.writes))
        assert files_before <= set(expected)


@pytest.mark.rule("sink-datastream-files")
def test_of_two_runs_that_begin_a_release_at_once_both_write_the_same_files(topics):
    output = MemoryOutput()
    release = release_of(0, changes(topics, range(1, 9)))
    younger = sink_of(output, minute=MINUTE + 3, rows_max=2)

    def overtaken():
        output.before_creation = lambda: None
        younger.write(release)

    output.before_creation = overtaken
    sink_of(output, rows_max=3).write(release)
    assert len(output.writes) == len(set(output.writes)) == 4
    assert all("/2027/01/15/08/03/" in path for path in event_files(output))


@pytest.mark.rule("sink-datastream-files")
def test_a_clock_that_was_set_back_does_not_put_files_before_older_ones(topics):
    output = MemoryOutput()
    sink_of(output).write(release_of(0, changes(topics, [2])))
    sink_of(output, minute=MINUTE - 10).write(release_of(1, changes(topics, [4])))
    sink_of(output, minute=MINUTE + 1).write(release_of(2, changes(topics, [6])))
    assert events(output, "shop.a") == [[2], [4], [6]]
    assert [path.split("/")[-2] for path in sorted(event_files(output))] == ["00", "00", "01"]


def test_files_of_another_query_or_ahead_of_the_checkpoint_are_refused(topics):
    output = MemoryOutput()
    sink_of(output).write(release_of(4, changes(topics, [2])))
    sink_of(output, release_max=4)
    with pytest.raises(ConfigError, match=r"ahead of the checkpoint.*found=4, expected=3"):
        sink_of(output, release_max=3)
    with pytest.raises(ConfigError, match="belong to another query"):
        sink_of(output, query_id="query-2")
    # With the restored checkpoint of its query it goes on.
    sink_of(output, release_max=4).write(release_of(5, changes(topics, [4])))
    assert events(output, "shop.a") == [[2], [4]]


def test_a_release_with_records_that_do_not_belong_to_it_is_refused(topics):
    release = release_of(0, changes(topics, range(1, 5)))
    first, *rest = records = list(release.source_records())
    cut = first._replace(value=first.value[:9])
    for wrong, error, text in (
        (records[:-1], InvariantViolation, "not as many"),
        (records[::-1], InvariantViolation, "not in commit order"),
        ([cut, *rest], UndecodableRecord, "does not fit the schema"),
    ):
        object.__setattr__(release, "source_records", lambda wrong=wrong: iter(wrong))
        with pytest.raises(error, match=text):
            sink_of(MemoryOutput()).write(release)
    output = MemoryOutput()
    with pytest.raises(ConfigError, match=r"needs the changes of a change stream.*datastream/gs"):
        sink_of(output, stream="datastream/gs://b/p").write(release_of(0, changes(topics, [2])))
    assert output.files == {}


# ---------------------------------------------------------------- records of begun releases
SETTINGS = {"query_id": "q", "file_format": "avro", "rows_max": 5, "bytes_max": 9}


def records_of(output, at_s=120.0, release_max=5_000):
    records = BegunReleases(output, folder="_f", clock=lambda: at_s)
    records.open(query_id="q", release_max=release_max)
    return records


def test_a_release_keeps_what_it_was_begun_with():
    output = MemoryOutput()
    begun, was_begun = records_of(output).begin(3, **SETTINGS)
    assert (begun.minute, begun.rows_max, was_begun) == (2, 5, False)
    others = {**SETTINGS, "file_format": "jsonl", "rows_max": 7}
    assert records_of(output, at_s=999.0).begin(3, **others) == (begun, True)
    assert output.files["_f/000000000003.json"] == {
        "query_id": "q", "release": 3, "minute": 2, "format": "avro", "rows_max": 5, "bytes_max": 9,
    }  # fmt: skip
    records = records_of(output)
    other = BegunReleases(output, folder="_f", clock=lambda: 0.0)
    other.begin(4, **{**SETTINGS, "query_id": "other"})
    with pytest.raises(ConfigError, match="another query writes"):
        records.begin(4, **SETTINGS)
    output.files["_f/000000000005.json"] = {"release": 5}
    with pytest.raises(CheckpointMismatch, match=r"_f/000000000005\.json"):
        records_of(output)


def test_records_of_a_thousand_releases_are_kept():
    output = MemoryOutput()
    records = records_of(output)
    for number in (0, 1, 2, KEPT, KEPT + 1):
        records.begin(number, **SETTINGS)
        records.finish(number)
    assert output.names("_f") == [f"{n:012d}.json" for n in (2, KEPT, KEPT + 1)]
    records.begin(3 * KEPT, **SETTINGS)  # and none of the releases between has changes
    output.files["_f/notes.json"] = {}
    records_of(output)
    assert output.names("_f") == [f"{3 * KEPT:012d}.json", "notes.json"]


def test_records_do_not_stay_where_a_later_release_has_no_changes():
    output = MemoryOutput()
    records_of(output).begin(1, **SETTINGS)
    records = records_of(output)
    for number in (2, 3, KEPT + 5):  # releases KEPT + 1 to KEPT + 3 have no changes
        records.begin(number, **SETTINGS)
        records.finish(number)
    assert output.names("_f") == [f"{KEPT + 5:012d}.json"]


# ---------------------------------------------------------------- the ends of files
CHANGES = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 60)), max_size=60)


def files_of(changes, limits):
    files, ended = OpenFiles(limits), []
    for number, (topic, size) in enumerate(changes):
        ended += files.add(topic, str(number).encode(), value_bytes=size)
        assert sum(file.value_bytes for file in files._open.values()) <= 4 * limits.bytes_max
    return [*ended, *files.rest()]


@given(CHANGES, st.integers(1, 9), st.integers(1, 100), st.integers(0, 60))
def test_each_change_is_in_one_file_and_files_of_a_table_are_in_order(changes, rows, size, kept):
    limits = FileLimits(rows, size)
    written = files_of(changes, limits)
    for topic in "abc":
        own = [file for file in written if file.topic == topic]
        assert [file.number for file in own] == list(range(len(own)))
        records = [int(record) for file in own for record in file.records]
        assert records == [n for n, (name, _) in enumerate(changes) if name == topic]
    for file in written:
        sizes = [changes[int(record)][1] for record in file.records]
        assert 1 <= len(sizes) <= rows
        assert file.value_bytes == sum(sizes)
        assert sum(sizes[:-1]) < size
    # What follows does not move an end: a release that failed may go on with other records.
    files, ended = OpenFiles(limits), []
    for number, (topic, value_bytes) in enumerate(changes[:kept]):
        ended += files.add(topic, str(number).encode(), value_bytes=value_bytes)
    assert written[: len(ended)] == ended


def test_a_file_ends_with_the_change_that_reaches_a_limit():
    for size, count, expected in ((1, 7, [3, 3, 1]), (50, 5, [2, 2, 1])):
        files = files_of([("a", size)] * count, FileLimits(3, 100))
        assert [len(file.records) for file in files] == expected


# ---------------------------------------------------------------- bytes
FILE_SCHEMA = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "string"}]}


def avro_records(texts):
    containers = []
    for text in texts:
        buffer = BytesIO()
        fastavro.schemaless_writer(buffer, fastavro.parse_schema(FILE_SCHEMA), {"a": text})
        containers.append(buffer.getvalue())
    return containers


@pytest.mark.parametrize("texts", [[], ["x"], [f"{n}-{'y' * 999}" for n in range(200)]])
def test_an_avro_file_is_read_by_two_readers_and_is_the_same_each_time(texts):
    data, again, other = (avro_file(avro_records(texts), FILE_SCHEMA, name=name) for name in "nnm")
    assert [record["a"] for record in fastavro.reader(BytesIO(data))] == texts
    container = AvroContainer(BytesIO(data), "f")
    assert container.schema == FILE_SCHEMA
    assert [record["a"] for _, record in container] == texts
    reader = fastavro.block_reader(BytesIO(data))
    assert all(block.num_records <= 66 for block in reader)
    assert reader.codec == "null"
    # Its marker is that of its name.
    assert (data == again, data[-16:] == other[-16:]) == (True, False)


def test_json_lines_plain_and_with_gzip():
    lines = [b'{"a":1}\n', b'{"a":2}\n']
    plain = json_file(lines, is_compressed=False)
    assert plain == b'{"a":1}\n{"a":2}\n'
    packed = json_file(lines, is_compressed=True)
    assert gzip.decompress(packed) == plain
    assert packed == json_file(lines, is_compressed=True)
    assert packed[4:8] == bytes(4)  # no time of writing in it


# ---------------------------------------------------------------- events
VALUE = value_of(Envelope.TIDEGATE)

SCHEMAS = TopicSchemas(
    "t", KEY.schema, VALUE.schema, {1: KEY.schema, VALUE.schema_id: VALUE.schema}
)

OURS, PUBLISHED = (translator_of(envelope) for envelope in (Envelope.TIDEGATE, Envelope.DATASTREAM))

IN_JSON = translator_of(Envelope.DATASTREAM, ValueFormat.JSON)

ENCODER = EventEncoder(SCHEMAS, stream=FORM.stream_path)

RECORDS = st.builds(
    record, MODS, st.sampled_from(["INSERT", "UPDATE", "DELETE"]), st.integers(0, 2**53), SEQUENCES
)


def decoded_changes(one):
    """Return a record's changes as a sink decodes them."""
    decoder = RowDecoder(SCHEMAS, release=0)
    return [
        decoder.decoded(
            {
                "topic": message.topic, "topic_partition": 0, "offset": 0, "ordinal": 0,
                "key": message.key, "value": message.value, "order_key": message.order_key,
                "origin": 1,
            }
        )
        for message in OURS.translate(one, token="k").messages
    ]  # fmt: skip


def without_key(event):
    """JSON and PostgreSQL's numeric are other types in the payload, so that its key differs."""
    return {name: value for name, value in event.items() if name != "schema_key"}


def alike(got, meant):
    if isinstance(meant, dict):
        return got.keys() == meant.keys() and all(alike(got[name], meant[name]) for name in meant)
    return same(got, meant)


def exact(text):
    """Return what JSON says: `1e400` is no infinity."""
    return json.loads(text, parse_float=Decimal)


def close(got, meant):
    """One number of 32 bits may be written with more digits."""
    if isinstance(meant, list):
        return len(got) == len(meant) and all(map(close, got, meant))
    if isinstance(meant, str) or meant is None:
        return got == meant
    return math.isclose(float(got), float(meant), rel_tol=1e-6, abs_tol=1e-44)


@settings(max_examples=60)
@given(RECORDS)
def test_an_event_in_avro_is_the_published_event(one):
    schema = fastavro.parse_schema(ENCODER.schema)
    messages = PUBLISHED.translate(one, token="k").messages
    for change, message in zip(decoded_changes(one), messages, strict=True):
        event = fastavro.schemaless_reader(BytesIO(ENCODER.avro(change)), schema, None)
        published = read_event(message, Envelope.DATASTREAM)
        assert list(event) == list(published)
        assert alike(without_key(event), without_key(published))


@settings(max_examples=60)
@given(RECORDS)
def test_an_event_in_json_is_the_published_event(one):
    """But for columns of JSON, which are text here, and the digits of a FLOAT32."""
    messages = IN_JSON.translate(one, token="k").messages
    for change, message in zip(decoded_changes(one), messages, strict=True):
        line = ENCODER.json(change)
        assert (line[-2:], line.count(b"\n")) == (b"}\n", 1)
        event, published = exact(line), exact(message.value)
        row, meant = event.pop("payload"), published.pop("payload")
        assert without_key(event) == without_key(published)
        assert list(row) == list(meant)
        for name, value in meant.items():
            text = row[name]
            if name == "c_JSON" and text is not None:
                assert exact(text) == value
            elif name == "a_JSON" and text is not None:
                assert [
                    None if text_value is None else exact(text_value) for text_value in text
                ] == value
            elif "FLOAT32" in name:
                assert close(text, value)
            else:
                assert text == value, name


def test_an_event_is_named_after_its_object_and_database():
    def name_of(table):
        schemas = TopicSchemas(table, KEY.schema, VALUE.schema, {})
        return EventEncoder(schemas, stream=FORM.stream_path).schema["name"]

    assert [name_of(table_name) for table_name in ("shop.Items", "t", "9a")] == [
        "shop_Items",
        "t",
        "_9a",
    ]
    payload = ENCODER.schema["fields"][-1]
    assert payload["name"] == "payload"
    columns = [field["name"] for field in payload["type"]["fields"]]
    assert columns == [column.name for column in TABLE.columns]
    assert database_of(FORM.stream_path) == "d"
    for other in ("", "datastream/gs://bucket/path", "projects/p/databases/d"):
        with pytest.raises(ConfigError, match="change stream of Spanner"):
            database_of(other)
    with pytest.raises(SchemaError, match="no column has"):
        json_field({"type": "map", "values": "long"})
