"""From framed Avro to the columns of a change, and to one frame over all tables."""

import io
import json
import random
from dataclasses import replace
from datetime import UTC, datetime
from itertools import product

import fastavro
import pytest
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom
from pyspark.sql.avro.functions import from_avro

from tests.simulation.gate_decoding import ChangeReader
from tests.simulation.tables import KEY
from tests.spark.sinks.delta.test_both_ways import COLUMNS as EVERY_TYPE
from tests.topics import ROWS_SCHEMA, Change, Topic
from tidegate.schemas.errors import SchemaError
from tidegate.spark_consumer.batch.bad_records import naming_undecodable
from tidegate.spark_consumer.errors import TransactionTooLarge
from tidegate.spark_consumer.sinks import released_frame
from tidegate.spark_consumer.sinks.decoding import (
    CHANGE_COLUMNS,
    avro_column,
    decode_changes,
    decode_stated,
    why_unreadable,
)
from tidegate.spark_consumer.sinks.released_frame import (
    changes_of,
    json_transactions_of,
    transaction_records,
    transactions_of,
    wide_rows,
)
from tidegate.spark_consumer.sinks.row_decoding import find_undecodable
from tidegate.spark_consumer.sinks.spark_types import as_nullable, change_type

pytestmark = pytest.mark.spark


VERSIONS = {
    2: {KEY: "INT64", "a": "INT64", "b": "STRING(MAX)"},
    3: {KEY: "INT64", "b": "STRING(MAX)"},
    4: {KEY: "INT64", "b": "STRING(MAX)", "c": "BYTES(MAX)"},
}
"""A column is dropped, a worker starts and registers the table without it, a column is added."""


def drawn(chance, number):
    value_id = chance.choice(list(VERSIONS))
    mod = chance.choice(("INSERT", "UPDATE", "DELETE"))
    values = {"a": number, "b": f"text {number}", "c": b"%d" % number}
    names = [name for name in VERSIONS[value_id] if name != KEY]
    shown = names if mod == "INSERT" else chance.sample(names, chance.randint(1, len(names)))
    new = {name: chance.choice((values[name], None)) for name in shown}
    return Change(
        mod, {KEY: number}, None if mod == "DELETE" else new, us=number, value_id=value_id,
        token=f"token {number % 7}", is_older=chance.random() < 0.5,
    )  # fmt: skip


def test_a_change_has_the_columns_that_its_writer_captured(spark):
    """Every version is read, also what only an earlier one has; the simulation reads the same."""
    topic, chance = Topic("t", VERSIONS, [KEY]), random.Random(5)
    changes = [drawn(chance, number) for number in range(60)]
    rows = [topic.row(change, ordinal=n) for n, change in enumerate(changes)]
    schemas = topic.topic_schemas()
    frame = spark.createDataFrame(rows, ROWS_SCHEMA).withColumn("release", F.lit(7))
    reader = ChangeReader(schemas)

    decoded = decode_changes(frame, schemas, topic=topic.topic).orderBy("ordinal")

    assert tuple(decoded.columns) == CHANGE_COLUMNS
    for real, row, change in zip(decoded.collect(), rows, changes, strict=True):
        _, _, _, key, value, order_key, _, origin, ordinal = row
        simulated = reader.read(
            bytes(key), bytes(value), release=7, ordinal=ordinal, order_key=bytes(order_key),
            origin=origin,
        )  # fmt: skip
        values = real["new_values"].asDict() if real["new_values"] else {}
        names = real["new_columns"] or values
        captured = {name: values[name] for name in names if name != KEY}
        captured = {n: bytes(v) if isinstance(v, bytearray) else v for n, v in captured.items()}
        assert captured == dict(simulated.columns) == (change.new or {})
        assert (real["mod_type"][0], b"%d" % real["key"][KEY]) == (simulated.mod, simulated.key)
        assert real["origin"] == simulated.origin == change.origin
        assert real["value_bytes"] == len(value)
        assert (real["release"], real["ordinal"]) == (simulated.release, simulated.ordinal)


COLUMNS = {"id": "INT64", "t": "STRING"}
TOPIC = Topic(
    "a",
    {1: COLUMNS, 2: {**COLUMNS, "n": "ARRAY<INT64>"}},
    ["id"],
)
NAMES = [one.split()[0] for one in ROWS_SCHEMA.split(", ")]


def cut(value):
    return value[:9]


