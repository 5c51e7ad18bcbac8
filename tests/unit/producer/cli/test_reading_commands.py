"""What commands show: the lineage, dead letters, a source's objects, schemas, AsyncAPI."""

import gzip
import json
import random
from functools import reduce

import pytest
from rich.console import Console

from tests.datastream_files import SOURCES, backfill, delivered, history, write_stream
from tests.unit.producer.cli.conftest import NOWHERE, started
from tidegate.lineage.fleet_status import PartitionCondition
from tidegate.lineage.lineage_graph import LineageGraph, Relative
from tidegate.producer.cli import dead_letters as dead_letters_command
from tidegate.producer.cli import discover as discover_command
from tidegate.producer.cli import environment
from tidegate.producer.cli import schemas as command
from tidegate.producer.cli.asyncapi import asyncapi
from tidegate.producer.cli.dead_letters import (
    DeadLetterReport,
    ListedGroup,
    dead_letters,
    dead_letters_table,
)
from tidegate.producer.cli.discover import discover_files, discover_spanner, discovery_table
from tidegate.producer.cli.lineage import as_dot, as_json, as_mermaid, as_tree, lineage
from tidegate.producer.cli.schemas import StreamTopic, Subject
from tidegate.producer.config import DiscoverConfig, ProducerConfig
from tidegate.producer.datastream import errors as file_errors
from tidegate.producer.datastream.errors import DatastreamError, MixedSources
from tidegate.producer.datastream.event_records import place_of
from tidegate.producer.datastream.refused_events import dead_letter
from tidegate.producer.description import Discovery, SourceField, SourceObject
from tidegate.producer.errors import StreamNotStarted
from tidegate.producer.kafka.topics import KafkaTopics, TopicDescription
from tidegate.producer.messages import FORM_RECORD, ParkedChange
from tidegate.producer.records import DataChangeRecord
from tidegate.producer.translation.pipeline import POISON
from tidegate.schemas.change_schema import FLAT_FIELDS
from tidegate.schemas.errors import ConfigError, SchemaError, UnreachableError
from tidegate.schemas.order_key import OrderKey
from tidegate.schemas.progress import ChildPartition, PartitionAnnounced, ProgressRecord
from tidegate.schemas.registry import InMemorySchemaRegistry, RegisteredSchema
from tidegate.schemas.topics import TopicNames, slot_of


def printed(shown):
    console = Console(width=100)
    with console.capture() as capture:
        console.print(shown)
    text = capture.get()
    assert max(map(len, text.splitlines())) <= 100
    return text


LONG = "__8BAYEG0qQD8AABgsBDg3MDRhXzYxMjI1NTg1"
NOW_US = 9_500_000
CONDITION = PartitionCondition
GRAPH = LineageGraph(
    "projects/p/s",
    (
        Relative("left", 0, (), CONDITION.FINISHED, 0, 4_000_000, None),
        Relative("right", 1, ("gone",), CONDITION.STOPPED, 0, None, 4_000_000),
        Relative(LONG, 1, ("left", "right"), CONDITION.WAITING, 4_000_000, None, None),
        Relative('b"[r]', 0, (LONG,), CONDITION.OPEN, 5_000_000, None, 9_000_000),
    ),
    left_out=7,
)


def test_a_tree_shows_each_once_and_fits_a_hundred_columns():
    text = printed(as_tree(GRAPH, now_us=NOW_US))
    lines = text.splitlines()
    assert lines[0] == "stream projects/p/s"
    (whole, again) = [line for line in lines if LONG[-20:] in line]
    assert "waiting since 00:00:04Z, slot 1" in whole
    assert again.endswith("see above")
    assert text.count('b"[r] open since 00:00:05Z, slot 0, behind 0.5 s') == 1
    assert "7 that finished earlier are not shown" in lines[-1]
    # An instant of another day has its date.
    text = printed(as_tree(GRAPH, now_us=NOW_US + 86_400_000_000))
    assert "waiting since 1970-01-01 00:00:04Z, slot 1" in text


