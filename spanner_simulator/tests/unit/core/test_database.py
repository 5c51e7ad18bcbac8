from __future__ import annotations

import json

import pytest

from spanner_simulator.core.database import Database
from spanner_simulator.core.journal import (
    JournaledChange,
    JournaledCommit,
    JournaledSchema,
    entry_from_plain,
    entry_to_plain,
)
from spanner_simulator.core.rows.mutations import Delete, KeyBound, KeySet, KeySpan, Write
from spanner_simulator.core.rows.storage import VERSION_RETENTION_US, KeyRange
from spanner_simulator.core.schema.ddl import parse_ddl
from spanner_simulator.errors import BrokenInvariantError, Code, SpannerError
from unit.conftest import BANK

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


def test_what_did_not_exist_yet_is_not_found_by_a_read_and_invalid_in_a_query(bank) -> None:
    database = bank.database
    table, everything = database.catalogue.table("Accounts"), KeyRange(b"", None)
    for code, ask in (
        (Code.NOT_FOUND, lambda: read(bank, ALL, read_us=1)),
        (
            Code.INVALID_ARGUMENT,
            lambda: database.scan(table, everything, transaction=None, read_us=1),
        ),
    ):
        with pytest.raises(SpannerError, match="Table not found: Accounts") as caught:
            ask()
        assert caught.value.code is code


def test_versions_older_than_their_retention_are_refused(bank) -> None:
    with pytest.raises(SpannerError) as caught:
        bank.database.close_read(5, now_us=VERSION_RETENTION_US + 6)
    assert caught.value.code is Code.FAILED_PRECONDITION


def test_a_dropped_table_takes_its_rows_along(bank) -> None:
    bank.commit(account(1))
    bank.ddl(
        "ALTER CHANGE STREAM Bank DROP FOR ALL",
        "DROP TABLE Accounts",
        "CREATE TABLE Accounts (Id INT64) PRIMARY KEY (Id)",
    )
    assert read(bank, ALL) == []


class TestDml:
    """Writes within a transaction, before its commit."""

    def test_a_refused_commit_leaves_what_was_written_before(self, bank) -> None:
        transaction = bank.database.begin()
        bank.database.execute(transaction, [account(1)])
        bad = Write("update", "Accounts", ("Id", "Balance"), (["9", "1"],))
        with pytest.raises(SpannerError, match="is missing"):
            bank.database.commit(transaction, [account(2), bad], now_us=bank.tick())
        bank.database.commit(transaction, [], now_us=bank.tick())
        assert read(bank, ALL) == [1]

    def test_nothing_is_accepted_by_one_that_is_over(self, bank) -> None:
        database = bank.database
        committed, rolled_back = database.begin(), database.begin()
        aborted, reader = database.begin(), database.begin(read_us=5)
        database.commit(committed, [], now_us=bank.tick())
        database.rollback(rolled_back.transaction_id)
        read(bank, ALL, transaction=aborted)
        bank.commit(account(1))
        with pytest.raises(SpannerError):
            database.commit(aborted, [], now_us=bank.tick())

        for transaction in (committed, rolled_back, aborted, reader):
            with pytest.raises(SpannerError) as caught:
                database.execute(transaction, [account(2)])
            expected = Code.ABORTED if transaction is aborted else Code.FAILED_PRECONDITION
            assert caught.value.code is expected
        for transaction in (committed, rolled_back, aborted):
            with pytest.raises(SpannerError):
                read(bank, ALL, transaction=transaction)

    def test_a_change_of_tables_aborts_it_a_new_change_stream_does_not(self, bank) -> None:
        first, second = bank.database.begin(), bank.database.begin()
        bank.database.execute(first, [account(1)])
        bank.ddl("CREATE CHANGE STREAM Other FOR ALL")
        bank.database.commit(first, [], now_us=bank.tick())
        bank.database.execute(second, [account(2)])
        bank.ddl("ALTER TABLE Accounts ADD COLUMN X INT64")
        with pytest.raises(SpannerError, match="the schema has changed") as caught:
            bank.database.commit(second, [], now_us=bank.tick())
        assert caught.value.code is Code.ABORTED

    def test_the_commit_timestamp_is_filled_in_at_the_commit(self, bank) -> None:
        bank.ddl(
            "CREATE TABLE Log (Moment TIMESTAMP OPTIONS (allow_commit_timestamp=true), N INT64) "
            "PRIMARY KEY (Moment, N)"
        )
        table = bank.database.catalogue.table("Log")
        transaction = bank.database.begin()
        entry = Write("insert", "Log", ("Moment", "N"), (["spanner.commit_timestamp()", "1"],))
        bank.database.execute(transaction, [entry])
        with pytest.raises(SpannerError, match="Table Log cannot be accessed"):
            bank.database.scan(
                table, KeyRange(b"", None), transaction=transaction, read_us=None, columns=["N"]
            )
        at_us = bank.database.commit(transaction, [], now_us=bank.tick())

        rows = bank.database.read(table, ALL, transaction=None, read_us=None)
        assert rows == [{"Moment": at_us * 1000, "N": 1}]