def other_id(value):
    return value[:4] + b"\x63" + value[5:]


def key_id(value):
    return value[:4] + b"\x64" + value[5:]


FAULTS = {
    "none": ({}, None),
    "value cut short": ({"value": cut}, "a value does not fit the schema that it names"),
    "garbage": ({"value": lambda v: v[:5] + b"\xff" * 20}, "a value does not fit"),
    "no body": ({"value": lambda v: v[:5]}, "a value does not fit the schema that it names"),
    "value of another schema": ({"value": other_id}, "a value has a schema id that the plan does"),
    "a key's id": ({"value": key_id}, "a value has a schema id that the plan does not name"),
    "JSON": ({"value": lambda _v: b'{"id": 1}'}, "a value does not begin with a schema id"),
    "short": ({"value": lambda _v: b"\0\0"}, "a value does not begin with a schema id"),
    "key cut short": ({"key": lambda k: k[:5]}, "a key does not fit the schema that it names"),
    "no key": ({"key": lambda _k: None}, "a key does not begin with a schema id"),
    "no origin": ({"origin": lambda _o: None}, "a change names no stream partition"),
}


def row(number, change, alter, topic=TOPIC):
    fields = dict(zip(NAMES, topic.row(change, ordinal=number), strict=True))
    for name, change_it in alter.items():
        value = fields[name]
        new = change_it(bytes(value) if isinstance(value, bytearray) else value)
        fields[name] = bytearray(new) if isinstance(new, bytes) else new
    return tuple(fields.values())


@pytest.fixture(scope="module")
def rows():
    """A record of each fault, then ones that look odd and can be decoded."""
    change = Change("UPDATE", {"id": 7}, {"id": 7, "t": "x" * 40})
    odd = [
        Change("INSERT", {"id": None}, {"id": None, "t": None}),
        Change("DELETE", {"id": 7}, None),
        Change("UPDATE", {"id": 7}, {"id": 7, "t": "older"}, value_id=1),
        Change("INSERT", {"id": 1}, {"id": 1, "t": "x", "n": [1, 2]}, is_older=True),
    ]
    faulty = [row(n, change, alter) for n, (alter, _) in enumerate(FAULTS.values())]
    return faulty + [row(len(faulty) + n, one, {}) for n, one in enumerate(odd)]


def test_each_fault_has_its_reason_and_everything_else_has_none(spark, rows):
    frame = spark.createDataFrame(rows, ROWS_SCHEMA)
    found = frame.select("ordinal", why_unreadable(TOPIC.topic_schemas()).alias("why"))
    reasons = [row["why"] for row in found.orderBy("ordinal").collect()]
    texts = [text for _, text in FAULTS.values()]
    assert [reason is None for reason in reasons] == [
        *(text is None for text in texts), *[True] * (len(rows) - len(texts)),
    ]  # fmt: skip
    for reason, text in zip(reasons, texts, strict=False):
        assert text is None or reason.startswith(text)


def test_the_driver_gives_the_same_reasons(spark, rows):
    frame = spark.createDataFrame(rows, ROWS_SCHEMA)
    found = frame.withColumn("why", why_unreadable(TOPIC.topic_schemas()))
    by_spark = {row["ordinal"]: row["why"] for row in found.collect() if row["why"] is not None}
    records = [dict(zip(NAMES, one, strict=True)) for one in rows]
    by_driver = {
        record["ordinal"]: error.message
        for record, error in find_undecodable(records, TOPIC.topic_schemas())
    }
    assert by_spark == by_driver


@pytest.mark.parametrize("fault", ["value cut short", "value of another schema", "no origin"])
def test_it_is_named_by_its_place_and_any_other_error_is_left_alone(spark, fault):
    """Three records of each table; the second one of the second table has the fault."""
    alter, text = FAULTS[fault]
    topics = [TOPIC, Topic("b", {1: COLUMNS}, ["id"])]
    change = Change("INSERT", {"id": 7}, {"id": 7, "t": "x" * 40}, value_id=1)
    rows = [
        row(n, change, alter if (topic, n) == (topics[1], 1) else {}, topic)
        for topic in topics
        for n in range(3)
    ]
    frame = spark.createDataFrame(rows, ROWS_SCHEMA).withColumn("release", F.lit(4).cast("long"))
    known = {topic.topic: topic.topic_schemas() for topic in topics}
    reads = [lambda: decode_changes(frame, known["bank.b"], topic="bank.b")]
    if fault == "value cut short":  # found by the count of transactions, too
        reads.append(lambda: decode_stated(frame, known.values()))
    for read in reads:
        with (
            pytest.raises(SchemaError, match=text) as caught,
            naming_undecodable(frame, known, release=4),
        ):
            read().collect()
        found = caught.value.fields
        assert (found["table"], found["topic_partition"], found["offset"]) == ("b", 0, 2)
        assert "other writer" in str(caught.value)
    with pytest.raises(ValueError, match="mine"), naming_undecodable(frame, {}, release=4):
        raise ValueError("mine")


