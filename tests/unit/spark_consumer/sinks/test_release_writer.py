"""Publishing a release: its manifest, every sink in turn, and rows decoded one by one."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.simulation.object_store import ObjectStore, StoreClient
from tests.topics import ROWS_SCHEMA, Change, Topic
from tests.unit.spark_consumer.sinks.memory_files import MemoryFiles
from tidegate.schemas.errors import InvariantViolation, SchemaError
from tidegate.schemas.progress import PartitionGap
from tidegate.spark_consumer.core.plan import MergeMirror
from tidegate.spark_consumer.errors import CheckpointMismatch, CountsMissing, UndecodableRecord
from tidegate.spark_consumer.sinks import manifest as module
from tidegate.spark_consumer.sinks.decoding import CHANGE_COLUMNS
from tidegate.spark_consumer.sinks.manifest import (
    Manifest,
    drop_manifests,
    first_manifest,
    newest_manifest,
    read_manifest,
    write_manifest,
)
from tidegate.spark_consumer.sinks.port import Release, TableVersion
from tidegate.spark_consumer.sinks.release_writer import (
    merge_mirrors,
    merging_sinks,
    write_release,
)
from tidegate.spark_consumer.sinks.row_decoding import decode_rows, find_undecodable
from tidegate.spark_consumer.sinks.sql import NOT_COMPILED, for_rows, observed, session_settings

NAMES = [column.split()[0] for column in ROWS_SCHEMA.split(", ")]
COLUMNS = {"id": "INT64", "a": "STRING(MAX)", "at": "TIMESTAMP", "u": "UUID"}


# ---------------------------------------------------------------- manifests
def manifest(number, through_us):
    tables = {
        "accounts": {
            "changelog": TableVersion("changelog/accounts", number + 1, 10),
            "mirror": TableVersion("mirror/accounts", number),
        }
    }
    return Manifest(number, "q", number, through_us - 10, through_us, 10, tables)


def published(releases):
    files = MemoryFiles()
    for number in releases:
        write_manifest(files, manifest(number, 100 * (number + 1)))
    return files


def found_at(files, release):
    newest = newest_manifest(files, watermark_us=100 * (release + 1))
    return None if newest is None else newest.release


def test_a_manifest_is_read_as_it_was_written():
    files = MemoryFiles()
    write_manifest(files, manifest(3, 50))
    assert read_manifest(files, 3) == manifest(3, 50)
    assert read_manifest(files, 4) is None
    assert list(files.content) == ["_releases/000000000003.json"]
    assert files.read_json("_releases/000000000003.json") == {
        "release": 3, "query_id": "q", "batch": 3, "after_us": 40, "through_us": 50, "rows": 10,
        "tables": {
            "accounts": {
                "changelog": {"path": "changelog/accounts", "version": 4, "rows": 10},
                "mirror": {"path": "mirror/accounts", "version": 3},
            }
        },
    }  # fmt: skip


LEFT_OUT = TableVersion("mirror/a", 3, left_out=("column b", "exclude_delete"))
GAP = PartitionGap("t", 42, 45, "ops", 60)


def test_what_a_release_lacks_is_in_its_manifest_and_nothing_where_it_is_whole():
    gap = {"token": "t", "from_us": 42, "until_us": 45, "accepted_by": "ops", "accepted_us": 60}
    mirror = {"path": "mirror/a", "version": 3, "left_out": ["column b", "exclude_delete"]}
    fault = {"fault": "few"}
    for fields, content in (
        ({"mismatches": 7, "first_mismatches": (fault,)}, {"first_mismatches": [fault]}),
        ({"gaps": (GAP,)}, {"gaps": [gap]}),
        ({"tables": {"a": {"mirror": LEFT_OUT}}}, {"tables": {"a": {"mirror": mirror}}}),
    ):
        files = MemoryFiles()
        lacking = replace(manifest(3, 50), **fields)
        write_manifest(files, lacking)
        assert read_manifest(files, 3) == lacking
        more = {"mismatches": 7} if "mismatches" in fields else {}
        assert lacking.content() == manifest(3, 50).content() | content | more


@pytest.mark.parametrize("releases", [1, 7, 64])
def test_the_newest_release_at_a_time_is_found_in_few_reads(releases):
    files = published(range(releases))
    files.write_json("_releases/notes.txt", {})
    assert newest_manifest(files, watermark_us=99) is None
    for number in range(releases):
        for time_us in (100 * (number + 1), 100 * (number + 1) + 99):
            files.reads = 0
            newest = newest_manifest(files, watermark_us=time_us)
            assert newest == manifest(number, 100 * (number + 1))
            assert files.reads <= 2 * releases.bit_length() + 6
    assert files.lists == 0
    # Where the first ones are gone it is found in a list.
    files = published(range(5, 12))
    assert [found_at(files, n) for n in range(4, 13)] == [None, *range(5, 12), 11]


@pytest.mark.parametrize("damage", ["{}", '{"release": 1, "tables": []}', None, "other mirrors"])
def test_a_restored_folder_of_manifests_is_read_as_it_was(damage):
    files = published(range(5))
    kept = dict(files.content)
    if damage == "other mirrors":
        content = json.loads(files.content["_releases/000000000004.json"])
        content["tables"]["t"] = {"mirror": {"path": "mirror/t", "version": 1, "release": 2}}
        files.write_json("_releases/000000000004.json", content)
    else:
        files.content = {} if damage is None else dict.fromkeys(kept, damage)
    if damage is None:
        assert newest_manifest(files, watermark_us=10**18) is None
    else:
        with pytest.raises(SchemaError, match="Restore the output's _releases folder"):
            assert newest_manifest(files, watermark_us=10**18).mirror_release
        with pytest.raises(SchemaError, match="manifest"):
            Manifest.of({"tables": {"t": {"m": {}}}})
    files.content = kept
    newest = newest_manifest(files, watermark_us=10**18)
    assert (newest, newest.mirror_release) == (manifest(4, 500), 4)


def kept(files):
    return [int(name[-17:-5]) for name in sorted(files.content) if name.endswith(".json")]


def test_dropped_manifests_are_gone_and_the_others_are_found_without_a_list(monkeypatch):
    files = published(range(70))
    for before in (7, 30, 30, 64):
        drop_manifests(files, before=before)
        assert kept(files) == list(range(before, 70))
        assert first_manifest(files) == before
        assert [found_at(files, n) for n in range(before - 1, 70)] == [None, *range(before, 70)]
    assert files.lists == 0
    # Many are dropped in several turns.
    monkeypatch.setattr(module, "DROPPED_AT_ONCE", 10)
    files = published(range(50))
    for first in (10, 20, 30, 33, 33):
        drop_manifests(files, before=33)
        assert kept(files)[0] == first_manifest(files) == first


class Killed(Exception):
    pass


class Dying(MemoryFiles):
    """Dies before one of its changes."""

    def __init__(self, content, dies_at):
        super().__init__()
        self.content, self._left = content, dies_at

    def _step(self):
        self._left -= 1
        if self._left == 0:
            raise Killed

    def write_json(self, name, content):
        self._step()
        super().write_json(name, content)

    def delete(self, names):
        for name in names:
            self._step()
            super().delete([name])


@pytest.mark.parametrize("dies_at", range(1, 12))
def test_a_kill_at_any_step_leaves_what_is_kept_and_a_replay_ends_it(dies_at):
    files = published(range(20))
    drop_manifests(files, before=5)
    with pytest.raises(Killed):
        drop_manifests(Dying(files.content, dies_at), before=15)
    assert [found_at(files, n) for n in range(15, 20)] == list(range(15, 20))
    drop_manifests(files, before=15)
    assert kept(files) == list(range(15, 20))


def test_a_search_during_which_manifests_are_dropped_is_repeated():
    class Overtaken(MemoryFiles):
        """A reader before whose third look at a manifest those below 60 are dropped."""

        def read_json(self, name):
            content = super().read_json(name)
            if self.reads == 3:
                drop_manifests(self, before=60)
            return content

    files = Overtaken()
    files.content = published(range(64)).content
    assert newest_manifest(files, watermark_us=10**18).release == 63
    assert kept(files) == list(range(60, 64))


# ---------------------------------------------------------------- the steps of a release
RELEASE = Release(
    number=3, after_us=10, through_us=20, query_id="q", batch=7, rows=5, tables={}, copies=2
)


class Sink:
    def __init__(self, name, events):
        self.name = name
        self._events = events

    def open(self, *, query_id, release_max):
        pass

    def write(self, release):
        self._events.append(f"{self.name} wrote {release.number}")
        return {"accounts": TableVersion(f"{self.name}/accounts", 4)}


@pytest.fixture
def output():
    client = StoreClient(ObjectStore(), "output", None)
    client.take()
    return client


def test_each_sink_writes_with_the_settings_of_its_session(output):
    events = []

    @contextmanager
    def settings_of(sink):
        events.append(f"settings of {sink.name}")
        yield
        events.append("put back")

    sinks = [Sink("changelog", events), Sink("function", events)]
    list(write_release(RELEASE, sinks=sinks, output=output, settings_of=settings_of))
    assert events == [
        "settings of changelog", "changelog wrote 3", "put back",
        "settings of function", "function wrote 3", "put back",
    ]  # fmt: skip
    conf = type("Conf", (dict,), {"set": dict.__setitem__, "unset": dict.__delitem__})(kept="1")
    with session_settings(SimpleNamespace(conf=conf), {"kept": "2", "new": "3"}):
        assert dict(conf) == {"kept": "2", "new": "3"}
    assert dict(conf) == {"kept": "1"}
    # Statements over a few rows are not compiled.
    assert for_rows(0) == for_rows(1_000) == NOT_COMPILED
    assert for_rows(1_001) == {}


@pytest.mark.rule("sink-manifest")
@pytest.mark.parametrize("complete_from_us", [None, 15])
def test_a_release_has_no_manifest_before_all_sinks_have_it(output, complete_from_us):
    events = []
    sinks = [Sink("changelog", events), Sink("mirror", events)]
    steps = write_release(RELEASE, sinks=sinks, output=output, complete_from_us=complete_from_us)
    for step in steps:
        events.append(step)
        assert read_manifest(output, 3) is None
    assert events == [
        "sink-changelog", "changelog wrote 3", "sink-mirror", "mirror wrote 3", "manifest",
    ]  # fmt: skip
    written = read_manifest(output, 3)
    assert (written.batch, written.after_us, written.through_us, written.rows) == (7, 10, 20, 5)
    assert (written.copies, written.complete_from_us) == (2, complete_from_us)
    assert written.tables == {
        "accounts": {
            "changelog": TableVersion("changelog/accounts", 4),
            "mirror": TableVersion("mirror/accounts", 4),
        }
    }


class Mirror(Sink):
    def merge(self, merge):
        self._events.append(f"{self.name} merged {merge.after}..{merge.through}")
        return {"accounts": TableVersion(f"{self.name}/accounts", merge.through + 10)}

    def versions(self, release, tables):
        names = [table.table for table in tables]
        self._events.append(f"{self.name} has {release} of {names}")
        return {name: TableVersion(f"{self.name}/{name}", release + 10) for name in names}


def test_a_mirror_that_joins_takes_everything_and_the_others_what_they_lack(output):
    events = []
    mirror, history = Mirror("mirror", events), Mirror("history", events)
    list(write_release(RELEASE, sinks=[Sink("changelog", [])], output=output))
    topics = {name: SimpleNamespace(table=name) for name in ("accounts", "later")}
    merge = {"plan": SimpleNamespace(query_id="q", batch=8), "topics": topics, "output": output}

    step = MergeMirror(1, 3, joining=("history",))
    steps = list(merge_mirrors(step, mirrors=[mirror, history], **merge))
    assert steps == ["sink-mirror", "sink-history", "manifest"]
    assert events == ["mirror merged 1..3", "history merged -1..3"]

    events.clear()  # the others stand there already
    step = MergeMirror(3, 3, joining=("history",))
    list(merge_mirrors(step, mirrors=[mirror, history], **merge))
    assert events == ["mirror has 3 of ['accounts']", "history merged -1..3"]

    written = read_manifest(output, 3)
    assert written.mirror_release == 3
    assert written.versions("mirror") == written.versions("history") == {"accounts": 13}
    assert written.versions("changelog") == {"accounts": 4}


def test_mirrors_of_a_plan_are_found_by_name_and_merge_a_release_with_a_manifest(output):
    mirror, history, changelog = Mirror("mirror", []), Mirror("history", []), Sink("changelog", [])
    sinks = [changelog, mirror, history]
    assert merging_sinks(sinks, ("changelog", "mirror", "history")) == [mirror, history]
    assert merging_sinks(sinks, ("changelog", "mirror")) == [mirror]
    for some, names in ((sinks, ()), ([changelog, Sink("mirror", [])], ("mirror",))):
        with pytest.raises(InvariantViolation, match="several releases"):
            merging_sinks(some, ("changelog", *names))
    merge = {"plan": SimpleNamespace(query_id="q", batch=8), "topics": {}, "output": output}
    with pytest.raises(CheckpointMismatch, match="no manifest"):
        list(merge_mirrors(MergeMirror(1, 3), mirrors=[mirror], **merge))


class Spark:
    """An observation whose counts arrive at a time, and the clock beside it."""

    def __init__(self, arrives_at_s):
        self.arrives_at_s = arrives_at_s
        self.now_s = 100.0
        self._jo = SimpleNamespace(future=lambda: self)
        self.get = {"rows": 7}

    def isCompleted(self):  # noqa: N802 - Scala's name
        return self.now_s >= self.arrives_at_s

    def clock(self):
        return self.now_s

    def sleep(self, seconds):
        self.now_s += max(seconds, 1)


def test_counts_that_arrive_late_are_waited_for_and_those_that_never_come_end_the_run():
    for arrives_at_s in (0, 103, 159):
        spark = Spark(arrives_at_s)
        assert observed(spark, clock=spark.clock, sleep=spark.sleep) == {"rows": 7}
    spark = Spark(float("inf"))
    with pytest.raises(CountsMissing, match="has not reported"):
        observed(spark, clock=spark.clock, sleep=spark.sleep)
    assert spark.now_s == 160


# ---------------------------------------------------------------- rows decoded one by one
@pytest.fixture
def topic():
    return Topic("t", {1: COLUMNS, 2: COLUMNS | {"b": "INT64"}}, ["id"])


def row(topic, change, **replaced):
    return dict(zip(NAMES, topic.row(change, ordinal=0), strict=True)) | replaced


def decoded(topic, *rows):
    return decode_rows(rows, topic.topic_schemas(), release=7)


def test_values_are_the_numbers_that_avro_stores(topic):
    kafka_row = row(topic, Change("INSERT", {"id": 1}, {"a": "x"}, us=5))
    without_value = row(topic, Change("DELETE", {"id": 1}), value=None)
    assert decoded(topic, without_value) == []
    (change,) = decoded(topic, kafka_row, without_value)
    assert tuple(change) == CHANGE_COLUMNS
    assert change["value_bytes"] == len(kafka_row["value"])
    assert (change["release"], change["commit_timestamp"], change["key"]) == (7, 5, {"id": 1})
    assert change["new_values"] == {"id": 1, "a": "x", "at": None, "u": None, "b": None}


def test_all_columns_of_an_older_writer_are_spelled_out(topic):
    every = dict.fromkeys(["a", "at", "u"])
    (older,) = decoded(topic, row(topic, Change("INSERT", {"id": 1}, every, value_id=1)))
    (newer,) = decoded(topic, row(topic, Change("INSERT", {"id": 1}, every | {"b": 1})))
    (deleted,) = decoded(topic, row(topic, Change("DELETE", {"id": 1}, None, value_id=1)))
    assert older["new_columns"] == ["id", "a", "at", "u"]
    assert (newer["new_columns"], deleted["new_columns"]) == (None, None)


def test_the_stream_partition_of_an_older_value_is_the_hash_of_its_token(topic):
    change = Change("DELETE", {"id": 1}, None, is_older=True)
    (change_row,) = decoded(topic, row(topic, change))
    assert change_row["origin"] == change.origin
    unnamed = Change("DELETE", {"id": 1}, None, is_older=True, token="")
    with pytest.raises(SchemaError, match="no stream partition"):
        decoded(topic, row(topic, unnamed))


def test_a_schema_id_that_the_plan_lacks_is_named(topic):
    for hidden in (2, 100):
        topic.hidden_ids = {hidden}
        with pytest.raises(SchemaError, match=rf"plan does not name.*{hidden}"):
            decoded(topic, row(topic, Change("INSERT", {"id": 1}, {"a": "x"})))


def test_bytes_that_do_not_fit_their_schema_are_named(topic):
    good = row(topic, Change("INSERT", {"id": 1}, {"a": "x"}))
    for end in (6, 8, 20, -1):
        with pytest.raises(SchemaError, match=r"does not fit.*offset=1"):
            decoded(topic, good | {"value": good["value"][:end]})
    headless = good | {"value": b"\x01abc"}
    with pytest.raises(SchemaError, match=r"does not begin with a schema id.*offset=1"):
        decoded(topic, headless)
    # As Spark's check does, the key comes first.
    with pytest.raises(SchemaError, match="a key does not begin with a schema id"):
        decoded(topic, headless | {"key": b"\x01abc"})
    # The rows that are refused are found, and no other.
    faulty = [headless | {"offset": 2}, good | {"offset": 3, "origin": None}]
    undecodable = find_undecodable([good, *faulty, good | {"value": None}], topic.topic_schemas())
    assert [(bad_row["offset"], type(error)) for bad_row, error in undecodable] == [
        (2, UndecodableRecord), (3, UndecodableRecord),
    ]  # fmt: skip
