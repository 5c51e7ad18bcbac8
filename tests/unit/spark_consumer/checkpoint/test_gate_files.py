"""A checkpoint's files: identity, states, plans and schemas over an object store in memory."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from random import Random
from unittest.mock import MagicMock

import pytest
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError

from tests.simulation.disturbance import Disturbance, GateProfile
from tests.simulation.object_store import ObjectStore, StoreClient
from tests.unit.spark_consumer.core.core_building import SUBSCRIPTION, opening
from tidegate.lineage.frontier import Frontier
from tidegate.schemas.change_schema import key_schema, value_schema
from tidegate.schemas.errors import ConfigError, SchemaError, UnreachableError
from tidegate.schemas.registry import InMemorySchemaRegistry
from tidegate.schemas.tables import Column, ColumnType, TableSchema
from tidegate.schemas.topics import TopicNames
from tidegate.spark_consumer.checkpoint.file_systems import is_missing_file_system
from tidegate.spark_consumer.checkpoint.gate_files import GateFiles, complete_from_us, newest_state
from tidegate.spark_consumer.checkpoint.json_files import LocalFolder, decoded
from tidegate.spark_consumer.checkpoint.offsets import parse_offset_log, read_offsets
from tidegate.spark_consumer.checkpoint.schema_store import SchemaStore
from tidegate.spark_consumer.checkpoint.store_access import S3Access, S3Credentials
from tidegate.spark_consumer.checkpoint.whole_files import S3Objects
from tidegate.spark_consumer.core.batch_state import Segment, State, TopicIds
from tidegate.spark_consumer.core.file_names import QUERY_FILE
from tidegate.spark_consumer.core.part_log import ALL_IN_THE_STATE, FrontierLog
from tidegate.spark_consumer.core.plan import PLAN_FORMAT, Plan, ReleaseBounds
from tidegate.spark_consumer.core.topic_schemas import by_table, full_name, row_columns
from tidegate.spark_consumer.errors import AmbiguousNames, CheckpointConflict, CheckpointMismatch


def plan(batch, *releases):
    return Plan(
        format=PLAN_FORMAT, code="1", prefix="bank", query_id="q", batch=batch,
        end_offsets={"bank-progress": {0: 1}}, after_us=0, through_us=9, slowest=None,
        stream_has_ended=False, late_rows=0,
        releases=tuple(ReleaseBounds(number, 0, 9, ()) for number in releases),
        stored=(), compaction=None, topics=(), frontier="f", sinks=("changelog",),
    )  # fmt: skip


@pytest.fixture
def storage():
    client = StoreClient(ObjectStore(), "gate", None)
    client.take()
    return client


@pytest.fixture
def files(storage):
    return GateFiles(storage)


def test_a_checkpoint_keeps_its_identity_and_the_template_of_its_topics(files, storage):
    template = TopicNames("bank", "{prefix}-{table}")
    first = files.identify(TopicNames("bank"), output="o", new_id=lambda: "q")
    assert files.identify(TopicNames("bank"), output="o") == first
    # As older programs read it.
    assert storage.read_json(QUERY_FILE) == {"query_id": "q", "prefix": "bank", "output": "o"}
    for names, output, text in (
        (TopicNames("other"), "o", "another prefix"),
        (TopicNames("bank"), "elsewhere", "another output"),
        (template, "o", "another topic_template"),
    ):
        with pytest.raises(ConfigError, match=text):
            files.identify(names, output=output)
    storage._store.objects.pop(f"gate/{QUERY_FILE}")
    files.identify(template, output="o")
    assert files.require_identity(template, output="o").topic_template == "{prefix}-{table}"
    with pytest.raises(ConfigError, match="another topic_template"):
        files.identify(TopicNames("bank"), output="o")


def test_states_plans_and_frontiers_are_loaded_as_they_were_stored(files):
    state, frontier = State("bank", "q", batch=3), Frontier(SUBSCRIPTION)
    frontier.fold(opening(), reached={"bank-progress": {0: 2}})
    files.store_state(state)
    files.store_plan(plan(4, 7))
    log = FrontierLog(frontier)
    files.store_frontier("f/1", log, log.write("f/1", code="1"))
    assert files.state(3) == state
    assert files.frontier("f/1", SUBSCRIPTION) is log
    stored = files.frontier("f/1", SUBSCRIPTION)
    assert stored is not log
    assert list(stored.frontier.items_since(None)) == list(frontier.items_since(None))
    assert (files.state(4), files.plan(3), files.frontier("g", SUBSCRIPTION)) == (None, None, None)
    with pytest.raises(CheckpointConflict, match="another run"):
        files.store_plan(plan(4, 8))  # a plan is stored once
    assert files.plan(4) == plan(4, 7)
    files.delete(["states/3.json", "states/4.json"])
    assert files.state(3) is None


@pytest.mark.parametrize("lists_late", [0.0, 1.0])
def test_the_newest_state_is_found_also_where_the_listing_lacks_it(storage, lists_late):
    files = GateFiles(storage)
    assert newest_state(storage) is None
    assert files.release_max() == -1
    for batch in range(11):
        files.store_state(replace(State("bank", "q"), batch=batch, next_release=batch))
    storage._disturbance = Disturbance(Random(1), profile=GateProfile(lists_late=lists_late))
    assert newest_state(storage).batch == 10
    assert files.release_max() == 9


def test_other_files_among_the_states_are_passed_over(storage, files):
    files.store_state(State(prefix="bank", query_id="q", batch=4, frontier="f"))
    for name in ("5.json.bak", "notes.txt", "6 (copy).json"):
        storage.write_json(f"states/{name}", {})
        storage.write_json(f"plans/{name}", {})
    assert newest_state(storage).batch == files.batch_max() == 4


def test_an_identity_with_other_fields_is_named(storage, files):
    storage.write_json(QUERY_FILE, {"query_id": "q", "prefix": "bank", "output": "o", "more": 1})
    with pytest.raises(CheckpointMismatch, match=QUERY_FILE):
        files.identify(TopicNames("bank"), output="o")


def test_a_sink_has_the_releases_and_batches_of_states_and_of_an_unfinished_plan(files):
    sinks = ("changelog", "mirror")

    def maxima(*names):
        return [files.release_max(name) for name in names]

    assert files.batch_max() == files.release_max("mirror_by_key") == -1
    state = replace(State("bank", "q", sinks=sinks), batch=0, next_release=5)
    files.store_state(replace(state, mirror_release=2))
    assert maxima("changelog", "mirror", "topic", "changelog_by_key") == [4, 2, -1, 0]
    # The mirror has the releases of its merges only, and a sink that joins those of the plan.
    stored_plan = replace(plan(1, 5, 6), sinks=(*sinks, "topic"), mirror_at=2, merges=())
    files.store_plan(stored_plan)
    assert maxima("changelog", "mirror", "topic") == [6, 2, 6]
    assert files.batch_max() == files.release_max("parquet_by_key") == 1
    files.store_plan(replace(stored_plan, batch=2, releases=plan(2, 7, 8).releases, merges=(8,)))
    assert maxima("changelog", "mirror") == [8, 8]
    assert files.release_max() == 8


def test_where_the_output_begins_to_be_complete_is_kept(files, storage):
    assert complete_from_us(storage) is None
    files.note_start(7)
    files.note_start(9)
    assert complete_from_us(storage) == 9
    files.note_start(None)
    assert complete_from_us(storage) is None


def segments(*numbers):
    return tuple(Segment(f"{n}/1", n, n, 1, (n,)) for n in numbers)


def listed(batch, *numbers, writer=1):
    """A state that stores its segments in files beside it, and the files."""
    parts, files = ALL_IN_THE_STATE.write(segments(*numbers), batch=batch, writer=writer, own_max=0)
    return State("bank", "q", batch=batch, segments=segments(*numbers), listed=parts), files


def test_the_newest_state_is_looked_for_again_if_its_files_are_gone(files, storage):
    first, parts = listed(3, 1, 2)
    files.store_state(first, parts)
    second, more = listed(4, 3, 4)

    class Overtaken:
        """A folder whose run stores the next state once the newest one was read."""

        names = storage.names

        def read_json(self, name):
            content = storage.read_json(name)
            if name == "states/3.json" and files.state(4) is None:
                files.store_state(second, more)
                files.delete([file for file, _ in parts])
            return content

    assert newest_state(Overtaken()) == second
    files.delete([file for file, _ in more])
    with pytest.raises(CheckpointMismatch, match="not stored"):
        newest_state(storage)


# ---------------------------------------------------------------- schemas
def schema(*columns, unwatched=(), excludes=()):
    """A value schema of a table with these columns, the first of which is the key."""
    of_table = [
        Column(c, ColumnType("INT64"), n, 1 if n == 1 else None, is_watched=c not in unwatched)
        for n, c in enumerate(columns, 1)
    ]
    return value_schema("bank.a", TableSchema("a", tuple(of_table), excludes=excludes))


def beside_schema(*columns):
    """As `schema`, of the topic beside the data topic."""
    of_table = [
        Column(c, ColumnType("INT64"), n, 1 if n == 1 else None) for n, c in enumerate(columns, 1)
    ]
    return value_schema("bank.a__backfill", TableSchema("a__backfill", tuple(of_table)))


def key_of(topic):
    return key_schema(topic, TableSchema("a", (Column("id", ColumnType("INT64"), 1, 1),)))


@pytest.fixture
def store_of(storage):
    """A store over schemas that have the ids 1, 2, …"""

    def make(*schemas):
        registry = InMemorySchemaRegistry()
        for number, stored_schema in enumerate(schemas):
            registry.register(f"s{number}", stored_schema)
        return SchemaStore(storage, registry)

    return make


KEY = {"type": "string"}


def test_schemas_are_read_once_and_then_stored(store_of, storage):
    store = store_of(KEY, schema("id", "x", "y"), schema("id", "y"))
    known = [TopicIds("bank.a", (1,), (2, 3)), TopicIds("bank.b", (1,), ())]
    first = store.topics(known, SUBSCRIPTION)
    without_registry = SchemaStore(storage, InMemorySchemaRegistry())
    assert without_registry.topics(known, SUBSCRIPTION) == first
    assert set(first) == {"bank.a"}
    assert first["bank.a"].table == "a"
    assert row_columns(first["bank.a"].reader_schema) == ("id", "y", "x")
    assert set(first["bank.a"].writer_schemas) == {1, 2, 3}
    with pytest.raises(SchemaError):
        without_registry.schema(99)


def test_tables_whose_names_differ_in_case_only_are_refused_by_name(store_of):
    topics = ("bank.Orders", "bank.orders", "bank.orders2")
    known = [TopicIds(topic, (1,), (2,)) for topic in topics]
    store = store_of(KEY, schema("id"))
    assert set(store.topics(known[1:], SUBSCRIPTION)) == set(topics[1:])
    with pytest.raises(AmbiguousNames, match=r"\['Orders', 'orders'\].*under another prefix"):
        store.topics(known, SUBSCRIPTION)


def test_rows_that_were_read_on_demand_belong_to_their_table(store_of):
    store = store_of(
        key_of("bank.a"), schema("id", "x"), key_of("bank.a__backfill"), beside_schema("id", "y")
    )
    own, beside = TopicIds("bank.a", (1,), (2,)), TopicIds("bank.a__backfill", (3,), (4,))
    topics = store.topics([own, beside], SUBSCRIPTION)
    schemas = topics["bank.a"]
    assert topics == {"bank.a": schemas, "bank.a__backfill": schemas}
    assert (schemas.table, schemas.topics) == ("a", ("bank.a", "bank.a__backfill"))
    assert row_columns(schemas.reader_schema) == ("id", "x", "y")
    # Avro compares the names of types: they have to be those of one topic.
    names = {full_name(schema) for schema in schemas.writer_schemas.values()}
    assert names == {"bank.a.Change", "bank.a.Key"}
    assert set(schemas.writer_schemas) == {1, 2, 3, 4}
    assert by_table(topics) == {"bank.a": schemas}
    # A table whose rows come before its first change has its own topic.
    topics = store.topics([TopicIds("bank.a", (), ()), beside], SUBSCRIPTION)
    assert set(topics) == {"bank.a", "bank.a__backfill"}
    assert topics["bank.a"].key_schema["namespace"] == "bank.a"
    assert list(by_table(topics)) == ["bank.a"]
    # A topic that stands alone is read as ever.
    topics = store.topics([own], SUBSCRIPTION)
    assert topics["bank.a"].topics == ()
    assert topics["bank.a"].read_from("bank.a") == ("bank.a",)
    assert by_table(topics) == topics


# ---------------------------------------------------------------- folders of this machine
def test_files_are_read_and_listed_without_temporary_ones(tmp_path):
    states = tmp_path / "states"
    states.mkdir()
    for name in ("2.json", "10.json", ".3.json.tmp", "_SUCCESS"):
        (states / name).write_text('{"a": 1}')
    os.utime(states / "2.json", ns=(0, 1_234_567_000))
    folder = LocalFolder(tmp_path)
    assert folder.root == str(tmp_path)
    assert folder.names("states") == ["10.json", "2.json"]
    assert folder.read_json("states/2.json") == {"a": 1}
    assert folder.written_ms("states/2.json") == 1_234
    assert folder.read_json("states") is folder.read_json("states/2.json/1.json") is None
    for data in (b"", b"{", b"\xcd\xfe"):
        with pytest.raises(CheckpointMismatch, match=r"states/1\.json"):
            decoded(data, file="states/1.json")


@pytest.mark.parametrize("address", ["nowhere", "\0", "\ud800"])
def test_what_is_missing_or_no_file_system_can_name_is_empty(tmp_path, monkeypatch, address):
    folder = LocalFolder(tmp_path / address)
    assert folder.read_json("states/1.json") is None
    assert folder.names("states") == []
    assert folder.written_ms("states/1.json") is None
    # Nor is there what is deleted a moment before it is read.
    monkeypatch.setattr(Path, "is_file", lambda _: True)
    folder = LocalFolder(tmp_path)
    assert folder.read_json("1.json") is folder.written_ms("1.json") is None


# ---------------------------------------------------------------- Spark's offset log
HEAD = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}\n'


def test_lines_of_the_offset_log_are_distinguished_by_their_topics():
    progress = {"bank-progress": {"0": 5, "11": 7}}
    data = {"bank.a": {"1": 2, "0": 3}, "bank.b": {"0": 0}}
    for lines in ((progress, data), (data, progress)):
        text = HEAD + "\n".join(map(json.dumps, lines))
        assert parse_offset_log(text, batch=3) == {
            "bank-progress": {0: 5, 11: 7},
            "bank.a": {0: 3, 1: 2},
            "bank.b": {0: 0},
        }
    for nothing in ("-", "{}"):  # a source without offsets yet
        text = f"{HEAD}{json.dumps(progress)}\n{nothing}"
        assert parse_offset_log(text, batch=0) == {"bank-progress": {0: 5, 11: 7}}
    with pytest.raises(CheckpointMismatch, match="v2"):
        parse_offset_log(HEAD.replace("v1", "v2"), batch=0)
    with pytest.raises(CheckpointMismatch, match="bank"):
        parse_offset_log(f'{HEAD}{{"bank.a":{{"0":1}}}}\n{{"bank.a":{{"0":1}}}}', batch=0)


@pytest.mark.parametrize(
    "text", ["", "v1\n", f"{HEAD}{{", f"{HEAD}7", f'{HEAD}{{"bank.a":{{"x":1}}}}']
)
def test_an_entry_of_the_offset_log_that_was_cut_off_is_named(text):
    with pytest.raises(CheckpointMismatch, match="not as Spark wrote it") as caught:
        parse_offset_log(text, batch=4)
    assert caught.value.fields["batch"] == 4


def test_what_was_read_ends_with_the_last_batch_that_spark_has_committed():
    log = f'{HEAD}{{"bank.a":{{"0":5}}}}'
    logs = {"offsets/10": log, "offsets/11": f'{HEAD}{{"bank.a":{{"0":9}}}}'}

    class Folder:
        root = "spark"
        commits = ()

        def names(self, folder):
            return {"commits": list(self.commits)}[folder]

        def read(self, name):
            return logs[name].encode()

    assert read_offsets(Folder()) is None
    Folder.commits = ("9", "10", "metadata")
    assert read_offsets(Folder()) == parse_offset_log(log, batch=10)


# ---------------------------------------------------------------- Hadoop's file system


def access(kind="AwsBasicCredentials", key="key"):
    files = MagicMock()
    internals = files.getS3AInternals()
    credentials = internals.shareCredentials().resolveCredentials()
    credentials.accessKeyId.return_value = key
    credentials.secretAccessKey.return_value = "hush"
    credentials.sessionToken.return_value = "for an hour"
    credentials.getClass().getSimpleName.return_value = kind
    internals.shareCredentials.reset_mock()
    return S3Access(files), files


@pytest.mark.parametrize(
    ("kind", "token"), [("AwsBasicCredentials", None), ("AwsSessionCredentials", "for an hour")]
)
def test_credentials_come_from_one_list_of_providers(kind, token):
    s3, files = access(kind)
    for _ in range(2):
        assert s3.credentials() == S3Credentials("key", "hush", token)
    assert files.getS3AInternals().shareCredentials.call_count == 1
    s3, files = access(key=None)
    assert s3.credentials() is None  # anonymous access has no key
    files.getConf().getTrimmed.side_effect = {"fs.s3a.a.b": "c"}.get
    assert (s3.setting("a.b"), s3.setting("other")) == ("c", "")  # of the bucket


def test_what_hadoop_refuses_to_say_is_unreachable():
    s3, files = access()
    thrown = MagicMock()
    thrown._target_id, thrown._gateway_client = "o1", MagicMock()
    thrown.toString.return_value = "NoAuthWithAWSException: no provider"
    error = Py4JJavaError("", thrown)
    files.getS3AInternals().getBucketLocation.side_effect = error
    with pytest.raises(UnreachableError, match="no provider"):
        s3.region()


def missing(*_):
    raise Py4JError("Method getS3AInternals([]) does not exist")


def folder(options=("defaultOptions",)):
    """A folder in S3 whose Hadoop makes its options so."""
    hadoop_folder = MagicMock(root="s3a://lake/gate")
    hadoop_folder.call = lambda action: action()
    impl = hadoop_folder.jvm.org.apache.hadoop.fs.s3a.impl
    impl.PutObjectOptions = MagicMock(spec_set=list(options))
    return hadoop_folder


def test_a_file_system_without_the_client_is_refused_with_what_to_use():
    without = folder()
    without.files.getS3AInternals = missing
    with pytest.raises(ConfigError, match="hadoop-aws") as raised:
        S3Objects(without)
    assert "3.4.1" in raised.value.hint
    assert "getS3AInternals" in raised.value.fields["cause"]
    # A JVM that is gone is not another Hadoop.
    gone = folder()
    gone.files.getS3AInternals.side_effect = Py4JNetworkError("connection refused")
    with pytest.raises(Py4JNetworkError):
        S3Objects(gone)


def test_a_factory_with_other_arguments_is_refused_before_anything_is_sent():
    other = folder()
    other.files.getRequestFactory().newPutObjectRequestBuilder = missing
    with pytest.raises(ConfigError, match="hadoop-aws"):
        S3Objects(other).replace("plans/1", b"{}")
    other.files.getS3AInternals().getAmazonS3Client().putObject.assert_not_called()


@pytest.mark.parametrize(
    "options",
    [
        ("keepingDirs", "deletingDirs"),  # Hadoop 3.4.1
        ("keepingDirs", "deletingDirs", "defaultOptions"),  # 3.4.2
        ("defaultOptions",),  # 3.5.0
    ],
)
def test_an_object_is_put_with_the_options_that_this_hadoop_has(options):
    s3 = folder(options)
    S3Objects(s3).replace("plans/1", b"{}")
    made = s3.files.getRequestFactory().newPutObjectRequestBuilder.call_args.args[1]
    known = s3.jvm.org.apache.hadoop.fs.s3a.impl.PutObjectOptions
    assert made is getattr(known, options[-1] if "defaultOptions" in options else options[0])()


NO_CLASS = "java.lang.ClassNotFoundException"


def test_only_a_missing_file_system_is_one():
    s3a = "Class org.apache.hadoop.fs.s3a.S3AFileSystem not found"
    unsupported = "org.apache.hadoop.fs.UnsupportedFileSystemException"
    gcs = "Class com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem not found"
    for name, text, is_missing in (
        (NO_CLASS, s3a, True),
        (NO_CLASS, gcs, True),
        (unsupported, 'No FileSystem for scheme "other"', True),
        # The file system is there, and lacks what its settings name, or a jar of its own.
        (NO_CLASS, "Class com.example.OurCredentials not found", False),
        (NO_CLASS, "software.amazon.awssdk.core.exception.SdkException", False),
        ("java.io.IOException", s3a, False),
    ):
        assert is_missing_file_system(name, text) is is_missing