def test_a_graph_has_each_edge_to_a_parent_that_is_shown():
    lines = as_mermaid(GRAPH, now_us=NOW_US).splitlines()
    assert lines[0] == "flowchart TD"
    edges = [line.strip() for line in lines if "-->" in line]
    assert edges == ["p0 --> p2", "p1 --> p2", "p2 --> p3"]
    assert '    p3["b#quot;[r]<br/>open since 00:00:05Z, slot 0, behind 0.5 s"]:::open' in lines
    assert sum("classDef" in line for line in lines) == len(CONDITION)

    text = as_dot(GRAPH, now_us=NOW_US)
    assert text.startswith("digraph lineage {")
    assert text.endswith("}\n")
    for part in (f'tooltip="{LONG}"', 'label="b\\"[r]\\nopen since', "    p1 -> p2;"):
        assert part in text

    graph = json.loads(as_json(GRAPH))
    assert (graph["left_out"], graph["partitions"][2]["token"]) == (7, LONG)
    assert graph["partitions"][0]["condition"] == "finished"


def test_lineage_reads_the_progress_topic_and_asks_spanner_nothing(place):
    config = place.config(spanner_emulator_host=NOWHERE)
    place.record(started(config.stream_path))
    announced = PartitionAnnounced(ChildPartition("a", (), 5_000_000), "")
    place.record(ProgressRecord("epoch-1", "w1", announced), slot=slot_of("a", 4))
    for generations in (0, None):
        shown_lineage = lineage(config, generations=generations)
        assert shown_lineage.stream == config.stream_path
        assert [
            (partition.token, partition.slot, partition.condition)
            for partition in shown_lineage.partitions
        ] == [
            ("p", slot_of("p", 4), CONDITION.WAITING),  # which `started` names
            ("a", slot_of("a", 4), CONDITION.WAITING),
        ]


NAMES = TopicNames("bank")
ORDER = OrderKey(1_700_000_000_000_000, "tx", (0, 1), 0).encode()
PARKED = ParkedChange(
    NAMES.data("Users"), b"k", ORDER, b"U", b"{}", FORM_RECORD, "MessageTooLarge", "too large", "t"
)
EVENT = dead_letter(
    SchemaError("no such day", column="d"),
    DataChangeRecord(9_000, place_of(7, 2), "x", True, "shop.orders", (), (), "INSERT", "NEW_ROW",
                     1, 1, "o/a.avro", False),
    file="0a1b2c3d4e5f6071", number=5, token="object",
)  # fmt: skip


def group(**changes):
    defaults = {
        "reason": "MessageTooLarge", "table": "Users", "file": None, "count": 3, "first": "a",
        "last": "b", "error": "too large", "token": "t", "place": "here", "topic_partition": 0,
        "offset": 4, "remedy": "Raise it",
    }  # fmt: skip
    return ListedGroup(**{**defaults, **changes})


def test_what_is_set_aside_is_listed_with_what_to_do(place):
    with pytest.raises(StreamNotStarted):
        dead_letters(place.config())
    place.record(started(place.config().stream_path))
    assert dead_letters(place.config()) == DeadLetterReport("bank-dead-letter", 0, (), 0)

    place.park(NAMES.dead_letter, PARKED, EVENT, PARKED._replace(reason="KeyParked", error=""))
    listed = dead_letters(place.config(spanner_emulator_host=NOWHERE))
    assert (listed.dead_letter, listed.records, listed.dropped) == ("bank-dead-letter", 3, 0)
    after, of_file, first = listed.groups
    assert (first.reason, first.table, first.file, first.count) == (
        "MessageTooLarge", "Users", None, 1,
    )  # fmt: skip
    assert first.place == "2023-11-14T22:13:20Z, tx, 1, 0"
    assert "max.message.bytes" in first.remedy
    assert (of_file.reason, of_file.table, of_file.file) == ("SchemaError", None, "o/a.avro")
    assert (of_file.place, of_file.token) == ("record 5", "object")
    assert "backfill the object" in of_file.remedy
    assert (after.reason, after.error, after.offset) == ("KeyParked", "", 2)
    assert first.first == first.last
    assert first.first.startswith("20")
    assert json.loads(listed.as_json())["groups"][2]["topic_partition"] == 0


