from __future__ import annotations

import pytest

from spanner_simulator.core.change_streams.assembly import Assembled, CommitFacts, assemble
from spanner_simulator.core.change_streams.commit_log import CommitLog
from spanner_simulator.core.change_streams.records import (
    DataChangeRecord,
    PartitionEndRecord,
    PartitionEventRecord,
    PartitionStartRecord,
)
from spanner_simulator.core.rows.key_sets import KeySet
from spanner_simulator.core.rows.mutations import Delete, Mutation, RowChange, Write

COLUMNS = ("Id", "Balance", "Name")


def account(kind: str, key: int, balance: int | None = 1, name: str | None = "n") -> Write:
    plain = None if balance is None else str(balance)
    return Write(kind, "Accounts", COLUMNS, ([str(key), plain, name],))  # type: ignore[arg-type]


def balance(key: int, value: int) -> Write:
    return Write("update", "Accounts", ("Id", "Balance"), ([str(key), str(value)],))


def remove(key: int) -> Delete:
    return Delete("Accounts", KeySet(keys=([str(key)],)))


def last_records(bank, commit_us: int, stream: str = "Bank") -> list[tuple[str, DataChangeRecord]]:
    found = [
        (one.token, record)
        for one in bank.database.streams.state(stream).partitions.by_token.values()
        for record in one.records
        if record.commit_timestamp_us == commit_us
    ]
    return sorted(found, key=lambda pair: pair[1].record_sequence)


def test_a_new_table_mod_type_or_column_set_starts_a_new_record(bank) -> None:
    bank.commit(*(account("insert", key) for key in (1, 2, 3, 4)))
    at = bank.commit(
        balance(1, 5), balance(2, 5), account("update", 3), remove(4), account("insert", 5)
    )
    records = [record for _, record in last_records(bank, at)]
    assert [(record.mod_type, len(record.mods)) for record in records] == [
        ("UPDATE", 2),
        ("UPDATE", 1),
        ("DELETE", 1),
        ("INSERT", 1),
    ]
    lasts = [record.is_last_record_in_transaction_in_partition for record in records]
    assert lasts == [False, False, False, True]


def test_column_types_list_keys_and_what_was_written(bank) -> None:
    bank.commit(account("insert", 1))
    ((_, record),) = last_records(bank, bank.commit(balance(1, 5)))
    assert [
        (one.name, one.type_json, one.is_primary_key, one.ordinal_position)
        for one in record.column_types
    ] == [("Id", '{"code":"INT64"}', True, 1), ("Balance", '{"code":"INT64"}', False, 2)]


CAPTURED = {
    "OLD_AND_NEW_VALUES": ({"Balance": "5"}, {"Balance": "1"}, {"Balance": "5", "Name": "n"}),
    "NEW_VALUES": ({"Balance": "5"}, {}, {}),
    "NEW_ROW": ({"Balance": "5", "Name": "n"}, {}, {}),
    "NEW_ROW_AND_OLD_VALUES": (
        {"Balance": "5", "Name": "n"},
        {"Balance": "1"},
        {"Balance": "5", "Name": "n"},
    ),
}


@pytest.mark.parametrize("capture", CAPTURED)
def test_value_capture_types(bank, capture: str) -> None:
    updated_new, updated_old, deleted_old = CAPTURED[capture]
    bank.ddl(f"ALTER CHANGE STREAM Bank SET OPTIONS (value_capture_type = '{capture}')")
    inserted = last_records(bank, bank.commit(account("insert", 1)))
    updated = last_records(bank, bank.commit(balance(1, 5)))
    deleted = last_records(bank, bank.commit(remove(1)))
    (insert,), (update,), (delete,) = (
        records[0][1].mods for records in (inserted, updated, deleted)
    )
    assert (insert.new_values, insert.old_values) == ({"Balance": "1", "Name": "n"}, {})
    assert (update.new_values, update.old_values) == (updated_new, updated_old)
    assert (delete.new_values, delete.old_values) == ({}, deleted_old)
    assert insert.keys == update.keys == delete.keys == {"Id": "1"}
    assert updated[0][1].value_capture_type == capture


@pytest.mark.parametrize(
    ("alteration", "inserted"),
    [
        ("SET FOR Accounts(Name)", {"Name": None}),
        ("SET FOR Accounts()", {}),
        ("SET OPTIONS (exclude_update = true)", {"Balance": "1", "Name": None}),
    ],
)
def test_an_update_that_is_not_watched_gives_no_record_and_a_null_is_not_absent(
    bank, alteration: str, inserted: dict[str, str | None]
) -> None:
    bank.ddl(f"ALTER CHANGE STREAM Bank {alteration}")
    writes = (account("insert", 1, name=None), balance(1, 5), remove(1))
    (insert,), update, (delete,) = (last_records(bank, bank.commit(one)) for one in writes)
    assert insert[1].mods[0].new_values == inserted
    assert (update, delete[1].mod_type) == ([], "DELETE")


def test_a_large_transaction_is_cut_into_records(bank) -> None:
    mutations: list[Mutation] = [account("insert", key) for key in range(1, 301)]
    records = [record for _, record in last_records(bank, bank.commit(*mutations))]
    assert [len(record.mods) for record in records] == [256, 44]
    assert [one.is_last_record_in_transaction_in_partition for one in records] == [False, True]


