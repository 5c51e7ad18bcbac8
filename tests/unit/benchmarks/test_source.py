"""The Spanner of the benchmark answers as a worker expects it."""

from __future__ import annotations

import pytest
from google.cloud.spanner_v1.types import ReadRequest

from benchmarks.producer.memory_fleet import table_encoding
from benchmarks.producer.responses import LARGE_BYTES, START_NS, STREAM, TABLE, Case, Fault
from benchmarks.producer.source import SourceProcess
from benchmarks.producer.table_rows import key_text, table_responses
from tests.reading import received
from tidegate.producer.backfill.read_partition import KeyRanges, read_partitions
from tidegate.producer.description import GOOGLE_SQL, IMMUTABLE_KEY_RANGE
from tidegate.producer.errors import TableChanged
from tidegate.producer.records import ChildPartitionsRecord, DataChangeRecord, HeartbeatRecord
from tidegate.producer.spanner.catalogue import SpannerCatalogue
from tidegate.producer.spanner.channel import SpannerChannels
from tidegate.producer.spanner.forms import form_of
from tidegate.producer.spanner.stream import SpannerChangeStream
from tidegate.producer.spanner.table_rows import KeysDecoder, RowsDecoder
from tidegate.producer.translation.translator import Translator
from tidegate.schemas.errors import SchemaError

TOKEN = "token-0-0123456789abcdef"


@pytest.fixture
def case():
    return Case(2, 5)


@pytest.fixture
def source(case):
    process = SourceProcess(case, changes=100, stream_partitions=1)
    yield process
    process.close()


@pytest.fixture
def channels(source):
    opened = SpannerChannels(
        database="projects/p/instances/i/databases/d", emulator_host=source.address
    )
    yield opened
    opened.close()


def query_of(channels, token, start_ns):
    stream = SpannerChangeStream(channels, form_of(GOOGLE_SQL, IMMUTABLE_KEY_RANGE, STREAM))
    return stream.query(token=token, start_ns=start_ns, end_ns=None, heartbeat_ms=1_000)


def begun(channels, token, tasks, *, start_ns=START_NS):
    """A query whose first response, the metadata, has come."""
    responses = received(query_of(channels, token, start_ns), tasks)
    assert next(responses).decode()[0] == []
    return (record for response in responses for record in response.decode()[0])


def test_the_catalogue_has_the_stream_and_its_query_the_stream_partitions(channels, tasks):
    described = SpannerCatalogue(channels).describe(STREAM)
    assert described.exists
    assert (described.tables, described.faults()) == ((TABLE,), [])
    query = query_of(channels, "", START_NS)
    ((children,),) = [response.decode()[0] for response in received(query, tasks)]
    assert isinstance(children, ChildPartitionsRecord)
    assert [child.token for child in children.children] == [TOKEN]


def test_what_is_released_comes_in_order_and_then_heartbeats(source, channels, tasks):
    items = begun(channels, TOKEN, tasks)
    assert [source.ask("release", 0.5), source.ask("release", 0.5)] == ["1", "1"]
    records = [next(items) for _ in range(20)]
    times = [record.commit_timestamp_ns for record in records]
    assert sum(len(record.mods) for record in records) == 100
    assert times == sorted(set(times))
    assert next(items) == HeartbeatRecord(times[-1])


def test_a_stream_partition_splits(source, channels, tasks):
    items = begun(channels, TOKEN, tasks)
    source.ask("split")
    (children,) = [item for item in items if not isinstance(item, HeartbeatRecord)]
    (child,) = children.children
    change = next(begun(channels, child.token, tasks))
    assert child.parents == (TOKEN,)
    assert isinstance(change, DataChangeRecord)
    assert change.commit_timestamp_ns == child.start_ns // 1_000 * 1_000


@pytest.mark.parametrize("case", [Case(1, 1), Case(2, 5)])
def test_a_query_that_begins_again_has_what_was_released_from_its_start_on(
    source, channels, tasks, case
):
    first = begun(channels, TOKEN, tasks)
    source.ask("release", 0.5)
    released = 100 // case.mods // 2
    times = [next(first).commit_timestamp_ns for _ in range(released)]
    again = begun(channels, TOKEN, tasks, start_ns=times[-1])
    repeated = [item for item in found_until(again, 1) if isinstance(item, DataChangeRecord)]
    source.ask("release", 0.5)
    new = [record.commit_timestamp_ns for record in found_until(again, released + case.rows - 1)
           if isinstance(record, DataChangeRecord)]  # fmt: skip
    # A message of several rows comes whole.
    assert times[-case.rows] <= repeated[0].commit_timestamp_ns <= times[-1]
    assert new[-1] == times[-1] + (times[1] - times[0]) * released


@pytest.mark.parametrize("fault", Fault)
def test_every_nth_change_is_of_a_key_that_cannot_be_published(source, channels, tasks, fault):
    items = begun(channels, TOKEN, tasks)
    source.ask("pace", 5_000, 0.05, 2, fault)
    records = [item for item in found_until(items, 250) if isinstance(item, DataChangeRecord)]
    poison = records[::2]
    assert [int(record.mods[0].keys["Id"]) for record in poison] == [
        *range(-1, -101, -1), *range(-1, -26, -1),
    ]  # fmt: skip
    assert [has_fault(record, fault) for record in poison] == [True] * 100 + [False] * 25
    others = records[1::2]
    assert all(int(record.mods[0].keys["Id"]) > 0 for record in others)
    assert not any(has_fault(record, fault) for record in others)


def has_fault(record, fault):
    """Whether the translation has to refuse the change, and for this."""
    translator = Translator({TABLE.name: table_encoding()}, change_stream=STREAM)
    try:
        (message,) = translator.translate(record, token=TOKEN).messages
    except SchemaError:
        return fault == Fault.DAMAGED
    except TableChanged:
        return fault == Fault.REFUSED
    return fault == Fault.LARGE and message.size_bytes > LARGE_BYTES


def found_until(records, changes):
    """Yield records until so many changes have come."""
    while changes:
        record = next(records)
        changes -= isinstance(record, DataChangeRecord)
        yield record


ROWS = 9_003
NAMES = [column.name for column in TABLE.columns]


def request(columns, after=None, through=None):
    read = ReadRequest.pb()(table=TABLE.name, columns=columns)
    if after is None and through is None:
        read.key_set.all_ = True
        return read
    bounds = read.key_set.ranges.add()
    for target, key in ((bounds.start_open, after), (bounds.end_closed, through)):
        target.SetInParent()
        if key is not None:
            target.values.add(string_value=key[0])
    return read


def test_the_ranges_that_keys_are_cut_into_have_each_row_once():
    ranges = KeyRanges(rows_min=2_000)
    keys = KeysDecoder(ranges, width=1)
    for message in table_responses(request(["Id"]), ROWS):
        keys.decode(message)
    keys.end()
    mods = []
    for read_partition in read_partitions([(TABLE.name, ranges)]):
        rows = RowsDecoder(read_partition, TABLE.columns, read_ns=1_000)
        for message in table_responses(
            request(NAMES, read_partition.after, read_partition.through), ROWS
        ):
            mods += [mod for record in rows.decode(message) for mod in record.mods]
        rows.end()
    assert [mod.keys["Id"] for mod in mods] == [key_text(number) for number in range(ROWS)]
    assert all(mod.new_values.keys() == set(NAMES) - {"Id"} for mod in mods)
    assert len({mod.new_values["Updated"] for mod in mods}) == 16
    with pytest.raises(ValueError, match="the first column of a read is Owner"):
        next(table_responses(request(["Owner", "Id"]), 1))