def test_each_class_of_an_error_has_a_remedy():
    of_files = {kind.__name__ for kind in DatastreamError.__subclasses__()}
    remedies = dead_letters_command._REMEDIES
    remedies_of_files = dead_letters_command._REMEDIES_OF_FILES
    assert {kind.__name__ for kind in POISON} | {"KeyParked"} == set(remedies)
    assert of_files == set(remedies_of_files)
    assert len(of_files) + len(POISON) > 12
    assert all((*remedies.values(), *remedies_of_files.values()))
    classes = [value for value in vars(file_errors).values() if isinstance(value, type)]
    errors = {kind.__name__ for kind in classes if issubclass(kind, DatastreamError)}
    assert errors - {"DatastreamError"} <= of_files


def test_a_table_of_dead_letters_names_all_of_it_once():
    file = group(
        table=None, file="o/" + "x" * 80, reason="FileCutShort", error="", place="record 3"
    )

    def table(records, *groups, dropped=0, rows_max=20):
        report = DeadLetterReport("bank-dead-letter", records, groups, dropped)
        return printed(dead_letters_table(report, rows_max=rows_max))

    text = table(1_003, group(), file, dropped=7)
    for shown in ("1,003 records", "MessageTooLarge", "Users", "Raise it", "record 3",
                  "7 older ones"):  # fmt: skip
        assert shown in text
    assert "1 more: --limit" in table(6, group(), file, rows_max=1)
    assert "Nothing is set aside" in table(0)
    assert table(3, group(error="too large. Raise it")).count("Raise it") == 1


GOOGLE_SQL = (
    """CREATE TABLE Users (Id INT64 NOT NULL, Name STRING(MAX), Tags ARRAY<STRING(MAX)>)
       PRIMARY KEY (Id)""",
    """CREATE TABLE Orders (Id INT64 NOT NULL, UserId INT64 NOT NULL, Note STRING(MAX))
       PRIMARY KEY (UserId, Id)""",
    "CREATE TABLE Plain (Id INT64) PRIMARY KEY (Id)",
    "CREATE CHANGE STREAM Feed FOR Users, Orders(Note)",
    "CREATE CHANGE STREAM Everything FOR ALL",
)
POSTGRESQL = (
    "CREATE TABLE users (id bigint NOT NULL, amount numeric, PRIMARY KEY (id))",
    "CREATE TABLE plain (id bigint NOT NULL, PRIMARY KEY (id))",
    "CREATE CHANGE STREAM feed FOR users",
)


@pytest.fixture(scope="module")
def databases(simulator):
    simulator.create_database("both", ddl=list(GOOGLE_SQL))
    simulator.create_database("none", ddl=[GOOGLE_SQL[2]])
    simulator.create_database("pg", ddl=list(POSTGRESQL), dialect="POSTGRESQL")
    return simulator


@pytest.fixture
def look(databases, monkeypatch):
    monkeypatch.delenv("SPANNER_EMULATOR_HOST", raising=False)
    names = {"project": "test-project", "instance": "test-instance"}

    def discover(database, **more):
        host = {"spanner_emulator_host": databases.grpc_address}
        return discover_spanner(
            DiscoverConfig.load(None, **names, database=database, **{**host, **more})
        )

    return discover


def rows(discovery):
    return {
        source_object.name: [
            (field.name, field.type, field.nullable, field.key_position, field.watched_by)
            for field in source_object.fields
        ]
        for source_object in discovery.objects
    }


