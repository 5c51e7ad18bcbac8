"""The table of transactions: a row for each, once, in commit order, values with every digit."""

import json
from decimal import Decimal
from pathlib import Path

import pytest

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.errors import TableMissing
from tidegate.spark_consumer.sinks.delta.transactions_sink import DeltaTransactionsSink
from tidegate.spark_consumer.sinks.manifest import Manifest, write_manifest

pytestmark = pytest.mark.spark

ROW = {
    "id": "INT64", "n": "NUMERIC", "raw": "BYTES(MAX)", "f": "FLOAT64", "d": "DATE",
    "l": "ARRAY<INT64>",
}  # fmt: skip


@pytest.fixture
def topics(kit):
    return kit.Topic("accounts", {2: ROW}, ["id"], key_id=1), kit.Topic(
        "transactions", {4: {"id": "INT64", "t": "STRING(MAX)"}}, ["id"], key_id=3
    )


def opened(kit, *, query_id="query-1", release_max=99):
    sink = DeltaTransactionsSink(kit.spark, kit.output)
    sink.open(query_id=query_id, release_max=release_max)
    return sink


def released(kit, topics, number, *, small=False):
    """Two transactions in an order of time that is not the one of their lists."""
    first, second = topics
    row = {"n": Decimal("12345678901234567890.123456789"), "raw": b"\x00\xff", "f": 0.5,
           "d": None, "l": [1, 2]}  # fmt: skip
    changes = [
        (second, kit.Change("INSERT", {"id": 1}, {"t": 'ä"'}, us=3, transaction="t2")),
        (first, kit.Change("INSERT", {"id": 7}, row, us=2)),
        (first, kit.Change("DELETE", {"id": 7}, None, us=3, transaction="t2", sequence=1)),
    ]
    return kit.release(number, changes, topics=topics, small=small)


@pytest.mark.rule("sink-transactions")
@pytest.mark.parametrize("small", [False, True])
def test_a_transaction_is_a_row_with_its_changes_in_order_over_all_tables(kit, topics, small):
    written = opened(kit).write(released(kit, topics, 4, small=small))
    assert {name: one.path for name, one in written.items()} == dict.fromkeys(
        ("accounts", "transactions"), "transactions"
    )
    rows = kit.read("transactions", written["accounts"].version).to_pylist()
    found = [(row["release"], row["first_ordinal"], row["server_transaction_id"]) for row in rows]
    assert found == [(4, 0, "t1"), (4, 1, "t2")]
    changes = [[(one["ordinal"], one["table"], one["mod_type"]) for one in row["changes"]]
               for row in rows]  # fmt: skip
    assert changes == [
        [(0, "accounts", "INSERT")], [(1, "transactions", "INSERT"), (2, "accounts", "DELETE")],
    ]  # fmt: skip
    values = json.loads(rows[0]["changes"][0]["new_values"], parse_float=Decimal)
    assert values == {
        "id": 7, "n": Decimal("12345678901234567890.123456789"), "raw": "AP8=",
        "f": Decimal("0.5"), "d": None, "l": [1, 2],
    }  # fmt: skip
    assert json.loads(rows[1]["changes"][0]["new_values"]) == {"id": 1, "t": 'ä"'}
    assert rows[1]["changes"][1]["new_values"] is None


@pytest.mark.rule("sink-transactions")
def test_a_release_written_twice_is_there_once_also_by_a_new_process(kit, topics):
    releases = [released(kit, topics, number) for number in range(2)]
    sink = opened(kit)
    first = [sink.write(release) for release in releases]
    assert [sink.write(release) for release in releases] == first
    assert [opened(kit).write(release) for release in releases] == first
    found = kit.read("transactions")
    assert sorted(found["release"].to_pylist()) == [0, 0, 1, 1]
    at_first = kit.read("transactions", first[0]["accounts"].version)
    assert at_first["release"].to_pylist() == [0, 0]


def test_a_release_without_changes_has_the_version_before_it(kit, topics):
    sink = opened(kit)
    empty = sink.write(kit.release(0, [], topics=topics))
    assert kit.read("transactions", empty["accounts"].version).num_rows == 0
    written = sink.write(released(kit, topics, 1))
    assert sink.write(kit.release(2, [], topics=topics)) == written
    assert sink.write(kit.release(3, [])) == {}


def test_a_table_of_another_query_or_ahead_of_the_checkpoint_is_refused(kit, topics):
    opened(kit).write(released(kit, topics, 1))
    opened(kit, release_max=1)
    with pytest.raises(ConfigError, match="later release than this checkpoint"):
        opened(kit, release_max=0)
    with pytest.raises(ConfigError, match="commits of another writer"):
        opened(kit, query_id="query-2")


def test_a_table_that_was_deleted_is_missed(kit, topics):
    from tidegate.spark_consumer.checkpoint.storage import Storage

    release = released(kit, topics, 0)
    written = opened(kit).write(release)
    files = Storage(kit.spark, kit.output)
    files.take()
    tables = {table: {"transactions": version} for table, version in written.items()}
    write_manifest(files, Manifest(
        release=0, query_id="query-1", batch=0, after_us=0, through_us=9, rows=3, tables=tables,
    ))  # fmt: skip
    opened(kit)
    Path(kit.output, "transactions").rename(Path(kit.output, "gone"))
    with pytest.raises(TableMissing):
        opened(kit)
