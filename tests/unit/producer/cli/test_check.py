"""The lines of `tidegate-producer check`."""

import re
from dataclasses import replace

import pytest

from tests.unit.producer.cli.conftest import started
from tidegate.producer.accelerator import describe_accelerator
from tidegate.producer.cli import check as check_command
from tidegate.producer.cli.check import check
from tidegate.producer.cli.discover import discover_spanner
from tidegate.producer.config import DiscoverConfig, ProducerConfig
from tidegate.producer.errors import StreamChangedError
from tidegate.producer.kafka.topics import KafkaTopics
from tidegate.producer.spanner import checks
from tidegate.producer.spanner.channel import SpannerChannels
from tidegate.schemas.errors import ConfigError, UnreachableError


@pytest.fixture(autouse=True)
def short_trial(monkeypatch):
    monkeypatch.setattr(checks, "_TRIAL_NS", 1_000_000)


@pytest.fixture
def database(place, simulator):
    def create(name, *ddl, **options):
        name = f"{place.settings['database']}-{name}"
        simulator.create_database(name, ddl=list(ddl), **options)
        return lambda **changes: place.config(database=name, **changes)

    return create


@pytest.fixture
def deny(monkeypatch):
    def denied(right, topic):
        monkeypatch.setattr(
            check_command,
            "denied_topics",
            lambda topics, *, right, denied=(right, topic), **_: [
                one for one in topics if (right, one) == denied
            ],
        )

    return denied


def started_here(place, config=None):
    record = started((config or place.config()).stream_path)
    return replace(record, body=replace(record.body, progress_topic_id="id-bank-progress"))


def test_each_system_has_a_line(place):
    spanner, kafka, registry, accelerator, query = check(place.config())
    path, broker = place.config().stream_path, place.settings["bootstrap_servers"]
    assert spanner == f"Spanner: {path}, GOOGLE_STANDARD_SQL, watches Users"
    assert kafka == f"Kafka: {broker}, progress topic bank-progress, no epoch yet"
    assert registry == (
        f"registry: {place.settings['registry_url']}, would register bank.Users-key, "
        "bank.Users-value, bank-progress-key, bank-progress-value"
    )
    assert accelerator == f"accelerator: {describe_accelerator()}"
    pattern = r"query: over h2, first response after [0-9]+ ms, [0-9]+ responses in [0-9.]+ s"
    assert re.fullmatch(pattern, query)
    place.require_untouched()

    place.record(started_here(place))
    assert check(place.config())[1].endswith("progress topic bank-progress, epoch epoch-1")


def test_a_query_is_tried_with_the_chosen_transport(place, monkeypatch):
    lines = check(place.config(query_transport="grpc"))
    assert lines[-1].startswith("query: over grpc, first response after ")

    monkeypatch.setattr(checks, "_TRIAL_NS", 60_000_000_000)
    monkeypatch.setattr(checks, "_TRIAL_PATIENCE_S", 0.01)
    for transport in ("h2", "grpc"):
        with pytest.raises(UnreachableError, match="try the other query_transport") as caught:
            check(place.config(query_transport=transport))
        assert caught.value.fields["query_transport"] == transport


def test_what_the_kafka_service_lacks_has_a_line_each(place, monkeypatch):
    asked = []

    def missing(servers, *, options, topics):
        asked.append(topics)
        return ["topic ids are zero", "DescribeConfigs is missing"]

    monkeypatch.setattr(check_command, "missing_parts", missing)
    place.create_topic("other")
    lines = check(place.config())
    assert lines[2:4] == ["Kafka: topic ids are zero", "Kafka: DescribeConfigs is missing"]
    place.record(started_here(place))
    check(place.config())
    assert asked == [["other"], ["bank-progress"]]


def test_transactions_are_tried_only_before_a_stream_begins(place, monkeypatch):
    def refuse(_servers, *, transactional_id, **_):
        raise ConfigError(f"transactions refused for {transactional_id}")

    monkeypatch.setattr(check_command, "require_transactions", refuse)
    with pytest.raises(ConfigError, match="transactions refused for bank-fleet-w1"):
        check(place.config(worker="w1"))
    place.record(started_here(place))
    check(place.config(worker="w1"))  # it may have an open transaction


