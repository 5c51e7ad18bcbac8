from __future__ import annotations

import pytest

from spanner_simulator.core.rows.key_sets import KeySet
from spanner_simulator.core.rows.mutations import COMMIT_TIMESTAMP, Write


def account(key: int) -> Write:
    return Write("insert_or_update", "Accounts", ("Id",), ([str(key)],))


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
        table, keys = bank.database.catalogue.table("Accounts"), KeySet(keys=([str(key_read)],))
        bank.database.read(table, keys, transaction=second, read_us=None)
    other = bank.database.commit(second, [account(key_written)], now_us=bank.tick())
    log = bank.database.streams.state("Bank").log.transactions
    order = [(one.facts.commit_timestamp_us, one.facts.server_transaction_id) for one in log]
    assert (other == at) == is_shared
    assert order == sorted(order)


def test_what_a_commit_rests_on_has_an_earlier_timestamp(make_bank) -> None:
    bank = make_bank(equal_timestamps=1.0)
    bank.ddl(
        "CREATE TABLE Cards (Id INT64 NOT NULL, Nr INT64) PRIMARY KEY (Id, Nr), "
        "INTERLEAVE IN PARENT Accounts"
    )
    card = Write("insert", "Cards", ("Id", "Nr"), (["1", "1"],))
    first, second, third = (bank.database.begin() for _ in range(3))
    at = bank.database.commit(first, [account(1)], now_us=bank.tick())
    assert bank.database.commit(second, [account(2)], now_us=bank.tick()) == at
    assert bank.database.commit(third, [card], now_us=bank.tick()) > at


def test_a_closed_timestamp_is_not_shared(make_bank) -> None:
    bank = make_bank(equal_timestamps=1.0)
    first, second = bank.database.begin(), bank.database.begin()
    at = bank.database.commit(first, [account(1)], now_us=bank.tick())
    bank.database.close_read(at, now_us=bank.now_us)
    assert bank.database.commit(second, [account(2)], now_us=bank.tick()) > at


def test_a_row_whose_place_is_its_commit_timestamp_has_that_for_itself(make_bank) -> None:
    bank = make_bank(equal_timestamps=1.0)
    bank.ddl(
        "CREATE TABLE Events (At_ TIMESTAMP OPTIONS (allow_commit_timestamp = true)) "
        "PRIMARY KEY (At_)"
    )
    event = Write("insert", "Events", ("At_",), ([COMMIT_TIMESTAMP],))
    first, second = bank.database.begin(), bank.database.begin()
    at = bank.database.commit(first, [event], now_us=bank.tick())
    assert bank.database.commit(second, [event], now_us=bank.tick()) > at
