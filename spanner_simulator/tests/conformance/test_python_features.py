"""Smaller features that applications of the official Python client lean on."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest
from google.api_core.exceptions import (
    DeadlineExceeded,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PermissionDenied,
)
from google.cloud import spanner
from google.cloud.spanner_v1 import (
    ExecuteSqlRequest,
    Interval,
    RequestOptions,
    Type,
    TypeCode,
    param_types,
)
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from conformance.bank import account, read_all
from spanner_simulator import Simulator


def query(bank: Any, sql: str, **options: Any) -> list[Any]:
    with bank.snapshot() as snapshot:
        return list(snapshot.execute_sql(sql, **options))


def test_a_struct_is_bound_and_its_fields_are_used(bank: Any) -> None:
    pair = param_types.Struct(
        [
            param_types.StructField("Id", param_types.INT64),
            param_types.StructField("Balance", param_types.INT64),
        ]
    )
    found = query(
        bank,
        "SELECT @one.Balance, Id FROM Accounts "
        "WHERE (Id, Balance) IN UNNEST(@wanted) AND Balance = @one.Balance",
        params={"one": (account(3), 100), "wanted": [(account(3), 100), (account(4), 7)]},
        param_types={"one": pair, "wanted": param_types.Array(pair)},
    )

    assert found == [[100, account(3)]]


def test_intervals_are_parameters_and_results(bank: Any) -> None:
    given = Interval(months=14, days=3, nanos=4_500_000_000)
    found = query(
        bank,
        "SELECT @given, TIMESTAMP_ADD(TIMESTAMP '2024-01-01 00:00:00+00', INTERVAL 36 HOUR)",
        params={"given": given},
        param_types={"given": Type(code=TypeCode.INTERVAL)},
    )

    assert found[0][0] == given
    assert found[0][1] == dt.datetime(2024, 1, 2, 12, tzinfo=dt.UTC)


def test_messages_and_enums_are_columns_parameters_and_changes(bank: Any) -> None:
    files = FileDescriptorSet()
    file = files.file.add(name="shop.proto", package="shop", syntax="proto3")
    file.enum_type.add(name="Tier").value.add(name="UNKNOWN", number=0)
    file.enum_type[0].value.add(name="GOLD", number=1)
    text = FieldDescriptorProto(name="name", number=1, type="TYPE_STRING", label="LABEL_OPTIONAL")
    file.message_type.add(name="Customer").field.append(text)
    (pool := DescriptorPool()).Add(file)
    customer = GetMessageClass(pool.FindMessageTypeByName("shop.Customer"))
    bank.update_ddl(
        [
            "CREATE PROTO BUNDLE (shop.Customer, shop.Tier)",
            "CREATE TABLE Shops (K INT64, C shop.Customer, T shop.Tier) PRIMARY KEY (K)",
            "ALTER CHANGE STREAM Bank SET FOR Shops",
        ],
        proto_descriptors=files.SerializeToString(),
    ).result(30)
    with bank.batch() as batch:
        batch.insert("Shops", ("K", "C", "T"), [(1, customer(name="Ann"), 1)])
    found = query(
        bank,
        "SELECT C, T, CAST(T AS STRING) FROM Shops WHERE T = @tier",
        params={"tier": 1},
        param_types={"tier": Type(code=TypeCode.ENUM, proto_type_fqn="shop.Tier")},
        column_info={"C": customer()},
    )
    (change,) = [row[6] for row in read_all(bank, batch.committed) if row[4] == "Shops"]

    assert found == [[customer(name="Ann"), 1, "GOLD"]]
    assert [column[1] for column in change[5]] == [
        {"code": "INT64"},
        {"code": "PROTO", "proto_type_fqn": "shop.Customer"},
        {"code": "ENUM", "proto_type_fqn": "shop.Tier"},
    ]
    assert change[6][0][1] == {"C": "CgNBbm4=", "T": "1"}


def test_parameters_without_types_are_understood(bank: Any) -> None:
    found = query(
        bank,
        "SELECT COUNT(*) FROM Accounts WHERE Balance = @balance AND Id IN UNNEST(@ids)",
        params={"balance": 100, "ids": [account(1), account(2), 5]},
        param_types={"ids": param_types.Array(param_types.INT64)},
    )

    assert found == [[2]]


@pytest.mark.parametrize("mode", ["PLAN", "PROFILE"])
def test_a_query_may_ask_for_its_plan(bank: Any, mode: str) -> None:
    with bank.snapshot() as snapshot:
        found = snapshot.execute_sql(
            "SELECT Id, Balance FROM Accounts WHERE Balance > 0",
            query_mode=ExecuteSqlRequest.QueryMode[mode],
        )
        rows = list(found)

    assert len(rows) == (0 if mode == "PLAN" else 20)
    assert [field.name for field in found.fields] == ["Id", "Balance"]


def test_a_commit_counts_its_mutations_when_asked(connect: Callable[..., Any], bank: Any) -> None:
    database = connect()
    database.log_commit_stats = True
    with database.batch(
        request_options=RequestOptions(priority="PRIORITY_LOW", transaction_tag="stats")
    ) as batch:
        batch.insert("Ledger", ["Id", "Amount"], [["one", 1], ["two", 2]])

    assert batch.commit_stats.mutation_count >= 4


def test_an_excluded_transaction_is_left_out_of_streams_that_allow_it(bank: Any) -> None:
    bank.update_ddl(["ALTER CHANGE STREAM Bank SET OPTIONS (allow_txn_exclusion = true)"]).result(
        30
    )
    opened = write(bank, "seen")

    def hidden(transaction: Any) -> None:
        transaction.insert("Ledger", ["Id"], [["hidden"]])

    bank.run_in_transaction(hidden, exclude_txn_from_change_streams=True)
    last = write(bank, "last")
    bank.opened_at = opened
    keys = sorted(mod[0]["Id"] for *_, table, mod, _ in read_all(bank, last) if table == "Ledger")

    assert keys == ["last", "seen"]


def write(bank: Any, name: str) -> Any:
    with bank.batch() as batch:
        batch.insert("Ledger", ["Id"], [[name]])
    return batch.committed


def test_tags_and_options_of_a_transaction_reach_its_record(bank: Any) -> None:
    def tagged(transaction: Any) -> None:
        transaction.execute_update(
            "INSERT INTO Ledger (Id) VALUES ('tagged')",
            request_options={"request_tag": "statement", "priority": "PRIORITY_HIGH"},
        )

    bank.opened_at = write(bank, "before")
    bank.run_in_transaction(
        tagged,
        transaction_tag="tag",
        commit_request_options={"priority": "PRIORITY_MEDIUM"},
        max_commit_delay=dt.timedelta(milliseconds=50),
    )
    found = sorted(read_all(bank, write(bank, "after")), key=lambda one: one[0])

    assert [(mod[0]["Id"], record[11]) for *_, mod, record in found] == [
        ("before", ""),
        ("tagged", "tag"),
        ("after", ""),
    ]


def test_a_role_may_do_what_it_was_granted_and_no_more(
    bank: Any, connect: Callable[..., Any]
) -> None:
    bank.update_ddl(
        [
            "CREATE ROLE reader",
            "GRANT SELECT ON TABLE Accounts TO ROLE reader",
            "GRANT SELECT ON CHANGE STREAM Bank TO ROLE reader",
            "GRANT EXECUTE ON TABLE FUNCTION READ_Bank TO ROLE reader",
        ]
    ).result(30)
    reader = connect(database_role="reader")
    reader.opened_at = bank.opened_at

    assert query(reader, "SELECT COUNT(*) FROM Accounts") == [[20]]
    assert len(read_all(reader, bank.opened_at)) == 20
    with pytest.raises(PermissionDenied, match="Ledger"):
        query(reader, "SELECT * FROM Ledger")
    with pytest.raises(PermissionDenied, match="Accounts"), reader.batch() as batch:
        batch.insert("Accounts", ["Id", "Balance"], [[1, 1]])
    roles = {one.name.rsplit("/", 1)[-1] for one in bank.list_database_roles()}
    assert {"reader", "stranger"} <= roles


def test_tables_are_listed_with_their_columns(bank: Any) -> None:
    tables = {one.table_id: one for one in bank.list_tables()}

    assert set(tables) == {"Accounts", "Ledger"}
    assert [field.name for field in tables["Ledger"].schema] == ["Id", "Amount", "WrittenAt"]
    assert tables["Accounts"].exists()
    assert not bank.table("Nope").exists()


def test_instances_and_databases_are_listed_filtered_and_changed(
    bank: Any, simulator: Simulator
) -> None:
    client = spanner.Client(project="p")
    instance = client.instance("inst")
    instance.reload()
    instance.display_name = "renamed"
    instance.update().result(30)
    again = client.instance("inst")
    again.reload()

    assert again.display_name == "renamed"
    assert [one.name.rsplit("/", 1)[-1] for one in instance.list_databases()] == ["bank"]
    assert [one.name for one in client.list_instance_configs()]
    assert client.instance("nowhere").exists() is False


def test_dml_in_batches_takes_parameters_and_a_last_statement(bank: Any) -> None:
    def work(transaction: Any) -> Any:
        return transaction.batch_update(
            [
                (
                    "INSERT INTO Ledger (Id, Amount) VALUES (@id, @amount)",
                    {"id": "a", "amount": 1},
                    {"id": param_types.STRING, "amount": param_types.INT64},
                ),
                "UPDATE Ledger SET Amount = Amount + 1 WHERE Id = 'a'",
            ],
            last_statement=True,
        )

    status, counts = bank.run_in_transaction(work)

    assert (status.code, list(counts)) == (0, [1, 1])
    assert query(bank, "SELECT Amount FROM Ledger") == [[2]]


def test_an_upsert_in_sql(bank: Any) -> None:
    def work(transaction: Any) -> tuple[int, int]:
        one = transaction.execute_update(
            "INSERT OR IGNORE INTO Ledger (Id, Amount) VALUES ('a', 1)"
        )
        other = transaction.execute_update(
            "INSERT OR UPDATE INTO Ledger (Id, Amount) VALUES ('a', 2), ('b', 3)"
        )
        return one, other

    assert bank.run_in_transaction(work) == (1, 2)
    assert query(bank, "SELECT Id, Amount FROM Ledger ORDER BY Id") == [["a", 2], ["b", 3]]


def test_a_deadline_that_is_too_short_is_kept(bank: Any, simulator: Simulator) -> None:
    simulator.add_fault(method="ExecuteStreamingSql", kind="stall", count=1)
    with pytest.raises(DeadlineExceeded):
        query(bank, "SELECT 1", timeout=0.5, retry=None)

    assert query(bank, "SELECT 1") == [[1]]


def test_misuse_is_refused_by_name(bank: Any) -> None:
    with pytest.raises(NotFound, match="Nope"), bank.batch() as batch:
        batch.insert("Ledger", ["Id", "Nope"], [["a", 1]])
    with pytest.raises((InvalidArgument, FailedPrecondition)), bank.batch() as batch:
        batch.insert("Ledger", ["Id"], [["x" * 37]])
    with pytest.raises(InvalidArgument, match="Amount"):
        query(bank, "SELECT UPPER(Amount) FROM Ledger")
    with pytest.raises(InvalidArgument, match="missing"):
        query(bank, "SELECT @missing + 1 FROM Accounts")
    with pytest.raises(InvalidArgument):
        query(bank, "INSERT INTO Ledger (Id) VALUES ('by a read')")