class TestSchemaAndRows:
    @pytest.fixture
    def bank(self, bank):
        bank.ddl("CREATE CHANGE STREAM Every FOR ALL")
        bank.commit(account(1, 10), account(2, 20))
        return bank

    def test_text_that_cannot_be_read_refuses_all_statements(self, bank) -> None:
        with pytest.raises(SpannerError):
            bank.database.apply_ddl(["DROP CHANGE STREAM Every", "NONSENSE"], now_us=bank.tick())
        assert bank.database.streams.state("Every")

    def test_a_default_is_filled_in_as_a_system_transaction(self, make_bank) -> None:
        bank = make_bank(expressions=Seven())
        bank.ddl("CREATE CHANGE STREAM Every FOR ALL")
        before_us = bank.commit(account(1, 10), account(2, 20))
        bank.ddl("ALTER TABLE Accounts ADD COLUMN D INT64 DEFAULT (7)")
        log = bank.database.streams.state("Every").log.transactions
        table = bank.database.catalogue.table("Accounts")

        def column(read_us: int | None) -> list[object]:
            rows = bank.database.read(table, ALL, transaction=None, read_us=read_us)
            return [row["D"] for row in rows]

        assert (column(None), column(before_us)) == ([7, 7], [None, None])
        assert len(log) == 2
        assert log[1].facts.is_system_transaction
        assert [one["new_values"] for one in log[1].as_json()["changes"]] == [{"D": "7"}] * 2

    def test_rows_that_forbid_a_change_leave_the_schema_as_it_was(self, bank) -> None:
        bank.commit(account(3, 20))
        tables = dict(bank.database.catalogue.tables)
        with pytest.raises(
            SpannerError, match=r"violation on index ByBalance,  duplicate key: \[20\]"
        ):
            bank.ddl("CREATE UNIQUE INDEX ByBalance ON Accounts (Balance)")
        assert bank.database.catalogue.tables == tables
        assert bank.database.catalogue.indexes == {}
        bank.commit(account(4, 20))


class TestExpiry:
    def test_due_rows_go_in_system_transactions(self, bank) -> None:
        bank.ddl(
            "CREATE TABLE Old (Id INT64, Moment TIMESTAMP) PRIMARY KEY (Id), "
            "ROW DELETION POLICY (OLDER_THAN(Moment, INTERVAL 1 DAY))",
            "CREATE CHANGE STREAM Every FOR ALL",
        )
        rows = (["1", "1970-01-01T00:00:00Z"], ["2", "1970-01-03T00:00:00Z"], ["3", None])
        bank.commit(Write("insert", "Old", ("Id", "Moment"), rows))
        assert bank.database.expire_rows(bank.now_us) == 0
        assert bank.database.expire_rows(86_400_000_000) == 1
        assert bank.database.expire_rows(86_400_000_000) == 0
        facts = bank.database.streams.state("Every").log.transactions[-1].facts
        assert (facts.transaction_tag, facts.is_system_transaction) == ("RowDeletionPolicy", True)


