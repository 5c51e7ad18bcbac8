"""Records of data topics that are no changes: they end the run, or are set aside exactly once."""

import pytest
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tests.spark.batch.gate_world import ACCOUNTS, LEDGER, GateWorld
from tests.spark.gate_rows import GATE_SCHEMA, change
from tidegate.spark_consumer.batch.bad_records import as_dead_letters
from tidegate.spark_consumer.errors import (
    StreamPartitionIncomplete,
    TransactionIncomplete,
    UndecodableRecord,
    UnknownSchema,
    UnorderedChange,
)

pytestmark = [pytest.mark.spark, pytest.mark.slow]

WAYS = pytest.mark.parametrize(
    "rows_max", [pytest.param(0, id="large"), pytest.param(100, marks=pytest.mark.deep, id="small")]
)


def world_of(spark, folder, rows_max, **named):
    return GateWorld(
        spark, folder, small_release_rows_max=rows_max, small_release_bytes_max=10_000, **named
    )


def alter(world, **fields):
    """Change the record that was written last; it stays in the totals of its marker."""
    names = ["is_progress", "topic", "topic_partition", "offset", "key", "value", "order_key"]
    row = dict(zip([*names, "mod", "origin"], world.log.rows[-1], strict=True))
    world.log.rows[-1] = tuple({**row, **fields}.values())


def cut_short(world):
    alter(world, value=bytearray(world.log.rows[-1][5][:7]))


def with_schema(world, schema_id):
    value = world.log.rows[-1][5]
    alter(world, value=bytearray(value[:4] + bytes([schema_id]) + value[5:]))


FAULTS = {
    "cut short": (cut_short, UndecodableRecord, "a value does not fit the schema"),
    "unknown schema": (
        lambda world: with_schema(world, 99), UnknownSchema, "a value names a schema that the reg",
    ),
    "schema of another topic": (
        lambda world: with_schema(world, 3), UnknownSchema, "not one of its topic",
    ),
    "not framed": (
        lambda world: alter(world, value=bytearray(b"{}")), UndecodableRecord,
        "a value does not begin with a schema id",
    ),
    "no key": (lambda world: alter(world, key=None), UndecodableRecord, "a key does not begin"),
    "no stream partition": (
        lambda world: alter(world, origin=None), UndecodableRecord, "names no stream partition",
    ),
}  # fmt: skip


@pytest.mark.rule("P6")
@WAYS
@pytest.mark.parametrize("fault", FAULTS)
def test_one_that_cannot_be_decoded_ends_the_run_and_is_set_aside_by_the_setting(
    spark, tmp_path, rows_max, fault
):
    """The batch's plan may be stored by then: it is followed."""
    spoil, kind, text = FAULTS[fault]
    world = world_of(spark, tmp_path, rows_max)
    world.log.change(10)
    world.log.change(11)
    spoil(world)
    world.log.change(12, topic=LEDGER)
    world.log.beat(50)
    with pytest.raises(UndecodableRecord, match=text) as caught:
        world.run(world.start())
    assert (type(caught.value), caught.value.exit_code) == (kind, 2)
    fields = caught.value.fields
    assert (fields["topic"], fields["topic_partition"], fields["offset"]) == (ACCOUNTS, 0, 1)
    assert (world.released, world.dead_letters, world.manifest(0)) == ({}, {}, None)

    world.sets_aside = True
    batch, states = world.start(), []
    batch.finished = states.append
    world.ask(batch, 0)
    assert world.order_us(0) == [10, 12]
    ((topic, topic_partition, offset, key, value, headers, reason),) = world.dead_letters[0]
    assert (topic, topic_partition, offset) == (ACCOUNTS, 0, 1)
    row = next(row for row in world.cuts[0].rows if row[1] == ACCOUNTS and row[3] == 1)
    assert (key, value) == (row[4] and bytes(row[4]), bytes(row[5]))
    assert headers[0] == ("order", bytes(row[6]))
    assert reason.startswith(("a value ", "a key ", "a change "))
    assert states[0].dead_letters == 1
    assert world.manifest(0).rows == 2


@WAYS
def test_foreign_records_end_the_run_and_are_set_aside_with_their_batch(spark, tmp_path, rows_max):
    world = world_of(spark, tmp_path, rows_max)
    world.log.change(10)
    world.log.foreign(b"hello", key=b"k")
    world.log.foreign(b"{}", headers=(("order", b"short"), ("x", b"")))
    world.log.beat(50)
    with pytest.raises(UnorderedChange, match=r"rows=2, first='bank\.accounts/0/1'") as caught:
        world.run(world.start())
    assert caught.value.exit_code == 2
    assert (world.files("plans"), world.files("states"), world.dead_letters) == ([], [], {})

    world.sets_aside = True
    batch, states = world.start(), []
    batch.finished = states.append
    world.ask(batch, 0)
    assert world.order_us(0) == [10]
    reason = "its first header is no order key"
    assert world.dead_letters == {
        ("batch", 0): [
            (ACCOUNTS, 0, 1, b"k", b"hello", [("trace", b"7")], reason),
            (ACCOUNTS, 0, 2, None, b"{}", [("order", b"short"), ("x", b"")], reason),
        ]
    }
    assert states[0].dead_letters == 2
    # A replay follows the plan, whatever the setting is by then.
    world.sets_aside = False
    (world.folder / "gate" / "states" / "0.json").unlink()
    world.ask(world.start(), 0)
    assert world.files("states") == ["0.json"]


