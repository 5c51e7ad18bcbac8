from __future__ import annotations

import random

import pytest

from spanner_simulator.core.rows import known_transactions
from spanner_simulator.core.rows.known_transactions import KnownTransactions
from spanner_simulator.core.rows.storage import VERSION_RETENTION_US, KeyRange, TableRows
from spanner_simulator.core.rows.transactions import Transaction
from spanner_simulator.errors import Code, SpannerError


def rows() -> dict[str, TableRows]:
    table = TableRows()
    table.write(b"a", {}, commit_us=1, commit_number=1)
    return {"t": table}


def test_has_read_any_looks_at_keys_and_ranges() -> None:
    transaction = Transaction(b"1", 1)
    transaction.note_key("t", b"a", commit_number=1)
    transaction.note_range("u", KeyRange(b"m", b"p"), commit_number=1)
    assert transaction.has_read_any({("t", b"a")})
    assert transaction.has_read_any({("u", b"n")})
    assert not transaction.has_read_any({("t", b"n"), ("u", b"p")})


def test_a_row_that_was_deleted_and_forgotten_is_a_conflict_still() -> None:
    tables = rows()
    by_key, by_range, later = (Transaction(b"%d" % number, 1) for number in range(3))
    by_key.note_key("t", b"a", commit_number=1)
    by_range.note_range("t", KeyRange(b"a", b"b"), commit_number=1)
    tables["t"].write(b"a", None, commit_us=2, commit_number=2)
    tables["t"].write(b"z", {}, commit_us=VERSION_RETENTION_US + 2, commit_number=3)
    later.note_key("t", b"a", commit_number=3)
    later.note_range("t", KeyRange(b"a", b"b"), commit_number=3)
    assert len(tables["t"]) == 1
    assert by_key.conflict(tables) == by_range.conflict(tables) == "t"
    assert later.conflict(tables) is None


def test_rows_may_come_in_any_order_of_their_commits() -> None:
    tables, transaction = {"t": TableRows()}, Transaction(b"1", 1)
    transaction.note_range("t", KeyRange(b"", None), commit_number=1)
    tables["t"].write(b"a", {}, commit_us=3, commit_number=2)
    tables["t"].write(b"b", {}, commit_us=3, commit_number=1)
    assert transaction.conflict(tables) == "t"


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