@pytest.mark.rule("datastream-discover")
def test_tables_of_a_database_with_what_each_change_stream_watches(look):
    discovery = look("both")
    both, everything = ("Everything", "Feed"), ("Everything",)
    assert (discovery.kind, discovery.streams) == ("spanner", both)
    assert rows(discovery) == {
        "Orders": [
            ("Id", "INT64", False, 2, both), ("UserId", "INT64", False, 1, both),
            ("Note", "STRING", True, None, both),
        ],
        "Plain": [("Id", "INT64", True, 1, everything)],
        "Users": [
            ("Id", "INT64", False, 1, both), ("Name", "STRING", True, None, both),
            ("Tags", "ARRAY<STRING>", True, None, both),
        ],
    }  # fmt: skip
    assert [source_object.key for source_object in discovery.objects] == [
        ("UserId", "Id"),
        ("Id",),
        ("Id",),
    ]
    of_one = look("both", change_stream="Feed")
    assert {source_object.name: source_object.watched_by for source_object in of_one.objects} == {
        "Orders": ("Feed",), "Plain": (), "Users": ("Feed",),
    }  # fmt: skip
    without = look("none")
    assert [source_object.name for source_object in without.objects] == ["Plain"]
    assert without.notes == ("the database has no change stream: nothing is watched",)


@pytest.mark.rule("datastream-discover")
def test_tables_of_postgresql(look):
    discovery, feed = look("pg"), ("feed",)
    assert rows(discovery) == {
        "plain": [("id", "INT64", False, 1, ())],
        "users": [("id", "INT64", False, 1, feed), ("amount", "PG_NUMERIC", True, None, feed)],
    }
    assert "POSTGRESQL" in discovery.source


def test_what_does_not_exist_is_named(look):
    with pytest.raises(ConfigError, match=r"no change stream Nope.*Everything, Feed"):
        look("both", change_stream="Nope")
    with pytest.raises(ConfigError, match="NOT_FOUND"):
        look("absent")
    with pytest.raises(UnreachableError):
        look("both", spanner_emulator_host=NOWHERE)


@pytest.mark.rule("datastream-objects", "datastream-discover")
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("form", ["avro", "jsonl", "jsonl.gz"])
def test_objects_of_files(tmp_path, source, form):
    rng = random.Random(3)
    changes, events_of = history(source, rng, 30), backfill(source, rng, 5)
    files = write_stream(tmp_path, source, delivered(changes, events_of, rng), form=form)
    seen = []
    discovery = discover_files(
        str(tmp_path), files_max=0, progress=lambda what, done: seen.append(done)
    )
    (only,) = discovery.objects
    assert json.loads(discover_command.as_json(discovery))["kind"] == source
    assert (discovery.kind, only.key) == (source, ("id",))
    assert only.files_read == len(files) == seen[-1]
    assert [field.name for field in only.fields] == ["id", "note", "at", "price"]
    assert (len(discovery.notes) == 2) == (form != "avro")


def test_one_file_or_the_newest_ones_are_enough_and_two_sources_are_refused(tmp_path):
    old, *_, path = write_stream(tmp_path, "mysql", history("mysql", random.Random(3), 30))
    old.write_bytes(b"damaged")
    assert discover_files(str(tmp_path), files_max=2).objects[0].files_read == 2
    copy = tmp_path / "copy.avro.gz"
    copy.write_bytes(gzip.compress(path.read_bytes()))
    assert discover_files(str(copy), files_max=1).objects[0].name == "shop.orders"
    two = tmp_path / "two"
    for source in ("mysql", "postgresql"):
        write_stream(two, source, history(source, random.Random(3), 3))
    with pytest.raises(MixedSources, match=r"postgresql and of mysql|mysql and of postgresql"):
        discover_files(str(two), files_max=20)


FIELD = SourceField("Id", "INT64", nullable=False, key_position=1, watched_by=("Feed",))
MARKUP = SourceField("[red]x", "ARRAY<STRING>", nullable=True)
OF_SPANNER = (
    SourceObject("T", (FIELD, MARKUP), watched_by=("Feed",)), SourceObject("U", (FIELD,)),
)  # fmt: skip
OF_FILES = SourceObject(
    "a.b", (SourceField("id", "LONG", nullable=None),), files_read=3,
    events={"DELETE": 1, "INSERT": 1_000},
)  # fmt: skip


