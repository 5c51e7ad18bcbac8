from __future__ import annotations

import pytest

from spanner_simulator.core.change_streams.assembly import Assembled, CommitFacts
from spanner_simulator.core.change_streams.commit_log import CommitLog
from spanner_simulator.core.rows.mutations import Delete, KeySet, RowChange, Write

INSERT = Write("insert", "Accounts", ("Id", "Balance", "Name"), (["1", "1", "n"],))
UPDATE = Write("update", "Accounts", ("Id", "Balance"), (["1", "5"],))
DELETE = Delete("Accounts", KeySet(everything=True))


def test_an_entry_has_the_transaction_and_its_changes(bank) -> None:
    bank.commit(INSERT)
    at = bank.commit(UPDATE, tag="T")
    state = bank.database.streams.state("Bank")

    assert state.log.transactions[1].as_json() == {
        "index": 1,
        "commit_timestamp": "1970-01-01T00:00:01.00004Z",
        "commit_timestamp_us": at,
        "server_transaction_id": "00000000000000000002",
        "tag": "T",
        "stream_partition_tokens": [state.partitions.live[0].token],
        "changes": [
            {
                "table": "Accounts",
                "mod_type": "UPDATE",
                "keys": {"Id": "1"},
                "new_values": {"Balance": "5"},
                "old_values": {"Balance": "1"},
                "record_sequence": "00000000",
                "mod_number": 0,
            }
        ],
    }


@pytest.mark.parametrize(
    "capture", ["OLD_AND_NEW_VALUES", "NEW_ROW", "NEW_VALUES", "NEW_ROW_AND_OLD_VALUES"]
)
def test_the_log_and_the_records_agree_although_made_apart(bank, capture: str) -> None:
    bank.ddl(f"ALTER CHANGE STREAM Bank SET OPTIONS (value_capture_type = '{capture}')")
    for mutation in (INSERT, UPDATE, DELETE):
        bank.commit(mutation)
    state = bank.database.streams.state("Bank")
    logged = [one["changes"][0] for one in (t.as_json() for t in state.log.transactions)]
    records = [record for one in state.partitions.live for record in one.records]

    assert [(one["keys"], one["new_values"], one["old_values"]) for one in logged] == [
        (mod.keys, mod.new_values, mod.old_values) for record in records for mod in record.mods
    ]


def test_a_change_that_the_assembly_forgot_stands_in_the_log_without_coordinates(bank) -> None:
    database = bank.database
    table = database.catalogue.table("Accounts")
    row = {"Id": 1, "Balance": 2, "Name": None}
    change = RowChange(table, table.encoded_key(row), "INSERT", None, row, table.value_names)
    log = CommitLog()
    log.note(database.catalogue.stream("Bank"), [change], CommitFacts(5, "x"), Assembled())
    (entry,) = (one.as_json() for one in log.transactions)

    assert entry["changes"][0]["record_sequence"] is None
    assert entry["stream_partition_tokens"] == []


def test_what_is_not_watched_is_not_logged(bank) -> None:
    bank.ddl("ALTER CHANGE STREAM Bank SET FOR Ledger")
    bank.commit(INSERT)

    assert bank.database.streams.state("Bank").log.transactions == []
