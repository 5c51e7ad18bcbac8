"""The Iceberg changelog: every change once, in order, with every type as the Delta changelog."""

from __future__ import annotations

import math
import uuid
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from tidegate.schemas.errors import ConfigError, SchemaError
from tidegate.spark_consumer.sinks.decoding import CHANGE_COLUMNS
from tidegate.spark_consumer.sinks.delta.changelog import DeltaChangelogSink
from tidegate.spark_consumer.sinks.iceberg.changelog import IcebergChangelogSink
from tidegate.spark_consumer.sinks.iceberg.java_table import JavaTable

pytestmark = pytest.mark.spark

ACCOUNTS = {"id": "INT64", "owner": "STRING(MAX)", "balance": "INT64"}


def opened(kit, lake, *, query_id="query-1", release_max=100):
    sink = IcebergChangelogSink(kit.spark, lake.output, lake.place)
    sink.open(query_id=query_id, release_max=release_max)
    return sink


def insert(kit, number, **place):
    return kit.Change("INSERT", {"id": number}, {"owner": f"o{number}", "balance": 1}, **place)


@pytest.fixture
def accounts(kit):
    return kit.Topic("accounts", {1: ACCOUNTS}, ["id"])


def places(lake, version=None):
    found = lake.rows("changelog", "accounts", version)
    return sorted((row["release"], row["ordinal"]) for row in found)


@pytest.mark.rule("sink-iceberg-changelog")
def test_rows_stand_in_one_file_per_release_in_commit_order(kit, lake, accounts):
    changes = [(accounts, insert(kit, n, us=1_000 - n, sequence=n % 7)) for n in range(50)]
    written = opened(kit, lake).write(kit.release(0, changes))["accounts"]
    assert (written.path, written.rows) == ("iceberg/bank_changelog/accounts", 50)
    rows = lake.rows("changelog", "accounts", written.version)
    assert [row["ordinal"] for row in rows] == list(range(50))
    assert [bytes(row["order_key"]) for row in rows] == sorted(c.order_key for _, c in changes)
    assert tuple(rows[0]) == CHANGE_COLUMNS
    assert len(list(Path(kit.output, written.path).rglob("*.parquet"))) == 1
    assert lake.java("changelog", "accounts").current().release == 0


@pytest.mark.rule("sink-iceberg-changelog")
@pytest.mark.slow
@pytest.mark.parametrize("small", [False, True])
def test_a_release_written_twice_is_there_once_also_by_a_new_process(kit, lake, accounts, small):
    ledger = kit.Topic("ledger", {2: {"id": "INT64"}}, ["id"], key_id=101)
    releases = [
        kit.release(number, [(accounts, insert(kit, number))], topics=[ledger], small=small)
        for number in range(3)
    ]
    sink = opened(kit, lake)
    first = [sink.write(release) for release in releases]
    assert [sink.write(release) for release in releases] == first
    restarted = opened(kit, lake)
    assert [restarted.write(release) for release in releases] == first
    assert places(lake) == [(0, 0), (1, 0), (2, 0)]
    assert places(lake, first[1]["accounts"].version) == [(0, 0), (1, 0)]
    assert lake.rows("changelog", "ledger", first[2]["ledger"].version) == []


class Killed(BaseException):
    """As a kill: nothing catches it."""


# One of them before each merge, all in the deep lane.
STEPS = [
    *(pytest.param(step, marks=pytest.mark.deep) for step in ("stage", "publish", "published")),
    "staged",
]