def test_names_have_their_schema_and_generated_columns_never_appear(bank) -> None:
    bank.ddl(
        "CREATE SCHEMA n",
        "CREATE TABLE n.D (Id INT64, V INT64, W INT64 AS (V * 2) STORED) PRIMARY KEY (Id)",
        "CREATE CHANGE STREAM Everything FOR ALL OPTIONS (value_capture_type = 'NEW_ROW')",
    )
    table = bank.database.catalogue.table("n.D")
    row = {"Id": 1, "V": 2, "W": 4}
    change = RowChange(table, table.encoded_key(row), "INSERT", None, row, table.value_names)
    facts = CommitFacts(bank.tick(), "9")
    bank.database.streams.publish([change], facts, is_excluded=False)
    ((_, record),) = last_records(bank, bank.now_us, "Everything")
    assert record.table_name == "n.D"
    assert [one.name for one in record.column_types] == ["Id", "V"]
    assert record.mods[0].new_values == {"V": "2"}


def test_one_change_and_many_are_assembled_alike(bank) -> None:
    stream = bank.database.catalogue.stream("Bank")
    partitions = bank.database.streams.state("Bank").partitions
    table = bank.database.catalogue.table("Accounts")
    before: dict[str, object] = {"Id": 1, "Balance": 1, "Name": "n"}
    after = {**before, "Balance": 2}
    for mod_type, old, new in (
        ("INSERT", None, after),
        ("UPDATE", before, after),
        ("DELETE", before, None),
    ):
        change = RowChange(table, table.encoded_key(before), mod_type, old, new, {"Balance"})
        facts = CommitFacts(5, "9", "tag")
        alone = assemble(stream, partitions, [change], facts)
        twice = assemble(stream, partitions, [change, change], facts)
        ((where, record),) = alone.records
        ((also_where, both),) = twice.records
        assert where is also_where
        assert both._replace(mods=both.mods[:1]) == record
        assert alone.places == {0: ("00000000", 0)}


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


@pytest.fixture
def mutable(make_bank):
    """A bank with a stream of mutable key ranges: one stream partition has all accounts."""
    bank = make_bank()
    bank.ddl("CREATE CHANGE STREAM M FOR ALL OPTIONS (partition_mode = 'MUTABLE_KEY_RANGE')")
    bank.tick()
    return bank


def test_a_split_parent_names_its_children_hands_over_and_ends(mutable) -> None:
    parent = mutable.database.streams.state("M").partitions.live[0]
    children = mutable.database.streams.split("M", now_us=mutable.tick(), token=parent.token)
    at_us = children[0].start_us
    tokens = tuple(child.token for child in children)
    order = parent.records[0].record_sequence.split("-")[0]
    first, second, third, fourth = (f"{order}-{number:08d}" for number in range(4))
    assert list(parent.records) == [
        PartitionStartRecord(at_us * 1000, first, (tokens[0],)),
        PartitionStartRecord(at_us * 1000, second, (tokens[1],)),
        PartitionEventRecord(at_us, third, parent.token, move_out_destinations=tokens),
        PartitionEndRecord(at_us, fourth, parent.token),
    ]
    for child in children:
        moved = PartitionEventRecord(at_us, first, child.token, move_in_sources=(parent.token,))
        assert list(child.records) == [moved]


def test_of_merging_parents_only_the_first_names_the_child(mutable) -> None:
    first, second = mutable.database.streams.state("M").partitions.live
    (child,) = mutable.database.streams.merge("M", now_us=mutable.tick())
    kinds = [PartitionStartRecord, PartitionEventRecord, PartitionEndRecord]
    assert [type(one) for one in first.records] == kinds
    assert [type(one) for one in second.records] == kinds[1:]
    assert [one.move_in_sources for one in child.records] == [(first.token, second.token)]
    for parent in (first, second):
        numbers = [one.record_sequence.split("-")[1] for one in parent.records]
        assert numbers == [f"{number:08d}" for number in range(len(numbers))]


def test_keys_move_between_the_living_and_later_changes_follow_them(mutable) -> None:
    database = mutable.database
    source, destination = database.streams.state("M").partitions.live
    mutable.commit(Write("insert", "Accounts", ("Id",), (["5"],)))
    database.streams.move_keys(
        "M",
        now_us=mutable.tick(),
        source=source.token,
        destination=destination.token,
        table="Accounts",
        first_key=["5"],
        last_key=["9"],
    )
    mutable.commit(*(Write("insert_or_update", "Accounts", ("Id",), ([key],)) for key in "459"))

    kinds = [[type(one).__name__ for one in each.records] for each in (source, destination)]
    assert kinds == [
        ["DataChangeRecord", "PartitionEventRecord", "DataChangeRecord"],
        ["PartitionEventRecord", "DataChangeRecord"],
    ]
    assert source.records[1].move_out_destinations == (destination.token,)
    assert destination.records[0].move_in_sources == (source.token,)
    assert [mod.keys["Id"] for mod in source.records[2].mods] == ["4"]
    assert [mod.keys["Id"] for mod in destination.records[1].mods] == ["9"]
    assert source.is_live
    sequences = [one.record_sequence for one in (source.records[1], source.records[2])]
    assert sequences == sorted(sequences)


def test_no_two_turns_have_one_time(mutable) -> None:
    now_us = mutable.tick()
    for _ in range(4):
        mutable.database.streams.move("M", now_us=now_us)
    times = [
        record.commit_timestamp_us
        for one in mutable.database.streams.state("M").partitions.by_token.values()
        for record in one.records
        if isinstance(record, PartitionEventRecord) and record.move_in_sources
    ]
    assert len(set(times)) == len(times) == 4