@pytest.mark.parametrize(
    ("found", "shown", "not_shown"),
    [
        (Discovery("spanner", "db", ("Feed",), OF_SPANNER, notes=("something",)),
         ("change streams: Feed", "watched by", "[red]x", "U (not watched)", "Note: something."),
         "T (not watched)"),
        (Discovery("mysql", "gs://b/p", (), (OF_FILES,)),
         ("mysql: gs://b/p", "streams: none", "unknown", "no key", "1,000 INSERT", "1 DELETE",
          "3 files"),
         "watched"),
    ],
)  # fmt: skip
def test_a_table_of_objects(found, shown, not_shown):
    text = printed(discovery_table(found))
    assert [part for part in shown if part not in text] == []
    assert not_shown not in text
    # Long names are folded.
    name = "x" * 300
    source_object = SourceObject(
        name, (SourceField(name, name, nullable=True, watched_by=(name,)),)
    )
    text = printed(discovery_table(Discovery(found.kind, name, (name,), (source_object,))))
    assert text.replace("\n", "").count("x") > 1_000


TABLE = ["bank.Users-key", "bank.Users-value"]
PROGRESS = ["bank-progress-key", "bank-progress-value"]


@pytest.fixture
def known(place, monkeypatch):
    """The registry that the commands find."""
    registry = InMemorySchemaRegistry()
    registry.require_reachable = lambda: None
    for module in (command, environment):
        monkeypatch.setattr(module, "schema_registry", lambda _config: registry)
    return registry


@pytest.fixture
def alone(place, known):
    """Settings of a stream whose schemas are registered; Spanner does not answer any more."""
    command.register(place.config())
    return place.config(spanner_emulator_host=NOWHERE)


def test_what_is_missing_is_registered_once_and_no_topic_is_created(place, known):
    before = place.topics()
    assert command.missing(place.config()) == TABLE + PROGRESS
    assert not known.subjects
    assert command.register(place.config()) == TABLE + PROGRESS
    assert set(known.levels.values()) == {"BACKWARD"}
    assert command.missing(place.config()) == command.register(place.config()) == []
    assert place.topics() == before


def test_subjects_are_those_of_topics_that_exist(place, known, alone):
    assert command.subjects(alone) == []
    for topic in ("bank.Users", "bank-progress", "other.Users"):
        place.create_topic(topic)
    subjects = command.subjects(alone)
    assert [subject.subject for subject in subjects] == sorted(TABLE + PROGRESS)
    newest = known.versions("bank-progress-value")
    assert Subject("bank-progress-value", len(newest), newest[-1].schema_id, "BACKWARD") in subjects
    # A schema is shown as it is registered.
    assert command.shown(alone, "Users", is_key=True)["name"] == "Key"
    assert command.shown(alone, "Users", is_key=False)["name"] == "Change"
    with pytest.raises(ConfigError, match=r"bank\.Missing-value.*Tables that have a topic: Users"):
        command.shown(alone, "Missing", is_key=False)


def test_subjects_of_a_stream_with_other_names_are_not_looked_for(place, alone, monkeypatch):
    def refuse(config, _schema_of):
        config.topic_names.require_recorded(["producer.topic_template={prefix}-{table}"])

    monkeypatch.setattr(command, "require_topic_names", refuse)
    place.create_topic("bank-progress")
    for look in (command.subjects, command.stream_topics):
        with pytest.raises(ConfigError, match="topic_template"):
            look(alone)


def test_subjects_follow_the_template(place, known):
    config = place.config(topic_template="{prefix}-{table}")
    subjects = ["bank-Users-key", "bank-Users-value"]
    assert command.register(config) == subjects + PROGRESS
    place.create_topic("bank-Users")
    assert [subject.subject for subject in command.subjects(config)] == subjects
    assert command.shown(config, "Users", is_key=True)["namespace"] == "bank_Users"


def test_topics_have_their_schemas_and_the_progress_topic_comes_last(
    place, known, alone, monkeypatch
):
    def describe(_topics, names):
        return {name: TopicDescription(name, "id", 6) for name in names}

    monkeypatch.setattr(KafkaTopics, "describe", describe)
    for topic in ("bank.Users", "bank.unregistered", "bank-progress"):
        place.create_topic(topic)
    users, progress = command.stream_topics(alone)
    assert (users.topic, users.table, users.topic_partitions) == ("bank.Users", "Users", 6)
    assert users.key.schema["fields"][0]["name"] == "Id"
    assert (progress.topic, progress.table) == ("bank-progress", None)
    assert progress.value == known.versions("bank-progress-value")[-1]


