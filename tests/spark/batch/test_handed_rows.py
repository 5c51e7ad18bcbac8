"""The changes of a batch before their release: on real Spark, in batches with kills."""

from __future__ import annotations

import pytest

from tests.spark.batch.gate_world import ACCOUNTS, LEDGER, GateWorld
from tidegate.schemas.errors import SchemaError
from tidegate.spark_consumer.sinks.delta.changelog_by_key import DeltaChangelogByKeySink
from tidegate.spark_consumer.sinks.delta.mirror_by_key import DeltaMirrorByKeySink

pytestmark = pytest.mark.spark


class Killed(BaseException):
    """Stands for SIGKILL."""


class Taker:
    """A sink that keeps what it is handed."""

    name = "taker"

    def __init__(self):
        self.taken = []
        self.dies = False

    def open(self, *, query_id, release_max):
        """Nothing to check."""

    def take(self, batch):
        rows = [
            (topic, one.offset, one.commit_timestamp.microsecond, one.batch)
            for topic, table in sorted(batch.tables.items())
            for one in table.frame.orderBy("offset").collect()
        ]
        counts = {topic: table.rows for topic, table in batch.tables.items() if table.rows}
        self.taken.append((batch.number, batch.watermark_us, counts, rows))
        if self.dies:
            self.dies = False
            raise Killed

    def write(self, release):
        return {}


@pytest.mark.rule("sink-function-key")
@pytest.mark.parametrize("rows_max", [0, 1_000])
def test_each_batch_is_handed_over_before_the_watermark_and_again_after_a_kill(
    spark, tmp_path, rows_max
):
    world = GateWorld(
        spark, tmp_path, small_release_rows_max=rows_max, small_release_bytes_max=1 << 20
    )
    taker = Taker()
    world.further = (taker,)
    log = world.log
    for commit_us in (30, 10):
        log.change(commit_us)
    log.change(15, topic=LEDGER)
    taker.dies = True
    batch = world.start()
    with pytest.raises(Killed):
        world.run(batch)
    batch = world.start()
    world.ask(batch, 0)
    first = (0, -1, {ACCOUNTS: 2, LEDGER: 1}, [
        (ACCOUNTS, 0, 30, 0), (ACCOUNTS, 1, 10, 0), (LEDGER, 0, 15, 0),
    ])  # fmt: skip
    assert taker.taken == [first, first]
    assert world.released == {}

    log.change(40)
    log.beat(30)
    world.run(batch)
    assert taker.taken[2:] == [(1, 30, {ACCOUNTS: 1}, [(ACCOUNTS, 2, 40, 1)])]
    assert world.order_us(0) == [10, 15, 30]


def test_a_record_that_cannot_be_decoded_is_named_and_ends_the_batch(spark, tmp_path):
    world = GateWorld(spark, tmp_path)
    world.further = (Taker(),)
    world.log.change(10)
    world.log.change(20)
    broken = list(world.log.rows[-1])
    broken[5] = broken[5][:9]
    world.log.rows[-1] = tuple(broken)
    with pytest.raises(SchemaError, match="does not fit the schema") as caught:
        world.run(world.start())
    assert caught.value.fields["offset"] == 1


@pytest.mark.parametrize("rows_max", [0, 1_000])
def test_records_that_are_no_changes_are_set_aside_and_the_others_handed_over(
    spark, tmp_path, rows_max
):
    world = GateWorld(
        spark, tmp_path, small_release_rows_max=rows_max, small_release_bytes_max=1 << 20
    )
    world.sets_aside = world.records_mismatches = True
    taker = Taker()
    world.further = (taker,)
    world.log.change(10)
    world.log.foreign()
    world.log.change(20)
    broken = list(world.log.rows[-1])
    broken[5] = broken[5][:9]
    world.log.rows[-1] = tuple(broken)
    world.log.change(30)
    world.log.beat(50)
    world.run(world.start())
    assert taker.taken == [
        (0, 50, {ACCOUNTS: 2}, [(ACCOUNTS, 0, 10, 0), (ACCOUNTS, 3, 30, 0)]),
    ]
    assert world.order_us(0) == [10, 30]
    assert sorted(offset for rows in world.dead_letters.values() for _, _, offset, *_ in rows) == [
        1, 2,
    ]  # fmt: skip


@pytest.mark.rule("sink-changelog-by-key", "sink-mirror-by-key")
def test_tables_by_key_have_each_change_once_after_a_kill_and_manifests_name_them(spark, tmp_path):
    world = GateWorld(spark, tmp_path)
    output = str(tmp_path / "output")
    taken = []

    def start():
        sinks = (DeltaChangelogByKeySink(spark, output), DeltaMirrorByKeySink(spark, output))
        for sink in sinks:
            sink.open(query_id="q", release_max=len(world.cuts) - 1)
        world.further = (*sinks, dying)
        return world.start()

    dying = Taker()
    dying.dies = True
    for commit_us in (30, 10):
        world.log.change(commit_us)
    with pytest.raises(Killed):
        world.run(start())
    world.ask(start(), 0)
    world.log.change(40)
    world.log.beat(30)
    world.run(start())
    for folder in ("changelog_by_key", "mirror_by_key"):
        rows = spark.read.format("delta").load(f"{output}/{folder}/accounts")
        at = "key.id" if folder == "changelog_by_key" else "id"
        assert sorted(row[0] for row in rows.select(at).collect()) == [10, 30, 40]
        taken.append(world.manifest(0).tables["accounts"][folder].version)
    assert world.order_us(0) == [10, 30]
    assert taken == [2, 2]  # its creation, and a commit for each batch
