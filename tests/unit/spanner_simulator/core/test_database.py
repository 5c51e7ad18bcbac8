from __future__ import annotations

import pytest

from tidegate.spanner_simulator.core.rows.mutations import KeyBound, KeySet, KeySpan, Write
from tidegate.spanner_simulator.core.rows.storage import VERSION_RETENTION_US
from tidegate.spanner_simulator.errors import Code, SpannerError

ALL = KeySet(everything=True)


def account(key: int, balance: int = 1) -> Write:
    return Write("insert_or_update", "Accounts", ("Id", "Balance"), ([str(key), str(balance)],))


def read(bank, keys: KeySet, transaction=None, read_us=None, limit: int = 0) -> list[int]:
    table = bank.database.catalogue.table("Accounts")
    rows = bank.database.read(table, keys, transaction=transaction, read_us=read_us, limit=limit)
    return [row["Id"] for row in rows]


def test_reads_are_in_key_order_without_repeats(bank) -> None:
    bank.commit(*(account(key) for key in (3, -1, 2)))
    span = KeySpan(KeyBound(["2"], inclusive=True), KeyBound(["9"], inclusive=True))

    assert read(bank, ALL) == [-1, 2, 3]
    assert read(bank, ALL, limit=2) == [-1, 2]
    assert read(bank, KeySet(keys=(["3"], ["9"], ["-1"]), spans=(span,))) == [-1, 2, 3]


def test_a_read_at_a_time_sees_that_time(bank) -> None:
    times = [bank.commit(account(key)) for key in (1, 2)]

    assert read(bank, ALL, read_us=times[0]) == [1]
    assert read(bank, ALL, read_us=times[0] - 1) == []


def test_a_closed_read_time_cannot_be_written_any_more(bank) -> None:
    ahead_us = bank.now_us + 1000
    bank.database.close_read(ahead_us, now_us=ahead_us)

    assert bank.commit(account(1)) > ahead_us


def test_versions_older_than_their_retention_are_refused(bank) -> None:
    with pytest.raises(SpannerError) as caught:
        bank.database.close_read(5, now_us=VERSION_RETENTION_US + 6)

    assert caught.value.code is Code.FAILED_PRECONDITION


def test_of_two_transactions_that_read_and_write_one_row_the_second_is_aborted(bank) -> None:
    bank.commit(account(1, 10))
    first, second = bank.database.begin(), bank.database.begin()
    for transaction in (first, second):
        read(bank, KeySet(keys=(["1"],)), transaction=transaction)
    bank.database.commit(first, [account(1, 11)], now_us=bank.tick())

    with pytest.raises(SpannerError) as caught:
        bank.database.commit(second, [account(1, 11)], now_us=bank.tick())
    assert caught.value.code is Code.ABORTED
    assert caught.value.retry_delay_ms is not None
    with pytest.raises(SpannerError) as caught:
        bank.database.transaction(second.transaction_id)
    assert caught.value.code is Code.ABORTED


def test_a_refused_mutation_leaves_nothing_behind(bank) -> None:
    transaction = bank.database.begin()
    bad = Write("update", "Accounts", ("Id", "Balance"), (["9", "1"],))

    with pytest.raises(SpannerError, match="is missing"):
        bank.database.commit(transaction, [account(1), bad], now_us=bank.tick())
    assert read(bank, ALL) == []
    assert bank.database.streams.state("Bank").log.transactions == []


def test_a_repeated_commit_gives_the_same_timestamp(bank) -> None:
    transaction = bank.database.begin()
    times = {bank.database.commit(transaction, [account(1)], now_us=bank.tick()) for _ in range(2)}

    assert len(times) == 1
    assert len(bank.database.streams.state("Bank").log.transactions) == 1


def test_forgotten_transactions_do_not_pile_up(bank, monkeypatch) -> None:
    monkeypatch.setattr("tidegate.spanner_simulator.core.database._TRANSACTIONS_MAX", 3)
    first, *_, last = [bank.database.begin(read_us=5) for _ in range(5)]

    assert bank.database.transaction(last.transaction_id) is last
    with pytest.raises(SpannerError, match="Transaction was not found"):
        bank.database.transaction(first.transaction_id)


