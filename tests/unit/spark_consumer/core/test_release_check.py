"""A release is held against its transactions and its markers, which no dead letter satisfies."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from tests.unit.spark_consumer.core.core_building import (
    DATA,
    DUE,
    IDS,
    NO_PLAN,
    PARKED,
    STORED,
    as_json,
    begin,
    decided,
    ends,
    marked,
    replayed,
)
from tidegate.schemas.checksums import xxhash_64
from tidegate.schemas.progress import (
    ChecksumKind,
    ChildPartition,
    PartitionAnnounced,
    PartitionFinished,
    PartitionGap,
    TopicTotals,
)
from tidegate.spark_consumer.core.batch_effects import (
    DescribeTopics,
    StoreFrontier,
)
from tidegate.spark_consumer.core.batch_state import State
from tidegate.spark_consumer.core.limits import Limits
from tidegate.spark_consumer.core.origin_ledger import (
    ALL_AGREE,
    NO_NEWS,
    NOTHING_FOLLOWED,
    Followed,
    MarkerChunk,
    MarkerNews,
    NewsReader,
    OriginLedger,
    fault_of,
)
from tidegate.spark_consumer.core.plan import Plan
from tidegate.spark_consumer.core.proof import Fault
from tidegate.spark_consumer.core.release import BatchStats, Distribution
from tidegate.spark_consumer.core.release_check import ReleaseCheck
from tidegate.spark_consumer.core.sums import OriginSum, ReleaseCount, signed_origin, sum_by_origin
from tidegate.spark_consumer.core.transactions import (
    ALL_WHOLE,
    LISTED_MAX,
    TransactionCount,
    TransactionFaults,
    TransactionJudge,
    count_transactions,
)
from tidegate.spark_consumer.errors import (
    ChangesNotConserved,
    StreamPartitionIncomplete,
    TransactionIncomplete,
)
from tidegate.spark_consumer.errors import with_dead_letters as with_dead_letters_hint

A, B = "bank.a", "bank.b"
TWO, ONE = OriginSum(2, 20, 7), OriginSum(1, 10, 3)
TOKEN = signed_origin("t")


# ---------------------------------------------------------------- transactions
def changes(*records, us=10, transaction="t", states=2, topic="bank.a"):
    return [(us, transaction, record, states, topic) for record in records]


LACKING = TransactionCount(10, "t", 1, 2, 2, ("bank.a",))

ADDED = TransactionCount(10, "t", 3, 2, 2, ("bank.a",))


@pytest.mark.rule("spanner-record-count")
def test_too_few_and_too_many_records_are_counted_apart_and_name_their_topics():
    faults = count_transactions(
        [
            *changes("0"),
            *changes("0", us=11, topic="bank.b"),
            *changes("1", "2", us=11),
            *changes("0", "1", us=12),
        ]
    )
    assert faults == TransactionFaults(
        1, 1, (LACKING, TransactionCount(11, "t", 3, 2, 2, ("bank.a", "bank.b")))
    )
    assert faults.number == 2


def test_in_an_accepted_gap_records_may_be_missing_and_none_too_many():
    gaps = (PartitionGap("p", 1, 3, "ops", 0), PartitionGap("q", 10, 12, "ops", 0))
    lacking = [change for us in (9, 10, 11, 12) for change in changes("0", us=us)]
    added = changes("0", "1", "2", us=11, transaction="u")
    faults = count_transactions([*lacking, *added], gaps=gaps)
    assert (faults.lacking, faults.others) == (2, 1)
    assert [count.commit_us for count in faults.listed] == [9, 11, 12]


def test_records_that_state_different_numbers_are_no_whole_transaction():
    for found in (("0",), ("0", "1")):
        (count,) = count_transactions(changes(*found) + changes("1", states=3)).listed
        assert (count.found, count.least, count.most) == (2, 2, 3)
    # A name that comes again at another time is another transaction.
    assert count_transactions(changes("0", states=1) + changes("0", us=11, states=1)) == ALL_WHOLE
    # What may have been removed before the begin is not counted.
    assert count_transactions(changes("0"), after_us=10) == ALL_WHOLE
    assert count_transactions(changes("0"), after_us=9).lacking == 1


def test_all_are_counted_and_the_first_of_each_kind_are_listed():
    few = [change for us in range(100) for change in changes("0", us=us)]
    many = [change for us in range(100, 200) for change in changes("0", "1", "2", us=us)]
    faults = count_transactions([*many, *few])
    assert (faults.lacking, faults.others) == (100, 100)
    listed = [count.commit_us for count in faults.listed]
    assert listed == [*range(LISTED_MAX), *range(100, 100 + LISTED_MAX)]


def test_it_is_named_as_an_audit_names_it():
    for count, fault in ((LACKING, Fault.MISSING), (ADDED, Fault.TOO_MANY)):
        figures = {"records": count.found, "topics": ["bank.a"]}
        assert count.mismatch().content() == {
            "what": "transaction", "commit_us": 10, "server_transaction_id": "t",
            "fault": str(fault), "expected": {"records": 2}, "found": figures,
        }  # fmt: skip


FAULTS = TransactionFaults(1, 1, (LACKING, ADDED))


@pytest.mark.rule("spanner-record-count")
def test_by_default_the_release_ends_with_an_error_that_names_the_first():
    judge = TransactionJudge(records=False)
    assert judge.take(FAULTS, leaves_out=False)
    with pytest.raises(TransactionIncomplete, match="fewer records") as caught:
        judge.settle(release=7, may_be_parked=False)
    fields = {"transaction": "t", "commit_timestamp_us": 10, "expected": 2, "found": 1}
    more = {"topics": ("bank.a",), "release": 7, "transactions": 2}
    assert caught.value.fields == fields | more


def test_what_is_lacking_may_be_absent_on_purpose_but_nothing_may_be_there_more_often():
    for leaves_out in (True, False):
        judge = TransactionJudge(records=False)
        lacking = TransactionFaults(1, 0, (LACKING,))
        assert judge.take(lacking, leaves_out=leaves_out) != leaves_out
        assert judge.settle(release=7) == ALL_WHOLE
        judge.take(FAULTS, leaves_out=leaves_out)
        with pytest.raises(TransactionIncomplete, match="another number") as caught:
            judge.settle(release=7)
        assert caught.value.fields["transactions"] == 1


# ---------------------------------------------------------------- markers
MARKER = MarkerChunk("t", 50, 1, True, 0, 1, ((DATA, OriginSum(2, 20, 7)),))


def announced(token, start_ns):
    return PartitionAnnounced(ChildPartition(token, (), start_ns), "parent")


def finished(token="t", **changes):
    totals = (TopicTotals(DATA, 1, 2, 20, 7),)
    marker = PartitionFinished(token, (), 10_000, 50_999, (), totals, parked=1)
    return replace(marker, **{"checksums": ChecksumKind.XXHASH_64, **changes})


def read(*bodies, after_us=-1, items_max=10):
    reader = NewsReader(after_us=after_us, items_max=items_max)
    for body in bodies:
        reader.take(body)
    return reader.news


def test_news_are_in_whole_microseconds_and_each_once():
    news = read(announced("t", 10_999), announced("t", 10_999), finished(), finished())
    assert news == MarkerNews((("t", 10),), (MARKER,))
    version_1 = finished(checksums=ChecksumKind.BLAKE2B_64)
    assert not read(version_1).finished[0].has_checksum
    assert read() == NO_NEWS
    # An announcement from before the watermark is a repeated one.
    news = read(announced("t", 10_000), announced("u", 11_000), after_us=11)
    assert news.announced == (("u", 11),)
    # Too many news forget everything that had begun.
    bodies = [announced(f"{n}", n * 1_000) for n in (5, 9, 7)]
    news = read(*bodies, announced("last", 10_000), items_max=2)
    assert news == MarkerNews((("last", 10),), (), 9)


def test_a_marker_that_was_dropped_forgets_a_partition_that_is_announced_after_it():
    """Slots are read one after the other: the announcement may be in a later one."""
    others = announced("u", 1_000), announced("w", 1_000)
    bodies = finished(totals=()), *others, announced("t", 10_000), announced("v", 60_000)
    # Without its marker it would be followed without end.
    assert set(NOTHING_FOLLOWED.taken(read(*bodies, items_max=2)).followed) == {"v"}


def test_the_totals_of_markers_count_as_news_and_in_the_ledger():
    """A marker has one for each table: 10,000 markers may have millions."""
    wide = finished(totals=tuple(TopicTotals(f"{n}", 1, 2, 20, 7) for n in range(9)))
    assert read(announced("t", 10_000), wide, items_max=11).finished
    assert read(announced("t", 10_000), wide, items_max=10).forgets_us == 50
    ledger = NOTHING_FOLLOWED.taken(read(announced("t", 10_000), wide, items_max=99))
    assert ledger.size == 11


def test_changes_are_summed_by_origin_and_topic_modulo_2_to_the_64():
    places = [(1, "a", b"x", 3), (1, "a", b"y", 4), (1, "b", b"x", 0), (None, "a", b"z", 1)]
    assert sum_by_origin(places) == {
        (1, "a"): OriginSum(2, 7, (xxhash_64(b"x") + xxhash_64(b"y")) % 2**64),
        (1, "b"): OriginSum(1, 0, xxhash_64(b"x")),
        (None, "a"): OriginSum(1, 1, xxhash_64(b"z")),
    }
    assert OriginSum(1, 2, 2**64 - 1) + OriginSum(1, 2, 2) == OriginSum(2, 4, 1)
    # The origin of a token is signed, as in Spark.
    assert {signed_origin(str(n)) < 0 for n in range(20)} == {True, False}


def marker(token="t", *totals, end_us=50, **changes):
    chunk = MarkerChunk(token, end_us, 0, True, 0, 1, totals or ((A, TWO),))
    return replace(chunk, **changes)


def following(*tokens, start_us=10, since_us=-1):
    ledger = OriginLedger(since_us)
    return ledger.taken(MarkerNews(tuple((token, start_us) for token in tokens or ("t",))))


def released(total=TWO, *, token="t", topic=A):
    return {(signed_origin(token), topic): total}


def settled(ledger, through_us=60, *, complete_from_us=-1, **changes):
    return ledger.settled(through_us, complete_from_us=complete_from_us, **changes)


def ended(ledger, *markers):
    return ledger.taken(MarkerNews(finished=markers or (marker(),)))


def test_what_agrees_is_forgotten_and_nothing_is_said():
    ledger = ended(following()).added(released(), through_us=40)
    assert settled(ledger) == (NOTHING_FOLLOWED, ())
    # Sums of several releases add up.
    ledger = following().added(released(ONE), through_us=20)
    ledger = ended(ledger, marker("t", (A, ONE + ONE))).added(released(ONE), through_us=60)
    assert settled(ledger) == (NOTHING_FOLLOWED, ())
    # A marker in chunks is their sum, and a repeated chunk counts once.
    first, last = marker("t", (A, ONE), chunks=2), marker("t", (B, ONE), chunks=2, chunk=1)
    ledger = ended(ended(following(), first), first, last)
    ledger = ledger.added({**released(ONE), **released(ONE, topic=B)}, through_us=60)
    assert settled(ledger) == (NOTHING_FOLLOWED, ())


def test_what_is_missing_names_the_stream_partition_and_the_topic():
    ledger = ended(following(), marker("t", (A, TWO), (B, ONE))).added(released(), through_us=60)
    left, (mismatch,) = settled(ledger)
    assert (left, mismatch.fault) == (NOTHING_FOLLOWED, Fault.MISSING)
    assert mismatch.subject == {"topic": B, "origin": TOKEN, "token": "t"}
    assert mismatch.expected == {"mods": 1, "value_bytes": 10, "checksum": "0000000000000003"}
    assert mismatch.found == {"mods": 0, "value_bytes": 0, "checksum": "0" * 16}
    assert settled(ledger, keeps_faulty=True) == (ledger, (mismatch,))
    # Changes of a topic that the marker does not name are too many.
    ledger = ended(following()).added({**released(), **released(topic=B)}, through_us=60)
    assert [mismatch.fault for mismatch in settled(ledger)[1]] == [Fault.TOO_MANY]


def test_it_is_not_judged_before_everything_of_it_is_released():
    # No marker; a chunk is missing; not released.
    for chunks, through_us in (((), 60), ((marker(chunks=2),), 60), ((marker(),), 49)):
        ledger = following().taken(MarkerNews(finished=chunks))
        assert settled(ledger, through_us) == (ledger, ())


def test_what_began_before_the_output_or_the_sums_or_is_not_released_by_them_is_not_judged():
    for start_us in (9, 10):
        ledger = ended(following(start_us=start_us))
        assert settled(ledger, complete_from_us=10) == (NOTHING_FOLLOWED, ())
        assert settled(ledger, complete_from_us=8)[1]
    assert ended(following(since_us=10)).added(released(), through_us=60) == OriginLedger(10)
    assert following().added(released(token="other"), through_us=20) == following()


def test_stream_partitions_with_one_origin_are_judged_and_forgotten_together(monkeypatch):
    module = "tidegate.spark_consumer.core.origin_ledger.signed_origin"
    monkeypatch.setattr(module, lambda _token: 5)
    sums = {(5, A): ONE + ONE}
    ledger = ended(following("t", "u"), marker("t", (A, ONE))).added(sums, through_us=60)
    assert settled(ledger) == (ledger, ())
    assert settled(ended(ledger, marker("u", (A, ONE)))) == (NOTHING_FOLLOWED, ())
    ledger = following("t").taken(MarkerNews((("u", 30),))).added({(5, A): ONE}, through_us=40)
    assert ledger.forgotten(10) == OriginLedger(10)


def test_a_ledger_that_cannot_be_judged_or_is_too_large_begins_again():
    # Changes that do not say where they come from leave only what begins later.
    ledger = following("t").taken(MarkerNews((("u", 30),)))
    unnamed = {(None, A): ONE, **released(ONE, token="u")}
    later = OriginLedger(20, {"u": Followed(30)}, released(ONE, token="u"))
    assert ledger.added(unnamed, through_us=20) == later
    ledger = following("t", "u").added(released(), through_us=20)
    assert (ledger.size, ledger.within(3), ledger.within(2)) == (3, ledger, OriginLedger(10))


@pytest.mark.parametrize(
    ("total", "parked", "has_checksum", "fault"),
    [
        (TWO, 0, True, None),
        (OriginSum(1, 20, 7), 0, True, Fault.MISSING),
        (OriginSum(1, 20, 7), 5, False, Fault.MISSING),
        (OriginSum(3, 20, 7), 0, True, Fault.TOO_MANY),
        (OriginSum(3, 30, 9), 1, True, None),
        (OriginSum(4, 30, 9), 1, True, Fault.TOO_MANY),
        (OriginSum(2, 20, 8), 0, True, Fault.OTHER_CHANGES),
        (OriginSum(2, 20, 8), 0, False, None),
        (OriginSum(2, 21, 7), 0, True, Fault.OTHER_VALUES),
        (OriginSum(2, 21, 8), 0, False, Fault.OTHER_VALUES),
    ],
)
def test_the_rules_of_an_audit(total, parked, has_checksum, fault):
    assert fault_of(TWO, total, parked=parked, has_checksum=has_checksum) is fault
    chunk = marker(parked=parked, has_checksum=has_checksum)
    ledger = ended(following(), chunk).added(released(total), through_us=60)
    assert [mismatch.fault for mismatch in settled(ledger)[1]] == ([fault] if fault else [])


def test_a_ledger_and_news_are_restored_from_json():
    news = MarkerNews((("t", 10),), (marker(parked=3),), 4)
    stored = json.loads(json.dumps(asdict(news)))
    assert MarkerNews.restore(stored) == news
    ledger = NOTHING_FOLLOWED.taken(news).added(released(), through_us=20)
    assert OriginLedger.restore(json.loads(json.dumps(ledger.snapshot()))) == ledger


# ---------------------------------------------------------------- markers and a batch
def with_marker(mods=2, *, stats=DUE, **changes):
    """A batch that reads a marker of two changes and a release that has `mods` of them."""
    run, tail = decided(marked(), stats, **changes)
    return run, tail, counted(mods)


def counted(mods, *, rows=2, dead_letters=0, transactions=ALL_WHOLE):
    origins = {(TOKEN, DATA): OriginSum(mods, 10 * mods, 7)}
    return ReleaseCount(
        rows, rows, origins=origins, dead_letters=dead_letters, transactions=transactions
    )


def test_a_marker_leaves_its_child_to_follow_and_a_recorded_contradiction_is_counted():
    for mods, faults in ((2, []), (1, ["changes are missing"])):
        run, _, event = with_marker(mods, records_mismatches=True)
        written, stored = run.handle(event)
        assert [mismatch.fault for mismatch in written.first_mismatches] == faults
        assert written.mismatches == stored.state.mismatches == len(faults)
        assert (written.origins == ALL_AGREE) is (not faults)
        assert stored.state.origins == OriginLedger(-1, {"u": Followed(15)})


def test_a_stream_partition_that_lacks_changes_ends_the_batch_before_its_release_is_written():
    run, _, event = with_marker(1)
    with pytest.raises(StreamPartitionIncomplete, match="changes are missing") as caught:
        run.handle(event)
    fields = caught.value.fields
    assert (fields["token"], fields["topic"], fields["release"]) == ("t", DATA, 0)
    assert fields["expected"] == TWO.content()
    assert fields["found"] == {"mods": 1, "value_bytes": 10, "checksum": f"{7:016x}"}
    # A replay compares the same without its progress.
    stored = Plan.restore(as_json(run.plan.snapshot()))
    assert stored == run.plan
    again = begin()
    again.handle(ends(5, 2), *replayed(stored))
    with pytest.raises(StreamPartitionIncomplete):
        again.handle(counted(1))
    # What had begun before the output was complete is not judged.
    run, _, event = with_marker(1, complete_from_us=0)
    assert run.handle(event)[0].origins == ALL_AGREE


def test_a_stream_partition_that_ends_without_a_release_is_compared_too():
    nothing = BatchStats(topics=IDS)
    with pytest.raises(StreamPartitionIncomplete, match="changes are missing"):
        with_marker(stats=nothing)
    _, tail, _ = with_marker(stats=nothing, records_mismatches=True)
    assert set(tail[-1].state.origins.followed) == {"t", "u"}  # for the next manifest


def test_many_that_are_followed_are_in_a_file_until_another_one_replaces_it():
    run, tail, event = with_marker(limits=Limits(state_segments_max=0), writer=4)
    _, stored = run.handle(event)
    file = "lists/000000000000/4-000.json"
    assert stored.files == ((file, stored.state.origins.snapshot()),)
    assert stored.state.origins_file == file
    run.handle(STORED)
    (log,) = (effect.log for effect in tail if isinstance(effect, StoreFrontier))

    def following_batch(state):
        later = begin(1, writer=5)
        later.handle(ends(5, 2), state, NO_PLAN)
        return later.handle(log)[-1]

    same = following_batch(run.state)
    assert (same.files, same.state.origins_file, same.state.dropped_lists) == ((), file, ())
    over = Followed(1, {0: MarkerChunk("x", 2, 0, True, 0, 1, ())})
    more = OriginLedger(-1, {**run.state.origins.followed, "x": over})
    other = following_batch(replace(run.state, origins=more))
    assert (other.files, other.state.origins_file) == ((), None)
    assert other.state.origins == run.state.origins
    assert other.state.dropped_lists == ("lists/000000000000",)


def test_late_changes_leave_what_had_begun_unjudged():
    state = State("bank", "q", watermark_us=20, origins=OriginLedger(-1, {"t": Followed(0)}))
    account = ReleaseCheck(-1, records=False)
    late, in_time = (
        replace(with_marker()[0].plan, after_us=20, late_rows=rows, news=NO_NEWS) for rows in (1, 0)
    )
    account.begin(state, late)
    assert account.close(state, file="f", own_max=9) == (OriginLedger(20), None, ())
    account.begin(state, in_time)
    assert account.close(state, file="f", own_max=9) == (state.origins, None, ())


# ---------------------------------------------------------------- dead letters

FEW = TransactionFaults(1, 0, (TransactionCount(8, "t", 1, 2, 2, (DATA,)),))


def with_dead_letters(foreign=0, **more):
    """A batch with two due records, and records without an order key; its effects so far."""
    stats = replace(DUE, due=Distribution(2, (8, 8)), dead_letters=foreign)
    return decided(marked(), stats, data=2 + foreign, sinks=("changelog",), **more)


@pytest.mark.parametrize("of_release", [False, True])
def test_what_the_table_lacks_ends_the_batch_before_the_release_is_written(of_release):
    run, _ = with_dead_letters(0 if of_release else 2)
    if of_release:
        run.handle(counted(1, rows=1, dead_letters=1))
    with pytest.raises(ChangesNotConserved, match="dead letters does not hold") as caught:
        run.handle(0)
    assert caught.value.fields["stored"] == 0
    run, _ = with_dead_letters()
    with pytest.raises(ChangesNotConserved, match="read=2, released=1"):
        run.handle(counted(1, rows=1))  # neither released nor set aside


def test_a_change_among_the_dead_letters_is_missing_at_its_marker_and_the_error_says_so():
    run, _ = with_dead_letters()
    run.handle(counted(1, rows=1, dead_letters=1))
    with pytest.raises(StreamPartitionIncomplete, match="changes are missing") as caught:
        run.handle(1)
    assert "dead_letters has 1 records" in caught.value.hint
    assert with_dead_letters_hint("Look there", 0) == "Look there"
    assert with_dead_letters_hint("Look there", 3).startswith("Look there. ")


def test_what_may_be_parked_excuses_the_transaction_and_not_the_marker():
    run, _ = with_dead_letters(1)
    run.handle(1)
    run.handle(counted(1, rows=1, dead_letters=1, transactions=FEW))
    assert run.handle(1) == [DescribeTopics((PARKED,))]
    with pytest.raises(TransactionIncomplete) as caught:
        run.handle({PARKED: None})
    assert "dead_letters has 2 records" in caught.value.hint
    run, _ = with_dead_letters()
    run.handle(counted(1, rows=1, dead_letters=1, transactions=FEW))
    run.handle(1)
    with pytest.raises(StreamPartitionIncomplete):
        run.handle({PARKED: "id"})