class TestJournal:
    def test_a_replay_has_the_same_rows_records_tokens_and_timestamps(self, make_bank) -> None:
        """Through JSON, with turns, back-fills, several changes of a row; and other settings."""
        bank = make_bank(expressions=Seven(), is_empty=True)
        entries: list[object] = []
        bank.database.journal.listener = lambda entry: entries.append(entry_to_plain(entry))
        bank.ddl(*BANK, "CREATE CHANGE STREAM Two FOR ALL")
        bank.commit(*(account(key) for key in range(6)), tag="first")
        bank.database.streams.split("Bank", now_us=bank.tick(), table="Accounts", key=["3"])
        bank.ddl("CREATE INDEX ByBalance ON Accounts (Balance)")
        transaction = bank.database.begin()
        bank.database.execute(transaction, [Write("replace", "Accounts", ("Id",), (["3"],))])
        bank.database.commit(
            transaction, [Delete("Accounts", KeySet(keys=(["1"],)))], now_us=bank.tick()
        )
        bank.database.streams.move("Two", now_us=bank.tick())
        bank.database.streams.split("Two", now_us=bank.tick())
        bank.database.streams.merge("Bank", now_us=bank.tick())
        bank.ddl("ALTER TABLE Accounts ADD COLUMN D INT64 DEFAULT (7)", "DROP CHANGE STREAM Two")
        bank.commit(account(9))
        other = make_bank(expressions=Seven(), is_empty=True, seed=8, stream_partitions=5)
        for entry in json.loads(json.dumps(entries)):
            other.database.replay(entry_from_plain(entry))
        assert picture(other.database) == picture(bank.database)
        now_us = bank.tick(1_000)
        assert bank.database.commit(
            bank.database.begin(), [account(1)], now_us=now_us
        ) == other.database.commit(other.database.begin(), [account(1)], now_us=now_us)
        assert picture(other.database) == picture(bank.database)

    def test_what_cannot_be_kept_does_not_happen(self, bank) -> None:
        bank.database.journal.listener = full_disk
        with pytest.raises(OSError, match="disk"):
            bank.commit(account(1))
        assert read(bank, ALL) == []
        assert bank.database.streams.state("Bank").log.transactions == []
        bank.database.journal.listener = None
        bank.commit(account(2))
        assert read(bank, ALL) == [2]

    def test_ddl_without_its_text_cannot_be_kept(self, bank) -> None:
        bank.database.journal.listener = lambda _entry: None
        with pytest.raises(BrokenInvariantError, match="without its text"):
            bank.database.apply_ddl([parse_ddl("DROP CHANGE STREAM Bank")], now_us=bank.tick())

    def test_an_entry_that_does_not_fit_is_refused(self, bank) -> None:
        change = JournaledChange("Accounts", "DELETE", ("1",))
        with pytest.raises(SpannerError, match="does not fit"):
            bank.database.replay(JournaledCommit(5, 1, "", False, False, (change,)))
        assert not bank.database.journal.is_replaying

    @pytest.mark.parametrize("draws", [(), (1,), (1, 2, 3)])
    def test_a_token_is_never_made_up_in_a_replay(self, bank, draws: tuple[int, ...]) -> None:
        with pytest.raises(SpannerError, match="other draws than it needs"):
            bank.database.replay(JournaledSchema("CREATE CHANGE STREAM N FOR ALL", 5, 2, draws))


def full_disk(_entry: object) -> None:
    raise OSError("disk is full")


def picture(database: Database) -> object:
    """Everything that a client can see of a database."""
    everything = KeyRange(b"", None)
    rows = {
        name: ([(key, one.versions) for key, one in held.histories(everything)], held.created_us)
        for name, held in database._store.tables.items()
    }
    streams = {
        name: (
            [
                (one.token, one.ranges, one.start_us, one.end_us, one.parents, list(one.records))
                for one in state.partitions.by_token.values()
            ],
            [one.as_json() for one in state.log.transactions],
        )
        for name, state in database.streams.by_name.items()
    }
    return rows, streams, database.clock.next_us(0), database.commit_number


class Seven:
    """Every expression is 7."""

    def evaluate(self, expression: str, **_rest: object) -> int:
        return 7