def test_only_an_active_read_write_transaction_commits(bank) -> None:
    rolled_back = bank.database.begin()
    bank.database.rollback(rolled_back.transaction_id)
    for transaction in (rolled_back, bank.database.begin(read_us=5)):
        with pytest.raises(SpannerError) as caught:
            bank.database.commit(transaction, [account(1)], now_us=bank.tick())
        assert caught.value.code is Code.FAILED_PRECONDITION
    with pytest.raises(SpannerError) as caught:
        bank.database.transaction(b"unknown")
    assert caught.value.code is Code.NOT_FOUND


def test_commit_timestamps_differ_by_default(make_bank) -> None:
    bank = make_bank()
    transactions = [bank.database.begin() for _ in range(3)]
    times = [
        bank.database.commit(one, [account(key)], now_us=bank.now_us)
        for key, one in enumerate(transactions)
    ]

    assert times == sorted(set(times))


@pytest.mark.parametrize(
    ("is_concurrent", "key_read", "key_written", "is_shared"),
    [
        (True, None, 2, True),
        (True, 3, 2, True),
        (True, None, 1, False),
        (True, 1, 2, False),
        (False, None, 2, False),
    ],
)
def test_a_timestamp_is_shared_only_by_concurrent_transactions_on_disjoint_rows(
    make_bank, is_concurrent: bool, key_read: int | None, key_written: int, is_shared: bool
) -> None:
    bank = make_bank(equal_timestamps=1.0)
    first, second = bank.database.begin(), bank.database.begin()
    at = bank.database.commit(first, [account(1)], now_us=bank.tick())
    if not is_concurrent:
        second = bank.database.begin()
    if key_read is not None:
        read(bank, KeySet(keys=([str(key_read)],)), transaction=second)
    other = bank.database.commit(second, [account(key_written)], now_us=bank.tick())
    log = bank.database.streams.state("Bank").log.transactions
    order = [(one.facts.commit_timestamp_us, one.facts.server_transaction_id) for one in log]

    assert (other == at) == is_shared
    assert order == sorted(order)


def test_a_closed_timestamp_is_not_shared(make_bank) -> None:
    bank = make_bank(equal_timestamps=1.0)
    first, second = bank.database.begin(), bank.database.begin()
    at = bank.database.commit(first, [account(1)], now_us=bank.tick())
    bank.database.close_read(at, now_us=bank.now_us)

    assert bank.database.commit(second, [account(2)], now_us=bank.tick()) > at


def test_splits_merges_and_moves_come_after_all_that_is_committed(bank) -> None:
    at = bank.commit(account(1))
    bank.now_us = 0
    (_, right) = bank.database.streams.split("Bank", now_us=0, table="Accounts", key=["5"])
    (moved,) = bank.database.streams.move("Bank", now_us=0, token=right.token)
    (merged,) = bank.database.streams.merge("Bank", now_us=0)

    assert at < right.start_us < moved.start_us < merged.start_us
    assert bank.commit(account(2)) >= merged.start_us


def test_dropping_a_stream_wakes_its_readers_and_ends_its_state(bank) -> None:
    state = bank.database.streams.state("Bank")
    woken: list[str] = []
    bank.database.streams.listener = woken.extend
    bank.ddl("DROP CHANGE STREAM Bank")

    assert state.is_dropped
    assert set(woken) == set(state.partitions.by_token)
    with pytest.raises(SpannerError, match="Change Stream not found: Bank"):
        bank.database.streams.state("Bank")


def test_a_transaction_may_be_excluded_where_the_stream_allows_it(bank) -> None:
    bank.ddl("ALTER CHANGE STREAM Bank SET OPTIONS (allow_txn_exclusion = true)")
    transaction = bank.database.begin()
    transaction.exclude_from_streams = True
    bank.database.commit(transaction, [account(1)], now_us=bank.tick())

    assert read(bank, ALL) == [1]
    assert bank.database.streams.state("Bank").log.transactions == []


def test_a_dropped_table_takes_its_rows_along(bank) -> None:
    bank.commit(account(1))
    bank.ddl(
        "ALTER CHANGE STREAM Bank DROP FOR ALL",
        "DROP TABLE Accounts",
        "CREATE TABLE Accounts (Id INT64) PRIMARY KEY (Id)",
    )

    assert read(bank, ALL) == []
