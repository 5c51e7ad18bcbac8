"""The batch function on real Spark, with hand-made rows in place of Kafka.

A recording sink stands for the tables.  Kills are exceptions after any effect; afterwards
everything in memory is created again, as after a SIGKILL, and Spark starts the same batch with the
same rows.
"""

import itertools
import re
import shutil

import pytest

from tests.spark.batch.gate_world import ACCOUNTS, LEDGER, GateWorld
from tidegate.schemas.order_key import OrderKey
from tidegate.spark_consumer.errors import (
    ConflictingCopies,
    StreamPartitionIncomplete,
    TransactionIncomplete,
)

pytestmark = pytest.mark.spark

# One test of mismatches tries both ways before each merge, the others the small one.
LARGE_IN_THE_DEEP_RUN = pytest.param(0, marks=pytest.mark.deep)
PARTS = 3
"""Parts of the kills after each effect; one part is tried before each merge."""


class Killed(BaseException):
    """Stands for SIGKILL."""


@pytest.mark.rule("P5")
def test_changes_wait_for_the_watermark_and_come_in_commit_order(world):
    batch = world.start()
    log = world.log
    for commit_us in (30, 10, 20):
        log.change(commit_us)
    log.change(15, topic=LEDGER)
    state = world.run(batch)
    assert (state.watermark_us, world.released) == (-1, {})

    log.change(12, topic=LEDGER)
    log.beat(19)
    state = world.run(batch)
    assert state.watermark_us == 19
    assert world.order_us(0) == [10, 12, 15]
    assert [ordinal for _, ordinal, *_ in world.released[0]] == [0, 1, 2]
    assert [topic for _, _, topic, *_ in world.released[0]] == [ACCOUNTS, LEDGER, LEDGER]

    log.beat(100)
    state = world.run(batch)
    assert world.order_us(1) == [20, 30]
    assert state.segments == ()
    manifest = world.manifest(1)
    assert (manifest.after_us, manifest.through_us, manifest.rows) == (19, 100, 2)
    assert set(manifest.tables) == {"accounts", "ledger"}
    assert world.late == {}


@pytest.mark.rule("sink-whole-transactions", "P5")
def test_equal_timestamps_stay_together_in_their_own_order(world):
    stated = {"a": 2, "b": 1}
    for transaction, sequence, mod in (("b", 0, 0), ("a", 1, 1), ("a", 1, 0), ("a", 0, 0)):
        world.log.change(
            10, transaction=transaction, sequence=sequence, mod=mod, records=stated[transaction]
        )
    world.log.beat(10)
    world.run(world.start())
    keys = [OrderKey.decode(key) for key, *_ in world.released[0]]
    found = [(k.server_transaction_id, k.record_sequence[1], k.mod_number) for k in keys]
    assert found == [("a", 0, 0), ("a", 1, 0), ("a", 1, 1), ("b", 0, 0)]


def test_copies_of_a_change_count_once_also_from_a_segment(world):
    batch = world.start()
    world.log.change(10, copies=3)
    world.run(batch)
    world.log.change(10, copies=2)
    world.log.change(11)
    world.log.beat(50)
    world.run(batch)
    assert world.order_us(0) == [10, 11]
    # The first copy by offset is the one that stays.
    assert world.released[0][0][3] == 0
    assert world.manifest(0).copies == 4


def test_two_changes_with_one_order_key_stop_the_gate_before_anything_is_published(world):
    world.log.change(10)
    world.log.change(11, copies=2)
    *row, order_key, mod, origin = world.log.rows[-1]
    row[5] = world.log.rows[-3][5]
    world.log.rows[-1] = (*row, order_key, mod, origin)
    world.log.beat(50)
    with pytest.raises(ConflictingCopies, match=r"first='bank\.accounts/0/1', last='.*/0/2'"):
        world.run(world.start())
    assert (world.released, world.manifest(0)) == ({}, None)


@pytest.mark.parametrize("rows_max", [0, 100], ids=["large", "small"])
def test_a_transaction_without_its_other_table_stops_the_gate_or_is_recorded(
    spark, tmp_path, rows_max
):
    world = GateWorld(
        spark, tmp_path, small_release_rows_max=rows_max, small_release_bytes_max=10_000
    )
    world.log.change(10, records=2)
    world.log.change(10, records=2, topic=LEDGER, sequence=1)
    world.log.change(11, records=2)
    world.log.beat(50)
    with pytest.raises(TransactionIncomplete, match="expected=2, found=1") as caught:
        world.run(world.start())
    fields = caught.value.fields
    assert (fields["commit_timestamp_us"], fields["topics"]) == (11, (ACCOUNTS,))
    assert (world.released, world.manifest(0)) == ({}, None)
    # The same batch once more, under the other setting.
    world.records_mismatches = True
    batch, states = world.start(), []
    batch.finished = states.append
    world.ask(batch, 0)
    assert world.order_us(0) == [10, 10, 11]
    assert (world.manifest(0).mismatches, states[0].mismatches) == (1, 1)
    assert world.manifest(0).first_mismatches[0]["found"] == {"records": 1, "topics": [ACCOUNTS]}