@pytest.mark.rule("sink-iceberg-changelog")
@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_a_kill_at_any_step_neither_loses_nor_repeats(kit, lake, accounts, monkeypatch, step):
    sink = opened(kit, lake)
    sink.write(kit.release(0, [(accounts, insert(kit, 0))]))
    release = kit.release(1, [(accounts, insert(kit, n)) for n in range(3)])
    staged, publish = JavaTable.staged, JavaTable.publish

    def kill_before(*_, **__):
        raise Killed

    def kill_after_staging(self, marker):
        staged(self, marker)
        raise Killed

    def kill_after_publishing(self, *known, **named):
        publish(self, *known, **named)
        raise Killed

    with monkeypatch.context() as patch:
        match step:
            case "stage":
                patch.setattr(sink._tables, "write", kill_before)
            case "staged":
                patch.setattr(JavaTable, "staged", kill_after_staging)
            case "publish":
                patch.setattr(JavaTable, "publish", kill_before)
            case "published":
                patch.setattr(JavaTable, "publish", kill_after_publishing)
        with pytest.raises(Killed):
            sink.write(release)
    is_there = step == "published"
    assert places(lake) == [(0, 0), *([(1, 0), (1, 1), (1, 2)] if is_there else [])]
    restarted = opened(kit, lake, release_max=1)
    version = restarted.write(release)["accounts"].version
    assert places(lake) == places(lake, version) == [(0, 0), (1, 0), (1, 1), (1, 2)]


@pytest.mark.rule("sink-iceberg-changelog")
@pytest.mark.slow
@pytest.mark.parametrize("moment", ["staged", pytest.param("publish", marks=pytest.mark.deep)])
def test_of_two_runs_that_write_one_release_one_publishes_it(
    kit, lake, accounts, monkeypatch, moment
):
    first, second = opened(kit, lake), opened(kit, lake)
    first.write(kit.release(0, [(accounts, insert(kit, 0))]))
    release = kit.release(1, [(accounts, insert(kit, n)) for n in range(3)])
    real, is_inside = getattr(JavaTable, moment), []

    def overtaken(self, *known, **named):
        """The other run writes all of it at this moment of the first one."""
        if not is_inside:
            is_inside.append(True)
            second.write(release)
        return real(self, *known, **named)

    monkeypatch.setattr(JavaTable, moment, overtaken)
    version = first.write(release)["accounts"].version
    assert is_inside == [True]
    assert places(lake) == places(lake, version) == [(0, 0), (1, 0), (1, 1), (1, 2)]


@pytest.mark.slow
def test_a_release_whose_staged_rows_maintenance_has_removed_is_staged_again(
    kit, lake, accounts, monkeypatch
):
    sink = opened(kit, lake)
    sink.write(kit.release(0, [(accounts, insert(kit, 0))]))
    staged, is_expired = JavaTable.staged, []

    def expire_first(self, marker):
        if not is_expired:
            is_expired.append(True)
            lake.expire("changelog", "accounts")
        return staged(self, marker)

    monkeypatch.setattr(JavaTable, "staged", expire_first)
    sink.write(kit.release(1, [(accounts, insert(kit, n)) for n in range(3)]))
    assert is_expired == [True]
    assert places(lake) == [(0, 0), (1, 0), (1, 1), (1, 2)]


@pytest.mark.rule("sink-iceberg-changelog")
@pytest.mark.slow
def test_maintenance_by_others_neither_repeats_a_release_nor_ends_the_query(kit, lake, accounts):
    releases = [kit.release(n, [(accounts, insert(kit, n))]) for n in range(4)]
    sink = opened(kit, lake)
    for release in releases[:2]:
        sink.write(release)
    lake.compact("changelog", "accounts")
    lake.expire("changelog", "accounts")
    assert lake.java("changelog", "accounts").current().release is None
    restarted = opened(kit, lake)
    for release in releases[:3]:
        restarted.write(release)
    assert places(lake) == [(0, 0), (1, 0), (2, 0)]
    lake.compact("changelog", "accounts")
    restarted.write(releases[3])
    assert places(lake) == [(0, 0), (1, 0), (2, 0), (3, 0)]


