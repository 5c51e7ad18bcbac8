from __future__ import annotations

import pytest

from spanner_simulator.core.change_streams.assembly import CommitFacts
from spanner_simulator.core.change_streams.records import DataChangeRecord
from spanner_simulator.core.rows.key_sets import KeySet
from spanner_simulator.core.rows.mutations import Delete, RowChange, Write
from spanner_simulator.errors import Code, SpannerError

DAY_US = 86_400_000_000


def insert(bank, key: int) -> int:
    return bank.commit(Write("insert", "Accounts", ("Id",), ([str(key)],)))


def all_records(bank, stream: str = "Bank") -> list[DataChangeRecord]:
    found = [
        record
        for one in bank.database.streams.state(stream).partitions.by_token.values()
        for record in one.records
    ]
    return sorted(found, key=lambda record: (record.commit_timestamp_us, record.record_sequence))


def test_each_stream_gets_what_it_watches(bank) -> None:
    bank.ddl("CREATE CHANGE STREAM Money FOR Ledger", "CREATE CHANGE STREAM Nothing")
    insert(bank, 1)
    bank.commit(Write("insert", "Ledger", ("Id",), (["a"],)))

    names = {
        stream: [record.table_name for record in all_records(bank, stream)]
        for stream in ("Bank", "Money", "Nothing")
    }
    assert names == {"Bank": ["Accounts", "Ledger"], "Money": ["Ledger"], "Nothing": []}


def test_for_all_picks_up_new_tables_and_columns(bank) -> None:
    bank.ddl("CREATE CHANGE STREAM Everything FOR ALL")
    bank.ddl("CREATE TABLE Later (K INT64) PRIMARY KEY (K)")
    bank.commit(Write("insert", "Later", ("K",), (["1"],)))
    bank.ddl("ALTER TABLE Later ADD COLUMN V INT64")
    bank.commit(Write("update", "Later", ("K", "V"), (["1", "5"],)))

    first, second = all_records(bank, "Everything")
    assert [one.name for one in first.column_types] == ["K"]
    assert [one.name for one in second.column_types] == ["K", "V"]
    assert second.mods[0].new_values == {"V": "5"}


def test_an_excluded_transaction_is_left_out_only_where_it_is_allowed(bank) -> None:
    bank.ddl("CREATE CHANGE STREAM Lax FOR ALL OPTIONS (allow_txn_exclusion = true)")
    transaction = bank.database.begin()
    transaction.exclude_from_streams = True
    write = Write("insert", "Accounts", ("Id",), (["1"],))
    bank.database.commit(transaction, [write], now_us=bank.tick())
    assert len(all_records(bank, "Bank")) == 1
    assert all_records(bank, "Lax") == []
    assert bank.database.streams.state("Lax").log.transactions == []


@pytest.mark.parametrize("excluded", [True, False])
def test_deletes_by_a_row_deletion_policy_may_be_excluded(bank, *, excluded: bool) -> None:
    option = " OPTIONS (exclude_ttl_deletes = true)" if excluded else ""
    bank.ddl(f"CREATE CHANGE STREAM Ttl FOR ALL{option}")
    table = bank.database.catalogue.table("Accounts")
    row = {"Id": 1, "Balance": None, "Name": None}
    change = RowChange(table, table.encoded_key(row), "DELETE", row, None)
    facts = CommitFacts(bank.tick(), "9", "RowDeletionPolicy", is_system_transaction=True)
    bank.database.streams.publish([change], facts, is_excluded=False)

    found = all_records(bank, "Ttl")
    assert len(found) == len(bank.database.streams.state("Ttl").log.transactions) == (not excluded)
    for record in found:
        assert record.transaction_tag == "RowDeletionPolicy"
        assert record.is_system_transaction


def test_what_is_older_than_the_retention_goes_and_the_numbers_stay(bank) -> None:
    state = bank.database.streams.state("Bank")
    parent = state.partitions.locate(bank.database.catalogue.table("Accounts").prefix)
    for key in (1, 2, 3):
        insert(bank, key)
    (child,) = bank.database.streams.move("Bank", now_us=bank.tick(), token=parent.token)
    bank.tick(7 * DAY_US)
    last_us = insert(bank, 4)
    assert bank.database.streams.expire(bank.now_us) == 3
    assert parent.token not in state.partitions.by_token
    assert [one.commit_timestamp_us for one in child.records] == [last_us]
    assert [one.index for one in state.log.transactions] == [3]
    assert bank.database.streams.expire(bank.now_us) == 0


def test_the_retention_is_the_one_in_force(bank) -> None:
    insert(bank, 1)
    bank.ddl("ALTER CHANGE STREAM Bank SET OPTIONS (retention_period = '2d')")
    assert bank.database.streams.expire(bank.now_us + 2 * DAY_US - 100) == 0
    assert bank.database.streams.expire(bank.now_us + 2 * DAY_US) == 1


def test_a_dropped_stream_has_no_state(bank) -> None:
    state = bank.database.streams.state("Bank")
    heard: list[str] = []
    bank.database.streams.listener = heard.extend
    bank.ddl("DROP CHANGE STREAM Bank")
    assert state.is_dropped
    assert sorted(heard) == sorted(state.partitions.by_token)
    with pytest.raises(SpannerError) as caught:
        bank.database.streams.state("Bank")
    assert caught.value.code is Code.NOT_FOUND


def test_a_turn_comes_after_every_commit_and_promise(bank) -> None:
    last_us = insert(bank, 1)
    bank.database.clock.close(last_us + 500)
    children = bank.database.streams.split("Bank", now_us=last_us - 5)
    assert {child.start_us for child in children} == {last_us + 501}


def test_a_transaction_over_many_streams_is_one_transaction(bank) -> None:
    bank.ddl("CREATE CHANGE STREAM Second FOR ALL")
    keys = [[str(number * 10**18)] for number in range(-5, 5)]
    bank.commit(Write("insert", "Accounts", ("Id",), keys))
    bank.commit(Delete("Accounts", KeySet(keys=keys[:2])))
    ids = [
        [record.server_transaction_id for record in all_records(bank, stream)]
        for stream in ("Bank", "Second")
    ]
    assert len(set(ids[0])) == 2
    assert set(ids[0]) == set(ids[1])


def test_a_turn_ignores_none_of_its_arguments(bank) -> None:
    streams = bank.database.streams
    one, other = (found.token for found in streams.state("Bank").partitions.live)
    for turn, message, wrong in (
        (streams.split, "A split takes", {"key": ["1"]}),
        (streams.split, "A split takes", {"table": "Accounts"}),
        (streams.split, "A split takes", {"token": one, "table": "Accounts", "key": ["1"]}),
        (
            *(streams.move_keys, "of a table, which is missing"),
            {"source": one, "destination": other, "first_key": ["1"]},
        ),
    ):
        with pytest.raises(SpannerError, match=message) as caught:
            turn("Bank", now_us=bank.now_us, **wrong)
        assert caught.value.code is Code.INVALID_ARGUMENT


def test_the_listener_hears_of_whatever_takes_a_time(bank) -> None:
    heard: list[list[str]] = []
    bank.database.streams.listener = lambda tokens: heard.append(list(tokens))
    bank.ddl("CREATE TABLE Unwatched (K INT64) PRIMARY KEY (K)")
    bank.commit(Write("insert", "Unwatched", ("K",), (["1"],)))
    assert heard == [[], []]