@pytest.mark.parametrize("rows_max", [LARGE_IN_THE_DEEP_RUN, 100], ids=["large", "small"])
def test_a_transaction_that_is_lost_as_a_whole_stops_the_gate_where_its_marker_is_passed(
    spark, tmp_path, rows_max
):
    """The second of three transactions, in two batches, is lost."""
    world = GateWorld(
        spark, tmp_path, small_release_rows_max=rows_max, small_release_bytes_max=10_000
    )
    world.log.change(10)
    world.log.change(11, topic=LEDGER)
    world.log.rows.pop()
    batch = world.start()
    world.log.beat(11)
    world.run(batch)
    assert world.order_us(0) == [10]
    world.log.change(12)
    world.log.finish("t", end_us=20)
    world.log.beat(50, token="u")
    with pytest.raises(StreamPartitionIncomplete, match="changes are missing") as caught:
        world.run(batch)
    assert (caught.value.fields["token"], caught.value.fields["topic"]) == ("t", LEDGER)
    assert (world.order_us(0), world.manifest(1)) == ([10], None)
    world.records_mismatches = True
    batch, states = world.start(), []
    batch.finished = states.append
    world.ask(batch, 1)
    assert (world.order_us(1), world.manifest(1).mismatches) == ([12], 1)
    assert world.manifest(1).first_mismatches[0]["found"]["mods"] == 0
    assert (states[0].mismatches, set(states[0].origins.followed)) == (1, {"u"})


@pytest.mark.parametrize("rows_max", [LARGE_IN_THE_DEEP_RUN, 100], ids=["large", "small"])
def test_a_stream_partition_whose_changes_are_those_of_its_marker_is_released(
    spark, tmp_path, rows_max
):
    world = GateWorld(
        spark, tmp_path, small_release_rows_max=rows_max, small_release_bytes_max=10_000
    )
    batch = world.start()
    world.log.change(10, copies=2)
    world.log.beat(10)
    world.run(batch)
    world.log.change(12)
    world.log.change(11, topic=LEDGER)
    world.log.finish("t", end_us=20)
    world.log.beat(50, token="u")
    state = world.run(batch)
    assert (world.order_us(1), state.mismatches) == ([11, 12], 0)
    assert set(state.origins.followed) == {"u"}


def test_a_small_release_goes_either_way_with_the_same_rows(spark, tmp_path):
    world = GateWorld(spark, tmp_path, small_release_rows_max=6, small_release_bytes_max=10_000)
    batch = world.start()
    for commit_us in (30, 10, 20):
        world.log.change(commit_us, copies=2)
    world.run(batch)
    world.log.change(12, topic=LEDGER)
    world.log.beat(12)
    world.run(batch)
    # What the segment holds counts too: seven changes are read, with the copies.
    assert '"is_small":false' in (world.folder / "gate" / "plans" / "1.json").read_text()
    world.log.beat(50)
    world.run(batch)
    assert '"is_small":true' in (world.folder / "gate" / "plans" / "2.json").read_text()
    assert (world.order_us(0), world.order_us(1)) == ([10, 12], [20, 30])
    # The sink compares what it gets with what it has: Spark gives the same rows.
    (world.folder / "gate" / "states" / "2.json").unlink()
    world.collects = False
    world.ask(world.start(), 2)
    assert world.files("states") == ["0.json", "1.json", "2.json"]


@pytest.mark.rule("P6")
def test_a_late_change_is_set_aside_counted_and_never_released(world):
    batch = world.start()
    world.log.change(10)
    world.log.beat(20)
    world.run(batch)
    world.log.change(15)
    world.log.change(25)
    world.log.beat(30)
    state = world.run(batch)
    watermark_us, late = world.late[1]
    assert watermark_us == 20
    assert [int.from_bytes(key[:8], "big") for key, _ in late] == [15]
    assert world.order_us(1) == [25]
    assert state.late_rows == 1