KEY = RegisteredSchema(1, {"type": "record", "name": "Key", "fields": []})
VALUE = RegisteredSchema(2, {"type": "record", "name": "Change", "fields": []})
TOPICS = (
    StreamTopic("bank.shop.Items", "shop.Items", 6, KEY, VALUE),
    StreamTopic("bank.shop_Items", "shop_Items", 6, KEY, VALUE),
    StreamTopic("bank-progress", None, 16, KEY, VALUE),
)
ITEMS = "bank--shop--Items"


def document(topics=TOPICS, **changes):
    settings = {
        "bootstrap_servers": "a:9092, b:9093", "registry_url": "http://127.0.0.1:8081/",
        "project": "p", "instance": "bank", "database": "bank", "change_stream": "Feed",
        "prefix": "bank", **changes,
    }  # fmt: skip
    return asyncapi(ProducerConfig.load(None, **settings), topics)


def references(value):
    if isinstance(value, dict):
        yield from ([value["$ref"]] if "$ref" in value else [])
        for member in value.values():
            yield from references(member)


def test_every_topic_is_a_channel_with_both_schemas():
    specification = document()
    items, message = (
        specification["channels"][ITEMS],
        specification["components"]["messages"][ITEMS],
    )
    assert (items["address"], items["bindings"]["kafka"]["partitions"]) == ("bank.shop.Items", 6)
    assert message["payload"]["schema"] == VALUE.schema
    assert message["bindings"]["kafka"]["key"]["schema"] == KEY.schema
    assert set(message["headers"]["required"]) == {"order", "mod"}
    assert "headers" not in specification["components"]["messages"]["bank-progress"]
    # Every reference resolves.
    names = set(references(specification))
    assert len(names) == 2 * len(TOPICS)
    for name in names:
        assert reduce(
            lambda value, part: value[part], name.removeprefix("#/").split("/"), specification
        )


def test_servers_are_named_without_secrets():
    for security, protocol in (("plaintext", "kafka"), ("SASL_SSL", "kafka-secure")):
        options = {"security.protocol": security, "sasl.password": "hidden-word"}
        specification = document(kafka_options=options, registry_user_info="me:hidden-word")
        assert [server["host"] for server in specification["servers"].values()] == [
            "a:9092",
            "b:9093",
        ]
        assert {server["protocol"] for server in specification["servers"].values()} == {protocol}
        assert "hidden-word" not in json.dumps(specification)


def test_values_and_keys_in_json_have_no_schema_id():
    messages = document(envelope="datastream", value_format="json")["components"]["messages"]
    items, progress = messages[ITEMS], messages["bank-progress"]
    assert items["contentType"] == "application/json"
    assert "schemaIdLocation" not in items["bindings"]["kafka"]
    assert progress["contentType"] == "application/vnd.apache.avro"
    assert progress["bindings"]["kafka"]["schemaIdLocation"] == "payload"
    specification = document(envelope="debezium", value_format="json", key_format="json")
    messages = specification["components"]["messages"]
    assert messages[ITEMS]["summary"].endswith("The key is JSON, too.")
    assert "summary" not in messages["bank-progress"]


def test_tombstones_and_flat_values_are_shown():
    flat = {"type": "record", "name": "FlatChange", "fields": list(FLAT_FIELDS)}
    topics = (StreamTopic("bank.T", "T", 6, KEY, RegisteredSchema(3, flat)), TOPICS[-1])
    specification = document(topics, tombstones=True, envelope="flat")
    message = specification["components"]["messages"]["bank--T"]
    assert (message["name"], message["payload"]["schema"]) == ("FlatChange", flat)
    assert "no value" in specification["channels"]["bank--T"]["description"]
    assert "no value" not in specification["channels"]["bank-progress"]["description"]
    assert "no value" not in document()["channels"][ITEMS]["description"]