WRITER = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "long"}]}
READER = {
    **WRITER,
    "fields": [*WRITER["fields"], {"name": "b", "type": ["null", "string"], "default": None}],
}


def body(a):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, WRITER, {"a": a})
    return bytearray(out.getvalue())


@pytest.mark.parametrize("mode", ["FAILFAST", "PERMISSIVE"])
def test_it_is_what_the_function_of_pyspark_returns(spark, mode):
    bodies = [body(n) for n in (0, 5, -7)] + ([bytearray()] if mode == "PERMISSIVE" else [])
    frame = spark.createDataFrame([(one,) for one in bodies], "body binary")
    options = {"mode": mode, "avroSchema": json.dumps(READER)}
    found = frame.select(avro_column(F.col("body"), WRITER, options).alias("r"))
    expected = frame.select(from_avro("body", json.dumps(WRITER), options).alias("r"))

    assert found.collect() == expected.collect()
    assert found.schema == expected.schema


def test_its_options_are_a_value_that_all_copies_of_a_plan_can_share(spark):
    """PySpark's are an expression, whose builder two threads must not use at once."""
    frame = spark.createDataFrame([(body(1),)], "body binary")

    def kinds(column):
        """The classes of what the function is given."""
        plan = frame.select(column.alias("r"))._jdf.queryExecution().analyzed()
        given = plan.projectList().head().child().children()
        return [given.apply(n).getClass().getSimpleName() for n in range(given.length())]

    options = {"mode": "FAILFAST"}
    assert kinds(from_avro("body", json.dumps(WRITER), options))[-1] == "CreateMap"
    assert kinds(avro_column(F.col("body"), WRITER, options))[-1] == "Literal"


def test_the_types_are_those_of_the_decoded_frame_and_no_others(kit):
    topic = kit.Topic("t", {1: EVERY_TYPE, 2: {**EVERY_TYPE, "added": "ARRAY<BOOL>"}}, ["n", "id"])
    one = kit.release(0, [], topics=[topic]).tables["bank.t"]
    assert as_nullable(change_type(one.schemas)) == as_nullable(one.frame.schema)
    topic.key_schema = {"type": "record", "name": "Key", "fields": [{"name": "a", "type": "Who"}]}
    with pytest.raises(SchemaError, match="Who"):
        change_type(topic.topic_schemas())


# ---------------------------------------------------------------- one frame over all tables


@pytest.fixture
def release(kit):
    topics = [
        kit.Topic(name, {n: {"id": "INT64", name: "INT64"}}, ["id"], key_id=10 + n)
        for n, name in enumerate("ab", 1)
    ]
    changes = [
        (
            topics[us % 2],
            kit.Change("UPDATE", {"id": us}, {"id": us}, us=us, transaction=f"t{us // 3}"),
        )
        for us in range(12, 40)
    ]
    return kit.release(0, changes)


@pytest.mark.parametrize("one_task_max", [1, 1_000])
def test_rows_come_in_commit_order(kit, release, monkeypatch, one_task_max):
    monkeypatch.setattr(released_frame, "_ONE_TASK_MAX", one_task_max)
    frame = changes_of(release, kit.spark)
    assert [row.ordinal for row in frame.collect()] == list(range(28))
    assert (frame.rdd.getNumPartitions() == 1) == (one_task_max > 28)
    rows = transactions_of(release, kit.spark).collect()
    assert [change.ordinal for row in rows for change in row.changes] == list(range(28))


def test_a_release_without_changes_has_the_same_columns(kit, release):
    empty = kit.release(0, [])
    for make in (changes_of, transactions_of):
        of_nothing, of_some = make(empty, kit.spark), make(release, kit.spark)
        assert of_nothing.count() == 0
        assert of_nothing.schema.simpleString() == of_some.schema.simpleString()