def test_a_source_of_files_has_a_line(place, tmp_path):
    named = ("project", "instance", "database", "change_stream")
    kafka = {name: value for name, value in place.settings.items() if name not in named}
    source = {"kind": "datastream", "location": str(tmp_path)}
    assert check(ProducerConfig.load(None, **kafka, source=source))[0] == (
        f"Datastream: {tmp_path} can be listed"
    )
    missing = {**source, "location": f"{tmp_path}/nothing"}
    with pytest.raises(ConfigError, match=r"^source\.location: .* does not exist"):
        check(ProducerConfig.load(None, **kafka, source=missing))


def test_the_dead_letter_topic_is_named_with_the_missing_right(place, deny):
    line = check(place.config(poison="park"))[1]
    assert line.endswith("no epoch yet, would create dead-letter topic bank-dead-letter")

    place.create_topic("bank-dead-letter")
    for poison in ("stop", "park"):
        line = check(place.config(poison=poison))[1]
        assert line.endswith(", dead-letter topic bank-dead-letter")
    for denied, text in (
        ("WRITE", "to which this principal may not write: add the ACL Write"),
        ("READ", "which this principal may not read, as a redrive has to: add the ACL Read"),
    ):
        deny(denied, "bank-dead-letter")
        assert check(place.config())[1].endswith(f"bank-dead-letter, {text}")


def test_what_the_brokers_would_not_create_is_refused(place, monkeypatch):
    asked = []

    def refuse(topics, wanted, *, is_last):
        asked.extend((topics._only_asks, topic.topic, topic.replication_factor) for topic in wanted)
        if refused in {topic.topic for topic in wanted}:
            raise ConfigError("cannot create topic", topic=refused)
        return True

    monkeypatch.setattr(KafkaTopics, "_create", refuse)
    for refused in ("bank-progress", "bank.Users", "bank-dead-letter"):
        asked.clear()
        with pytest.raises(ConfigError, match=f"cannot create topic .*{refused}"):
            check(place.config(poison="park", replication_factor=3))
        assert asked[-1] == (True, refused, 3)
    check(place.config())
    place.require_untouched()


def test_what_run_would_refuse_is_refused(place, deny):
    with pytest.raises(ConfigError, match="Nowhere"):
        check(place.config(change_stream="Nowhere"))
    place.create_topic("bank.Users")
    place.record(started_here(place))
    for denied in ("bank-progress", "bank.Users"):
        deny("WRITE", denied)
        with pytest.raises(ConfigError, match=f"may not write to {denied}.*ACLs"):
            check(place.config())


def test_a_topic_that_was_created_again_is_refused(place):
    place.record(started(place.config().stream_path))
    with pytest.raises(StreamChangedError, match="'pid', now 'id-bank-progress'"):
        check(place.config())


def test_a_postgresql_database_is_found_without_a_setting(database):
    config = database(
        "pg",
        'CREATE TABLE "Users" ("Id" bigint PRIMARY KEY, "N" numeric)',
        'CREATE CHANGE STREAM "Feed" FOR "Users"',
        "CREATE ROLE reader",
        'GRANT SELECT ON CHANGE STREAM "Feed" TO reader',
        'GRANT EXECUTE ON FUNCTION spanner."read_json_Feed" TO reader',
        dialect="POSTGRESQL",
    )
    for role in ("", "reader"):
        line = check(config(database_role=role))[0]
        assert line == f"Spanner: {config().stream_path}, POSTGRESQL, watches Users"
    with pytest.raises(ConfigError, match=r"no change stream feed \(it has: Feed\)") as caught:
        check(config(change_stream="feed"))
    assert "CREATE CHANGE STREAM feed FOR ALL" in str(caught.value)


def test_a_table_that_cannot_be_published_is_named_once_the_stream_has_begun(place, database):
    config = database(
        "all",
        "CREATE TABLE Users (Id INT64) PRIMARY KEY (Id)",
        "CREATE TABLE Single (Id INT64) PRIMARY KEY ()",
        "CREATE CHANGE STREAM Feed FOR ALL",
    )()
    with pytest.raises(ConfigError, match="table Single: watched table has no primary key"):
        check(config)
    place.record(started_here(place, config))
    spanner, _, registry, _, _ = check(config)
    assert "watches Single, Users, cannot publish Single: watched table has no primary" in spanner
    assert "would register bank.Users-key, bank.Users-value" in registry


