"""A function that gets each batch before its release: what it is called with, in which order."""

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.batch.handed_rows import handed_batch
from tidegate.spark_consumer.core.batch_state import BEFORE_EVERYTHING_US
from tidegate.spark_consumer.sinks.batch_function import BatchFunctionSink
from tidegate.spark_consumer.sinks.handed_batch import BatchSink

pytestmark = pytest.mark.spark


@pytest.fixture
def topics(kit):
    return [
        kit.Topic(name, {n: {"id": "INT64", name: "STRING"}}, ["id"], key_id=10 + n)
        for n, name in enumerate("ab", 1)
    ]


def handed(kit, topics, *changes, number=7, through_us=5):
    """`changes` are (topic, change), in Kafka's order; offsets grow with them in each topic."""
    from tests.topics import ROWS_SCHEMA

    rows = [topic.row(change, ordinal=None) for topic, change in changes]
    rows = [(*row[:2], n, *row[3:]) for n, row in enumerate(rows)]
    frame = kit.spark.createDataFrame(rows, ROWS_SCHEMA).drop("ordinal").repartition(3)
    plan = SimpleNamespace(batch=number, query_id="q", through_us=through_us)
    return handed_batch(
        frame, plan=plan, topics={topic.topic: topic.topic_schemas() for topic in topics}
    )


def calls_of(batch):
    calls = []

    def keep(changes, batch):
        typed = {name: batch.table(name).collect() for name in batch.tables}
        calls.append((changes.collect(), typed, batch))

    sink = BatchFunctionSink(keep)
    sink.take(batch)
    return calls


@pytest.mark.rule("sink-function-key")
def test_changes_come_in_kafkas_order_for_each_key_not_in_commit_order(kit, topics):
    a, b = topics
    batch = handed(
        kit,
        topics,
        (a, kit.Change("INSERT", {"id": 1}, {"a": "x"}, us=30)),
        (b, kit.Change("INSERT", {"id": 9}, {"b": "y"}, us=10)),
        (a, kit.Change("INSERT", {"id": 2}, {"a": "z"}, us=20)),
        (a, kit.Change("DELETE", {"id": 1}, None, us=40)),
    )
    ((rows, typed, found),) = calls_of(batch)
    assert [(one.batch, one.table, one.offset, one.mod_type) for one in rows] == [
        (7, "a", 0, "INSERT"), (7, "a", 2, "INSERT"), (7, "a", 3, "DELETE"), (7, "b", 1, "INSERT"),
    ]  # fmt: skip
    assert [one.key.toPython() for one in rows] == [{"id": n} for n in (1, 2, 1, 9)]
    assert [one.new_values.a for one in typed["a"][:2]] == ["x", "z"]
    assert (found.number, found.query_id, found.rows, found.tables) == (7, "q", 4, ("a", "b"))
    assert found.watermark == datetime(1970, 1, 1, microsecond=5, tzinfo=UTC)


def test_a_known_table_without_a_change_is_empty_and_another_one_is_refused(kit, topics):
    batch = handed(kit, topics, (topics[0], kit.Change("INSERT", {"id": 1}, {"a": "x"})),
                   through_us=BEFORE_EVERYTHING_US)  # fmt: skip
    ((_, typed, found),) = calls_of(batch)
    assert (list(typed), found.table("b").count(), found.watermark) == (["a"], 0, None)
    with pytest.raises(ConfigError, match=r"no such table.*Known tables: a, b"):
        found.table("c")


def test_nothing_is_called_without_a_change_and_a_release_is_left_alone(kit, topics):
    assert calls_of(handed(kit, topics)) == []
    sink = BatchFunctionSink(print, name="mine")
    assert isinstance(sink, BatchSink)
    assert (sink.name, sink.write(kit.release(0, [], topics=topics))) == ("mine", {})


def test_what_a_function_raises_ends_the_batch(kit, topics):
    def fails(_changes, _batch):
        raise ValueError("mine")

    batch = handed(kit, topics, (topics[0], kit.Change("INSERT", {"id": 1}, {"a": "x"})))
    with pytest.raises(ValueError, match="mine"):
        BatchFunctionSink(fails).take(batch)