def test_a_task_has_so_many_changes_however_large_the_release(kit, release, monkeypatch):
    """The driver reads one task at a time, and a task sorts what it has."""
    monkeypatch.setattr(released_frame, "_ONE_TASK_MAX", 4)
    changes = changes_of(release, kit.spark)
    counted = changes.groupBy(F.spark_partition_id().alias("task")).count().collect()
    assert max(row["count"] for row in counted) <= 8
    transactions = json_transactions_of(release, kit.spark)
    sizes = transactions.select(F.spark_partition_id().alias("task"), F.size("changes").alias("n"))
    found = sizes.groupBy("task").agg(F.sum("n").alias("n")).collect()
    assert max(row["n"] for row in found) <= 12


def test_a_task_has_so_many_bytes_however_few_the_changes(kit, release, monkeypatch):
    """The driver reads one task at a time: 100,000 changes of a release may have 512 MiB."""
    monkeypatch.setattr(released_frame, "_ONE_TASK_BYTES_MAX", release.value_bytes // 7)
    for make in (changes_of, transactions_of, json_transactions_of):
        frame = make(release, kit.spark).groupBy(F.spark_partition_id().alias("task")).count()
        assert frame.count() >= 5


def test_a_transaction_that_no_row_can_hold_is_refused(kit, release, monkeypatch):
    """Such a transaction is a backfill's; Spanner's own are smaller."""
    context = kit.spark.sparkContext
    context.setJobGroup("sums", "sums")
    try:
        for make in (transactions_of, json_transactions_of):
            make(release, kit.spark)
        # A release that is smaller than the limit has no transaction above it.
        assert not context.statusTracker().getJobIdsForGroup("sums")
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
    monkeypatch.setattr(released_frame, "TRANSACTION_BYTES_MAX", 10)
    # Few changes may be large too: a key range of a backfill has 10,000 rows at least.
    for make, one in product(
        (transactions_of, json_transactions_of), (release, replace(release, value_bytes=None))
    ):
        with pytest.raises(TransactionTooLarge, match="ordered_topic_order") as error:
            make(one, kit.spark)
        assert (error.value.fields["changes"], error.value.fields["bytes_max"]) == (1, 10)
    # With a row for each change nothing is too large.
    assert changes_of(release, kit.spark).count() == release.rows


def test_the_session_is_as_before_when_wide_rows_are_made(kit):
    before = {name: kit.spark.conf.get(name, None) for name in released_frame.WIDE_ROWS}
    with wide_rows(kit.spark):
        assert all(kit.spark.conf.get(name) == "1" for name in before)
    assert {name: kit.spark.conf.get(name, None) for name in before} == before


A = {2: {"id": "INT64", "a": "STRING"}}
B = {4: {"id": "INT64", "at": "TIMESTAMP"}}
AT = datetime(2026, 1, 1, microsecond=7, tzinfo=UTC)


@pytest.mark.rule("sink-topic-transaction")
@pytest.mark.parametrize("small", [False, True])
def test_each_transaction_is_a_record_over_all_tables_in_commit_order(kit, small):
    a, b = kit.Topic("a", A, ["id"], key_id=1), kit.Topic("b", B, ["id"], key_id=3)
    changes = [
        (b, kit.Change("INSERT", {"id": 1}, {"at": AT}, us=3, transaction="t2")),
        (a, kit.Change("INSERT", {"id": 7}, {"a": None}, us=2)),
        (a, kit.Change("DELETE", {"id": 7}, None, us=3, transaction="t2", sequence=1)),
    ]
    found = list(transaction_records(kit.release(4, changes, small=small)))
    assert [(one.first_ordinal, one.changes, one.key) for one in found] == [
        (0, 1, b"t1"), (1, 2, b"t2"),
    ]  # fmt: skip
    first, second = (json.loads(one.value) for one in found)
    assert first["commit_timestamp"] == "1970-01-01T00:00:00.000002Z"
    assert first["changes"][0]["new_values"] == {"id": 7, "a": None}
    assert [(one["table"], one["mod_type"]) for one in second["changes"]] == [
        ("b", "INSERT"), ("a", "DELETE"),
    ]  # fmt: skip
    assert second["changes"][0]["new_values"] == {"id": 1, "at": "2026-01-01T00:00:00.000007Z"}
    assert second["changes"][1]["new_values"] is None
