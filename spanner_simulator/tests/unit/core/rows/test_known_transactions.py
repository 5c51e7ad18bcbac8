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


def test_what_has_ended_or_only_reads_is_not_written_in(known) -> None:
    committed, rolled_back, other = begin(known), begin(known), begin(known)
    committed.note_key("T", b"k", commit_number=3)
    known.commit(committed, 7)
    for one in (rolled_back, committed):
        known.roll_back(one.transaction_id)
    known.roll_back(b"nope")

    assert (committed.state, committed.commit_us, committed.key_reads) == ("COMMITTED", 7, {})
    assert {refusal(known, one) for one in (committed, rolled_back, begin(known, 5))} == {
        Code.FAILED_PRECONDITION
    }
    assert known.find(committed.transaction_id) is committed
    known.check_writable(other, "commit")


def test_an_aborted_one_says_so_and_when_to_try_again(known) -> None:
    transaction = begin(known)
    error = known.abort(transaction, "why")
    with pytest.raises(SpannerError) as caught:
        known.find(transaction.transaction_id)

    assert error.message == "Transaction was aborted: why"
    assert error.retry_delay_ms == caught.value.retry_delay_ms == 5
    assert refusal(known, transaction) is caught.value.code is Code.ABORTED


def test_forgotten_transactions_do_not_pile_up(known, monkeypatch) -> None:
    monkeypatch.setattr(known_transactions, "_TRANSACTIONS_MAX", 3)
    first, *_, last = [begin(known, 5) for _ in range(5)]

    assert known.find(last.transaction_id) is last
    with pytest.raises(SpannerError, match="NOT_FOUND: Transaction was not found"):
        known.find(first.transaction_id)


def test_of_those_that_ended_the_oldest_go(known, monkeypatch) -> None:
    monkeypatch.setattr(known_transactions, "_FINISHED_TRANSACTIONS_MAX", 2)
    living, *ended = [begin(known) for _ in range(4)]
    for one in ended:
        known.commit(one, 7)

    assert [known.find(one.transaction_id) for one in (living, ended[1])] == [living, ended[1]]
    with pytest.raises(SpannerError, match="Transaction was not found"):
        known.find(ended[0].transaction_id)
