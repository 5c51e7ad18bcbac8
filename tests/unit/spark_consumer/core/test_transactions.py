"""Transactions are compared with what their records state, and what is not whole is named."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.schemas.progress import PartitionGap
from tidegate.spark_consumer.core.proof import Fault
from tidegate.spark_consumer.core.transactions import (
    ALL_WHOLE,
    LISTED_MAX,
    TransactionCount,
    TransactionFaults,
    TransactionJudge,
    count_transactions,
)
from tidegate.spark_consumer.errors import TransactionIncomplete


def changes(*records, us=10, transaction="t", states=2, topic="bank.a"):
    return [(us, transaction, record, states, topic) for record in records]


LACKING = TransactionCount(10, "t", 1, 2, 2, ("bank.a",))
ADDED = TransactionCount(10, "t", 3, 2, 2, ("bank.a",))


@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4)), max_size=5),
    st.randoms(use_true_random=False),
)
def test_whole_transactions_are_whole_in_any_order_and_with_several_changes_each(sizes, random):
    found = [
        (us, f"t{us}", f"{record}", records, f"bank.{random.choice('ab')}")
        for us, (mods, records) in enumerate(sizes)
        for record in range(records)
        for _ in range(mods)
    ]
    random.shuffle(found)
    assert count_transactions(found) == ALL_WHOLE


@pytest.mark.rule("spanner-record-count")
def test_too_few_and_too_many_records_are_counted_apart_and_name_their_topics():
    found = count_transactions(
        [
            *changes("0"),
            *changes("0", us=11, topic="bank.b"),
            *changes("1", "2", us=11),
            *changes("0", "1", us=12),
        ]
    )
    assert found == TransactionFaults(
        1, 1, (LACKING, TransactionCount(11, "t", 3, 2, 2, ("bank.a", "bank.b")))
    )
    assert found.number == 2


def test_in_an_accepted_gap_records_may_be_missing_and_none_too_many():
    gaps = (PartitionGap("p", 1, 3, "ops", 0), PartitionGap("q", 10, 12, "ops", 0))
    found = count_transactions(
        [
            *changes("0", us=9),
            *changes("0", us=10),
            *changes("0", us=11),
            *changes("0", "1", "2", us=11, transaction="u"),
            *changes("0", us=12),
        ],
        gaps=gaps,
    )
    assert (found.lacking, found.others) == (2, 1)
    assert [one.commit_us for one in found.listed] == [9, 11, 12]


def test_a_name_that_comes_again_at_another_time_is_another_transaction():
    assert count_transactions(changes("0", states=1) + changes("0", us=11, states=1)) == ALL_WHOLE


def test_records_that_state_different_numbers_are_no_whole_transaction():
    (one,) = count_transactions(changes("0") + changes("1", states=3)).listed
    assert (one.found, one.least, one.most) == (2, 2, 3)
    same = count_transactions(changes("0", "1") + changes("1", states=3))
    assert (same.number, same.listed[0].least) == (1, 2)


def test_what_may_have_been_removed_before_the_begin_is_not_counted():
    assert count_transactions(changes("0"), after_us=10) == ALL_WHOLE
    assert count_transactions(changes("0"), after_us=9).lacking == 1


def test_all_are_counted_and_the_first_of_each_kind_are_listed():
    few = [one for us in range(100) for one in changes("0", us=us)]
    many = [one for us in range(100, 200) for one in changes("0", "1", "2", us=us)]
    found = count_transactions([*many, *few])
    assert (found.lacking, found.others) == (100, 100)
    listed = [one.commit_us for one in found.listed]
    assert listed == [*range(LISTED_MAX), *range(100, 100 + LISTED_MAX)]


@pytest.mark.parametrize(
    ("one", "fault"), [(LACKING, Fault.MISSING), (ADDED, Fault.TOO_MANY)], ids=["few", "many"]
)
def test_it_is_named_as_an_audit_names_it(one, fault):
    assert one.mismatch().content() == {
        "what": "transaction",
        "commit_us": 10,
        "server_transaction_id": "t",
        "fault": str(fault),
        "expected": {"records": 2},
        "found": {"records": one.found, "topics": ["bank.a"]},
    }


FAULTS = TransactionFaults(1, 1, (LACKING, ADDED))


@pytest.mark.rule("spanner-record-count")
def test_by_default_the_release_ends_with_an_error_that_names_the_first():
    judge = TransactionJudge(records=False)
    assert judge.take(FAULTS, leaves_out=False)
    with pytest.raises(TransactionIncomplete, match="fewer records") as caught:
        judge.settle(release=7, may_be_parked=False)
    assert caught.value.fields == {
        "transaction": "t",
        "commit_timestamp_us": 10,
        "expected": 2,
        "found": 1,
        "topics": ("bank.a",),
        "release": 7,
        "transactions": 2,
    }
    assert judge.recorded == 0


@pytest.mark.rule("spanner-record-count")
def test_recorded_faults_are_returned_and_counted_over_releases():
    judge = TransactionJudge(records=True)
    for _ in range(2):
        judge.take(FAULTS, leaves_out=False)
        assert judge.settle(release=7, may_be_parked=False) == FAULTS
    assert judge.recorded == 4


@pytest.mark.parametrize("leaves_out", [True, False])
def test_what_is_lacking_may_be_absent_on_purpose_but_nothing_may_be_there_more_often(leaves_out):
    judge = TransactionJudge(records=False)
    assert judge.take(TransactionFaults(1, 0, (LACKING,)), leaves_out=leaves_out) != leaves_out
    assert judge.settle(release=7) == ALL_WHOLE
    judge.take(FAULTS, leaves_out=leaves_out)
    with pytest.raises(TransactionIncomplete, match="another number") as caught:
        judge.settle(release=7)
    assert caught.value.fields["transactions"] == 1


def test_a_release_without_faults_asks_for_nothing():
    judge = TransactionJudge(records=False)
    assert not judge.take(ALL_WHOLE, leaves_out=False)
    assert judge.settle(release=7) == ALL_WHOLE