@pytest.mark.slow
def test_an_added_column_widens_the_table_and_old_rows_do_not_claim_it(kit, lake, accounts):
    after = kit.Topic("accounts", {1: ACCOUNTS, 2: ACCOUNTS | {"limit": "INT64"}}, ["id"])
    sink = opened(kit, lake)
    sink.write(kit.release(0, [(accounts, insert(kit, 1))]))
    old_writer = insert(kit, 2, us=5, value_id=1)
    new_writer = kit.Change("INSERT", {"id": 3}, {"owner": "o", "balance": 1, "limit": 9}, us=6)
    sink.write(kit.release(1, [(after, old_writer), (after, new_writer)]))
    rows = sorted(lake.rows("changelog", "accounts"), key=lambda row: row["key"]["id"])
    assert [row["new_values"]["limit"] for row in rows] == [None, None, 9]
    assert [row["new_columns"] for row in rows] == [None, ["id", "owner", "balance"], None]
    # One who knows less writes on: what its rows lack is null.
    restarted = opened(kit, lake)
    restarted.write(kit.release(2, [(accounts, insert(kit, 4))]))
    (row,) = [row for row in lake.rows("changelog", "accounts") if row["release"] == 2]
    assert (row["new_values"]["owner"], row["new_values"]["limit"]) == ("o4", None)
    changed = kit.Topic("accounts", {1: ACCOUNTS | {"balance": "STRING(MAX)"}}, ["id"])
    change = kit.Change("INSERT", {"id": 9}, {"owner": "o", "balance": "much"})
    with pytest.raises(SchemaError, match=r"column='new_values.balance'"):
        restarted.write(kit.release(3, [(changed, change)]))


@pytest.mark.slow
def test_every_type_is_that_of_the_delta_changelog(kit, lake):
    columns = {
        "id": "STRING(MAX)", "i": "INT64", "f32": "FLOAT32", "f": "FLOAT64", "b": "BOOL",
        "raw": "BYTES(MAX)", "n": "NUMERIC", "d": "DATE", "t": "TIMESTAMP", "j": "JSON",
        "u": "UUID", "strings": "ARRAY<STRING(MAX)>", "numbers": "ARRAY<NUMERIC>",
        "times": "ARRAY<TIMESTAMP>",
    }  # fmt: skip
    values = {
        "i": -(2**63), "f32": 1.5, "f": math.inf, "b": False, "raw": b"\x00\xff",
        "n": Decimal("-99999999999999999999999999999.999999999"), "d": date(1, 1, 1),
        "t": datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), "j": '{"a":1}',
        "u": uuid.UUID(int=7), "strings": ["", None, "é"],
        "numbers": [Decimal("0.000000001"), None], "times": [],
    }  # fmt: skip
    everything = kit.Topic("everything", {1: columns}, ["id"])
    nulls = dict.fromkeys(values)
    changes = [
        kit.Change("INSERT", {"id": "a"}, values, us=1),
        kit.Change("UPDATE", {"id": "a"}, values | {"f": math.nan}, nulls, us=2),
        kit.Change("UPDATE", {"id": "a"}, {"i": None}, us=3),
        kit.Change("DELETE", {"id": "a"}, None, values, us=4),
    ]
    release = kit.release(0, [(everything, change) for change in changes])
    delta = DeltaChangelogSink(kit.spark, kit.output)
    delta.open(query_id="query-1", release_max=0)
    delta.write(release)
    opened(kit, lake).write(release)
    there = kit.spark.read.format("delta").load(f"{kit.output}/changelog/everything")
    expected = [row.asDict(recursive=True) for row in there.orderBy("ordinal").collect()]
    assert len(expected) == 4
    assert repr(lake.rows("changelog", "everything")) == repr(expected)


@pytest.mark.slow
def test_another_query_and_a_checkpoint_behind_are_refused(kit, lake, accounts):
    sink = opened(kit, lake)
    for number in range(2):
        sink.write(kit.release(number, [(accounts, insert(kit, number))]))
    with pytest.raises(ConfigError, match=r"another writer.*bank_changelog.*accounts"):
        opened(kit, lake, query_id="query-2")
    with pytest.raises(ConfigError, match=r"later release.*release_in_table=1"):
        opened(kit, lake, release_max=0)
    opened(kit, lake, release_max=1)
