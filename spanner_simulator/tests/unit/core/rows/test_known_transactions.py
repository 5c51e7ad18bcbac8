from __future__ import annotations

import random

import pytest

from spanner_simulator.core.rows import known_transactions
from spanner_simulator.core.rows.known_transactions import KnownTransactions
from spanner_simulator.core.rows.transactions import Transaction
from spanner_simulator.errors import Code, SpannerError


@pytest.fixture
def known() -> KnownTransactions:
    return KnownTransactions(random.Random(1))


def begin(known: KnownTransactions, read_us: int | None = None) -> Transaction:
    return known.begin(begun_at=3, read_us=read_us, tag="t")


def refusal(known: KnownTransactions, transaction: Transaction) -> Code:
    with pytest.raises(SpannerError) as caught:
        known.check_writable(transaction, "commit")
    return caught.value.code


def test_a_transaction_is_found_by_its_id(known) -> None:
    one, other = begin(known), begin(known)

    assert known.find(one.transaction_id) is one
    assert one.transaction_id != other.transaction_id
    assert (one.begun_at, one.tag) == (3, "t")
    known.check_writable(one, "commit")


def test_one_that_nobody_began_is_not_found(known) -> None:
    with pytest.raises(SpannerError, match="Transaction was not found: nope") as caught:
        known.find(b"nope")

    assert caught.value.code is Code.NOT_FOUND
    known.roll_back(b"nope")


def test_what_has_ended_or_only_reads_is_not_written_in(known) -> None:
    committed, rolled_back = begin(known), begin(known)
    known.commit(committed, 7)
    known.roll_back(rolled_back.transaction_id)

    assert committed.commit_us == 7
    assert {refusal(known, one) for one in (committed, rolled_back, begin(known, 5))} == {
        Code.FAILED_PRECONDITION
    }
    assert known.find(committed.transaction_id) is committed


def test_a_commit_is_not_rolled_back(known) -> None:
    committed = begin(known)
    known.commit(committed, 7)
    known.roll_back(committed.transaction_id)

    assert committed.state == "COMMITTED"


def test_an_aborted_one_says_so_and_when_to_try_again(known) -> None:
    transaction = begin(known)
    error = known.abort(transaction, "why")
    with pytest.raises(SpannerError) as caught:
        known.find(transaction.transaction_id)

    assert error.message == "Transaction was aborted: why"
    assert error.retry_delay_ms == caught.value.retry_delay_ms == 5
    assert refusal(known, transaction) is caught.value.code is Code.ABORTED


def test_an_end_lets_go_of_what_was_read(known) -> None:
    transaction = begin(known)
    transaction.note_key("T", b"k", commit_number=3)
    known.commit(transaction, 7)

    assert not transaction.key_reads


def test_forgotten_transactions_do_not_pile_up(known, monkeypatch) -> None:
    monkeypatch.setattr(known_transactions, "_TRANSACTIONS_MAX", 3)
    first, *_, last = [begin(known, 5) for _ in range(5)]

    assert known.find(last.transaction_id) is last
    with pytest.raises(SpannerError, match="Transaction was not found"):
        known.find(first.transaction_id)


def test_of_those_that_ended_the_oldest_go(known, monkeypatch) -> None:
    monkeypatch.setattr(known_transactions, "_FINISHED_TRANSACTIONS_MAX", 2)
    living = begin(known)
    ended = [begin(known) for _ in range(3)]
    for one in ended:
        known.commit(one, 7)

    assert known.find(living.transaction_id) is living
    assert known.find(ended[1].transaction_id) is ended[1]
    with pytest.raises(SpannerError, match="Transaction was not found"):
        known.find(ended[0].transaction_id)
