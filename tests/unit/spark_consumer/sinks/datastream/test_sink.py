"""Files in Datastream's layout: in order, once, the same whatever dies."""

from __future__ import annotations

from io import BytesIO

import pytest

from tests.datastream_output import (
    STREAM,
    Killed,
    MemoryOutput,
    event_files,
    release_of,
    sink_of,
)
from tests.topics import Change, Topic
from tidegate.producer.datastream.event_file import EventFile
from tidegate.schemas.errors import ConfigError, InvariantViolation
from tidegate.spark_consumer.errors import UndecodableRecord
from tidegate.spark_consumer.sinks.datastream.file_bytes import FileFormat
from tidegate.spark_consumer.sinks.port import TableVersion

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
    one = sink_of(output, form=form, rows_max=3, bytes_max=700)
    for release in releases:
        one.write(release)


def events(output, table):
    """Return the commit times of a table's events, file by file, by path."""
    return [
        [one.metadata.commit_timestamp for one in EventFile(path, BytesIO(data))]
        for path, data in sorted(event_files(output).items())
        if path.startswith(f"datastream_files/{table}/")
    ]


@pytest.mark.rule("sink-datastream-files")
@pytest.mark.parametrize("form", FileFormat)
def test_files_have_datastreams_layout_and_are_in_commit_order(topics, form):
    output = MemoryOutput()
    one = sink_of(output, form=form, rows_max=3)
    assert one.write(release_of(7, changes(topics, range(20, 0, -1)))) == {
        "shop.a": TableVersion(f"datastream_files/shop.a/{FOLDER}", 7, 10),
        "b": TableVersion(f"datastream_files/b/{FOLDER}", 7, 10),
    }
    assert one.write(release_of(8, [], topics=topics)) == {}
    one.write(release_of(9, changes(topics, range(22, 26, 2)), topics=topics))
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
        known = set(event_files(output))
        begun = len(output.names("_datastream_files"))
        # What was begun keeps its minute and settings; what was not begins with those of now.
        again = sink_of(output, form=form, rows_max=3, bytes_max=700)
        other = sink_of(output, form=FileFormat.JSON, rows_max=1, bytes_max=1, minute=MINUTE + 5)
        for release in releases:
            (other if release.number < begun else again).write(release)
        assert event_files(output) == expected
        assert len(output.writes) == len(set(output.writes))
        assert known <= set(expected)


def test_a_release_that_is_written_already_writes_nothing(topics):
    output = MemoryOutput()
    release = release_of(0, changes(topics, range(1, 9)))
    written = sink_of(output, rows_max=2).write(release)
    output.writes.clear()
    assert sink_of(output, rows_max=2, minute=MINUTE + 100).write(release) == written
    assert output.writes == []


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


def test_a_stream_that_is_not_one_of_spanner_is_refused_before_anything_is_written(topics):
    output = MemoryOutput()
    with pytest.raises(ConfigError, match=r"needs the changes of a change stream.*datastream/gs"):
        sink_of(output, stream="datastream/gs://b/p").write(release_of(0, changes(topics, [2])))
    assert output.files == {}
    assert STREAM.startswith("projects/")


def test_a_release_that_lacks_records_or_has_them_out_of_order_is_refused(topics):
    release = release_of(0, changes(topics, range(1, 5)))
    records = list(release.source_records())
    for wrong, what in ((records[:-1], "not as many"), (records[::-1], "not in commit order")):
        object.__setattr__(release, "source_records", lambda wrong=wrong: iter(wrong))
        with pytest.raises(InvariantViolation, match=what):
            sink_of(MemoryOutput()).write(release)


def test_a_record_that_cannot_be_decoded_ends_the_release(topics):
    release = release_of(0, changes(topics, range(1, 5)))
    first, *rest = release.source_records()
    cut = [first._replace(value=first.value[:9]), *rest]
    object.__setattr__(release, "source_records", lambda: iter(cut))
    with pytest.raises(UndecodableRecord, match="does not fit the schema"):
        sink_of(MemoryOutput()).write(release)