@pytest.mark.rule("sink-whole-transactions")
def test_a_large_release_is_cut_and_its_parts_are_adjacent(spark, tmp_path):
    world = GateWorld(spark, tmp_path, release_rows_max=10)
    for commit_us in range(100, 140):
        world.log.change(commit_us)
    world.log.beat(200)
    state = world.run(world.start())
    assert state.next_release == len(world.released) >= 4
    together = [us for number in sorted(world.released) for us in world.order_us(number)]
    assert together == list(range(100, 140))
    assert max(len(rows) for rows in world.released.values()) <= 10
    bounds = [(world.manifest(n).after_us, world.manifest(n).through_us) for n in range(4)]
    assert all(a[1] == b[0] for a, b in itertools.pairwise(bounds))


@pytest.mark.deep
def test_a_stall_is_compacted_and_loses_nothing(spark, tmp_path):
    world = GateWorld(spark, tmp_path, segments_max=3, segment_rows_max=4)
    batch = world.start()
    expected = []
    for number in range(4):
        for commit_us in range(100 + number, 140, 7):
            world.log.change(commit_us)
            expected.append(commit_us)
        state = world.run(batch)
    assert len(state.segments) <= 6
    world.log.beat(130)
    world.run(batch)
    world.log.beat(500)
    state = world.run(batch)
    together = [us for number in sorted(world.released) for us in world.order_us(number)]
    assert together == sorted(expected)
    assert state.segments == ()
    world.run(batch)
    assert world.files("segments") == []


def test_a_replay_obeys_the_plan_it_finds_and_reads_no_progress(world):
    world.log.change(10)
    world.log.beat(10)
    world.run(world.start())
    reference = dict(world.released)
    (world.folder / "gate" / "states" / "0.json").unlink()
    # Compaction has taken progress records away, and the registry is gone.
    world.cuts[0].rows = [row for row in world.cuts[0].rows if not row[0]]
    world.ask(world.start(code="2", registry=object()), 0)
    assert world.released == reference
    assert world.files("states") == ["0.json"]


def scenario(world):
    """Two batches, and what a third with every kind of step is asked to do."""
    batch = world.start()
    log = world.log
    for commit_us in (10, 40, 41, 42, 60):
        log.change(commit_us)
    log.beat(9)
    world.run(batch)
    for commit_us in (11, 50, 51, 61):
        log.change(commit_us, topic=LEDGER)
    log.beat(20)
    world.run(batch)
    for commit_us in (15, 30, 31, 43, 70, 71):
        log.change(commit_us)
    log.beat(45)
    world.cut()


def of_any_writer(text):
    """Segments and frontiers are named after the run that wrote them; blanks name the call."""
    return re.sub(r'("(?:name|frontier)":"[0-9]+[^"/]*)/[0-9]+', r"\1", text.rstrip())


@pytest.mark.rule("sink-replay", "P5")
@pytest.mark.parametrize(
    "part",
    [
        pytest.param(part, marks=pytest.mark.deep if part else pytest.mark.slow)
        for part in range(PARTS)
    ],
)
def test_killed_anywhere_in_a_batch_the_replay_gives_the_same(spark, tmp_path, part):
    limits = {"release_rows_max": 3, "segments_max": 1}
    reference = GateWorld(spark, tmp_path / "reference", **limits)
    scenario(reference)
    before = dict(reference.released)
    shutil.copytree(tmp_path / "reference", tmp_path / "before")
    effects = []
    reference.ask(reference.start(lambda: effects.append(0)), 2)
    assert set(reference.late) == {2}
    assert len(reference.released) > len(before) + 1
    plan = (tmp_path / "reference" / "gate" / "plans" / "2.json").read_text()
    assert '"compaction":{' in plan
    assert len(effects) > 10

    for kill_at in range(part, len(effects), PARTS):
        world = GateWorld(spark, tmp_path / f"kill-{kill_at}", **limits)
        shutil.copytree(tmp_path / "before", world.folder)
        world.cuts, world.log, world.released = reference.cuts, reference.log, dict(before)
        countdown = iter(range(kill_at, -1, -1))

        def kill(countdown=countdown):
            if next(countdown) == 0:
                raise Killed

        with pytest.raises(Killed):
            world.ask(world.start(kill), 2)
        world.ask(world.start(), 2)
        assert world.released == reference.released
        assert world.late == reference.late
        for number in range(max(world.released) + 1):
            assert world.manifest(number) == reference.manifest(number)
        for name in ("plans/2.json", "states/2.json"):
            text = (world.folder / "gate" / name).read_text()
            expected = (tmp_path / "reference" / "gate" / name).read_text()
            assert of_any_writer(text) == of_any_writer(expected)
        assert world.files("segments") == reference.files("segments")
        shutil.rmtree(world.folder)


# ---------------------------------------------------------------- batches before their release


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
@pytest.mark.parametrize("rows_max", [0, pytest.param(1_000, marks=pytest.mark.deep)])
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


@pytest.mark.parametrize("rows_max", [0, pytest.param(1_000, marks=pytest.mark.deep)])
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
