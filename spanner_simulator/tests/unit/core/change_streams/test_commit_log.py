from __future__ import annotations

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