ODD = {
    "GOOGLE_STANDARD_SQL": (
        "VECTOR<FLOAT16, 3>",
        "CREATE TABLE Users (Id INT64, Name STRING(9), Odd FLOAT64) PRIMARY KEY (Id)",
        "CREATE TABLE Other (Id INT64, Odd FLOAT64) PRIMARY KEY (Id)",
        "CREATE CHANGE STREAM Feed FOR ALL",
        "CREATE CHANGE STREAM Part FOR Users(Name)",
    ),
    "POSTGRESQL": (
        "vector[3] of float16",
        'CREATE TABLE "Users" ("Id" bigint PRIMARY KEY, "Name" text, "Odd" float8)',
        'CREATE TABLE "Other" ("Id" bigint PRIMARY KEY, "Odd" float8)',
        'CREATE CHANGE STREAM "Feed" FOR ALL',
        'CREATE CHANGE STREAM "Part" FOR "Users"("Name")',
    ),
}
"""By dialect: a notation that nothing knows, and tables with a column that has it."""


@pytest.mark.rule("spanner-unknown-type")
@pytest.mark.parametrize("dialect", ODD)
def test_a_type_that_is_not_known_concerns_its_own_table_only(
    place, database, monkeypatch, dialect
):
    """No database has such a type yet: INFORMATION_SCHEMA's answer is changed on its way."""
    asked, (notation, *ddl) = SpannerChannels.execute_sql, ODD[dialect]

    def answer(channels, request, **more):
        result = asked(channels, request, **more)
        names = [field.name.lower() for field in result.metadata.row_type.fields]
        for row in result.rows if "spanner_type" in names else ():
            if row.values[names.index("column_name")].string_value == "Odd":
                row.values[names.index("spanner_type")].string_value = notation
        return result

    monkeypatch.setattr(SpannerChannels, "execute_sql", answer)
    config = database("odd", *ddl, dialect=dialect)
    # Neither another table nor a column that the stream does not watch keeps it from starting.
    assert check(config(change_stream="Part"))[0].endswith("watches Users")
    with pytest.raises(ConfigError) as caught:
        check(config())
    _, *lines = str(caught.value).splitlines()
    assert [line.split()[1] for line in lines] == ["Other:", "Users:"]
    assert all(notation in line and "do not watch this table" in line for line in lines)
    # The remedies.
    left_out = {"tables_left_out": "Other", "columns_left_out": "Users.Odd"}
    assert check(config(**left_out))[0].endswith("watches Users")
    # A stream that runs meets it in a record first.
    record = started_here(place, config())
    place.record(replace(record, body=replace(record.body, dialect=dialect)))
    assert check(config())[0].endswith("watches Other, Users")

    names = {
        name: place.settings[name] for name in ("project", "instance", "spanner_emulator_host")
    }
    found = discover_spanner(DiscoverConfig.load(None, **names, database=config().database))
    shown = {one.name: {field.name: field.type for field in one.fields} for one in found.objects}
    assert shown["Users"]["Odd"] == shown["Other"]["Odd"] == notation
    assert shown["Users"]["Id"] == "INT64"


def test_topics_that_kafka_takes_for_one_are_named_before_anything_is_created(place, database):
    config = database(
        "twins",
        "CREATE SCHEMA shop",
        "CREATE TABLE shop.Items (Id INT64) PRIMARY KEY (Id)",
        "CREATE TABLE shop_Items (Id INT64) PRIMARY KEY (Id)",
        "CREATE CHANGE STREAM Feed FOR ALL",
    )
    with pytest.raises(ConfigError) as caught:
        check(config())
    assert "Kafka does not create topic bank.shop_Items beside bank.shop.Items" in str(caught.value)
    assert "tables_left_out" in caught.value.hint
    # The remedy.
    alone = config(tables_left_out="shop_Items")
    assert check(alone)[0].endswith("watches shop.Items")
    place.create_topic("bank_shop.Items")
    with pytest.raises(ConfigError, match=r"bank\.shop\.Items beside bank_shop\.Items") as caught:
        check(alone)
    assert "Use another prefix" in caught.value.hint
    place.create_topic("bank.shop.Items")  # by hand, before the other one
    assert check(alone)[0].endswith("watches shop.Items")

    place.record(started_here(place, config()))
    text = "cannot publish shop_Items: Kafka does not create topic bank.shop_Items beside bank_shop"
    assert text in check(config())[0]