@WAYS
def test_one_that_waits_is_set_aside_with_the_release_that_it_would_be_in(
    spark, tmp_path, rows_max
):
    world = world_of(spark, tmp_path, rows_max)
    world.sets_aside = True
    batch = world.start()
    world.log.change(30)
    world.log.change(31)
    cut_short(world)
    state = world.run(batch)
    assert (state.dead_letters, world.dead_letters) == (0, {})
    world.log.change(32)
    cut_short(world)
    world.log.change(33)
    world.log.beat(50)
    state = world.run(batch)
    assert world.order_us(0) == [30, 33]
    assert [row[2] for row in world.dead_letters[0]] == [1, 2]
    assert (state.dead_letters, state.waiting_rows) == (2, 0)


@WAYS
def test_a_copy_that_cannot_be_decoded_is_no_conflict_and_loses_nothing(spark, tmp_path, rows_max):
    world = world_of(spark, tmp_path, rows_max)
    world.sets_aside = True
    world.log.change(10, copies=2)
    cut_short(world)
    world.log.finish("t", end_us=20)
    world.log.beat(50, token="u")
    state = world.run(world.start())
    assert (world.order_us(0), [row[2] for row in world.dead_letters[0]]) == ([10], [1])
    assert (state.mismatches, world.manifest(0).mismatches) == (0, 0)


@WAYS
def test_a_topic_with_nothing_else_is_read_and_its_records_are_set_aside(spark, tmp_path, rows_max):
    world = world_of(spark, tmp_path, rows_max)
    world.sets_aside = True
    world.log.change(10)
    world.log.change(11, topic=LEDGER)
    with_schema(world, 99)
    world.log.beat(50)
    world.run(world.start())
    assert world.order_us(0) == [10]
    (row,) = world.dead_letters[0]
    assert (row[0], row[-1]) == (LEDGER, "no record of its topic names a schema that is known")
    # The plan names no schema of the topic: without the setting, a replay loses nothing either.
    world.sets_aside = False
    (world.folder / "gate" / "states" / "0.json").unlink()
    with pytest.raises(UnknownSchema, match=r"bank\.ledger"):
        world.ask(world.start(), 0)


@WAYS
def test_a_transaction_that_lacks_a_dead_letter_ends_the_run_or_is_recorded(
    spark, tmp_path, rows_max
):
    """A dead letter that was a change: nothing says that the output is complete."""
    world = world_of(spark, tmp_path, rows_max)
    world.sets_aside = True
    world.log.change(10, records=2)
    world.log.change(10, records=2, topic=LEDGER, sequence=1)
    cut_short(world)
    world.log.change(11)
    world.log.beat(50)
    with pytest.raises(TransactionIncomplete, match="expected=2, found=1") as caught:
        world.run(world.start())
    assert "dead_letters has 1 records" in caught.value.hint
    assert (world.released, world.manifest(0), len(world.dead_letters[0])) == ({}, None, 1)
    world.records_mismatches = True
    batch, states = world.start(), []
    batch.finished = states.append
    world.ask(batch, 0)
    assert world.order_us(0) == [10, 11]
    assert world.manifest(0).mismatches == 1
    assert (states[0].mismatches, states[0].dead_letters) == (1, 1)


@WAYS
def test_a_transaction_that_is_set_aside_as_a_whole_is_missing_at_its_marker(
    spark, tmp_path, rows_max
):
    world = world_of(spark, tmp_path, rows_max)
    world.sets_aside = True
    batch = world.start()
    world.log.change(10)
    world.log.change(11, topic=LEDGER)
    cut_short(world)
    world.log.beat(11)
    world.run(batch)
    assert world.order_us(0) == [10]
    world.log.finish("t", end_us=20)
    world.log.beat(50, token="u")
    with pytest.raises(StreamPartitionIncomplete, match="changes are missing") as caught:
        world.run(batch)
    assert (caught.value.fields["token"], caught.value.fields["topic"]) == ("t", LEDGER)
    assert "dead_letters has 1 records" in caught.value.hint


def test_the_headers_that_the_gate_has_read_are_kept(spark):
    rows = [(*change(5, 7), "why"), (*change(5, 8)[:7], None, None, "why")]
    frame = spark.createDataFrame(rows, f"{GATE_SCHEMA}, reason string")
    negative = frame.withColumn("origin", F.when(F.col("origin") == 7, F.lit(-2)))
    found = as_dead_letters(negative).orderBy("offset").collect()
    assert [[header.key for header in row.headers] for row in found] == [
        ["order", "mod", "origin"], ["order"],
    ]  # fmt: skip
    assert found[0].headers[2].value == (-2).to_bytes(8, "big", signed=True)
