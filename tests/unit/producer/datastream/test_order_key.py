"""Order keys sort, bytewise, as the documentation says that each source made its changes."""

import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.datastream_files import SOURCES, backfill, history
from tidegate.producer.datastream.errors import InvalidEvent, MissingSortKey
from tidegate.producer.datastream.event import parse_event
from tidegate.producer.datastream.metadata import metadata_of
from tidegate.producer.datastream.order_key import BACKFILL_KEY, order_key
from tidegate.producer.datastream.position import Position
from tidegate.producer.datastream.read_methods import SourceKind, read_method_of
from tidegate.schemas.order_key import OrderKey

HERE = Position("a.avro", 1)
UINT32, UINT64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
TIMES = st.integers(-(2**40), 2**50)
FILES = st.integers(0, 2_000_000)
LAST_OF_SIX_DIGITS = 999_999


def key(source, method="", at=0, **fields):
    name = "object_name" if source == "salesforce" else "table"
    metadata = metadata_of(SourceKind(source), {name: "t", **fields}, HERE)
    found = read_method_of(method or {"postgresql": "postgres-cdc-wal"}.get(source) or {
        "mysql": "mysql-cdc-binlog", "oracle": "oracle-cdc-logminer",
        "sqlserver": "sqlserver-cdc", "salesforce": "salesforce-cdc",
        "spanner": "spanner-cdc",
    }[source], fields)  # fmt: skip
    return order_key(found, metadata, source_timestamp_us=at, position=HERE)


def assert_same_order(left, right, keys):
    one, other = keys
    assert (one < other) == (left < right)
    assert (one == other) == (left == right)


@pytest.mark.rule("datastream-mysql-order")
@given(st.tuples(FILES, UINT64), st.tuples(FILES, UINT64), TIMES, TIMES)
@example((LAST_OF_SIX_DIGITS, 0), (LAST_OF_SIX_DIGITS + 1, 0), 0, 0)
@example((1, 500), (1, 900), 2_000, 0)
def test_mysql_by_number_of_the_log_and_position_whatever_the_time(left, right, at, later):
    keys = [
        key("mysql", at=time, log_file=f"mysql-bin.{number:06d}", log_position=position)
        for (number, position), time in ((left, at), (right, later))
    ]
    assert_same_order(left, right, keys)


@pytest.mark.rule("datastream-equal-positions")
@given(FILES, UINT64)
def test_mysql_at_one_position_first_what_leaves_a_key(number, position):
    """`UPDATE … SET id = id + 1`: its events may be in several files, in any order."""
    place = {"log_file": f"mysql-bin.{number:06d}", "log_position": position}
    leaves = key("mysql", change_type="UPDATE-DELETE", **place)
    comes = key("mysql", change_type="UPDATE-INSERT", **place)
    assert leaves < comes
    assert {key("mysql", change_type=one, **place) for one in ("INSERT", "DELETE")} == {comes}
    before = key("mysql", **{**place, "log_position": position - 1}) if position else b""
    assert before < leaves


NUMBERS = st.integers(0, 10**18 - 1)
SERVER = "3E11FA47-71CA-11E1-9E33-C80AA9429562"


@pytest.mark.rule("datastream-gtid-order")
@given(st.tuples(NUMBERS, UINT64), st.tuples(NUMBERS, UINT64), FILES, FILES)
def test_mysql_with_global_identifiers_by_transaction_whatever_the_log(left, right, log, other):
    for form in (f"{SERVER}:{{}}", f"{SERVER.lower()}:nightly:{{}}", "0-17-{}"):
        keys = [
            key(
                "mysql", method="cdc", gtid=form.format(number), binlog_position=position,
                binlog_file=f"binlog.{file:06d}",
            )
            for (number, position), file in ((left, log), (right, other))
        ]  # fmt: skip
        assert_same_order(left, right, keys)


@pytest.mark.rule("datastream-gtid-order")
def test_mysql_with_a_log_is_in_the_order_of_the_log_whatever_else_is_said():
    """Streams that follow the log, also those that have begun, keep their order."""
    place = {"log_file": "mysql-bin.000014", "log_position": 5}
    for gtid in (f"{SERVER}:23", "0-17-4", "17"):
        assert key("mysql", gtid=gtid, **place) == key("mysql", **place)


@pytest.mark.parametrize("gtid", [f"{SERVER}:1-23", f"{SERVER}:", "17", f"{SERVER}:{10**18}"])
def test_a_global_identifier_in_another_notation_is_refused(gtid):
    with pytest.raises(InvalidEvent, match="gtid has an unknown notation"):
        key("mysql", gtid=gtid, binlog_position=4)
    with pytest.raises(MissingSortKey, match="binlog_position"):
        key("mysql", gtid=f"{SERVER}:1")


@pytest.mark.rule("datastream-oracle-order")
@given(st.tuples(UINT64, UINT64, UINT64, UINT64), st.tuples(UINT64, UINT64, UINT64, UINT64), TIMES)
def test_oracle_by_record_set_and_sequence_whatever_scn_and_time(left, right, at):
    keys = [
        key("oracle", at=time, rs_id=f"0x{a:06x}.{b:08x}.{c:04x}", ssn=ssn, scn=scn)
        for (a, b, c, ssn), time, scn in ((left, at, 9), (right, 0, 1))
    ]
    assert_same_order(left, right, keys)


@pytest.mark.rule("datastream-postgresql-order")
@given(st.tuples(TIMES, UINT64), st.tuples(TIMES, UINT64))
def test_postgresql_by_time_and_lsn(left, right):
    keys = [
        key("postgresql", at=at, lsn=f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}")
        for at, lsn in (left, right)
    ]
    assert_same_order(left, right, keys)


@pytest.mark.rule("datastream-sql-server-order")
@given(
    st.tuples(TIMES, UINT32, UINT32, st.integers(0, 2**16 - 1)),
    st.tuples(TIMES, UINT32, UINT32, st.integers(0, 2**16 - 1)),
)
def test_sql_server_by_time_and_lsn(left, right):
    keys = [key("sqlserver", at=at, lsn=f"{a:x}:{b:x}:{c:x}") for at, a, b, c in (left, right)]
    assert_same_order(left, right, keys)


@pytest.mark.rule("datastream-salesforce-order")
@given(TIMES, TIMES)
def test_salesforce_by_time(left, right):
    assert_same_order(left, right, [key("salesforce", at=at) for at in (left, right)])


PLACES = st.tuples(
    st.integers(0, 2**53), st.sampled_from(["a", "b", "aa"]), st.tuples(UINT64, UINT64), UINT32
)


def place(at, transaction, sequence, number):
    return {
        "commit_timestamp": at, "tx_id": transaction, "mod_number": number,
        "record_sequence": f"{sequence[0]:x}-{sequence[1]:x}",
    }  # fmt: skip


@pytest.mark.rule("datastream-spanner-order")
@given(PLACES, PLACES, TIMES)
def test_spanner_by_its_own_order_whatever_the_read_and_the_time(left, right, at):
    keys = [key("spanner", at=at, **place(*left)),
            key("spanner", "spanner-backfill", **place(*right))]  # fmt: skip
    orders = [OrderKey(*one).encode() for one in (left, right)]
    assert_same_order(*orders, keys)
    assert [one[1:] for one in keys] == orders


@pytest.mark.rule("datastream-arrival")
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("seed", range(5))
def test_a_history_is_put_in_order_and_rows_of_a_backfill_before_it(source, seed):
    rng = random.Random(seed)
    changes, rows = history(source, rng, 60), backfill(source, rng, 8)
    shuffled = [*changes, *rows]
    rng.shuffle(shuffled)
    events = [parse_event(one, Position("f", n)) for n, one in enumerate(shuffled, 1)]
    keyed = sorted(events, key=lambda one: one.order_key)

    assert {one.order_key for one in keyed[: len(rows)]} == {BACKFILL_KEY}
    assert {one.uuid for one in keyed[: len(rows)]} == {one["uuid"] for one in rows}
    assert [one.uuid for one in keyed[len(rows) :]] == [one["uuid"] for one in changes]


@pytest.mark.rule("datastream-backfill-order")
@given(TIMES)
def test_rows_of_a_backfill_are_before_every_change_and_need_nothing(at):
    change = key("salesforce", at=-(2**63))
    for source in SourceKind:
        assert key(source.value, f"{source.value}-backfill", at=at) == BACKFILL_KEY < change


def test_a_supplementation_sorts_as_a_change_or_is_refused():
    place = {"rs_id": "0x1.2.3", "ssn": 4}
    assert key("oracle", "oracle-supplementation", **place) == key("oracle", **place)
    with pytest.raises(MissingSortKey):
        key("oracle", "oracle-supplementation")


def test_the_bytes_are_those_of_the_description():
    assert key("mysql", log_file="b.000014", log_position=3).hex() == (
        "01" + "000000000000000e" + "0000000000000003" + "01"
    )
    assert key("sqlserver", at=1, lsn="25:728:3").hex() == (
        "01" + "8000000000000001" + "00000025" + "00000728" + "0003"
    )


@pytest.mark.rule("datastream-missing-position")
@pytest.mark.parametrize(
    ("source", "fields", "name"),
    [
        ("mysql", {"log_position": 1}, "log_file"),
        ("mysql", {"log_file": "", "log_position": 1}, "log_file"),
        ("mysql", {"log_file": "b.1"}, "log_position"),
        ("oracle", {"ssn": 1}, "rs_id"),
        ("oracle", {"rs_id": "0x1.2.3"}, "ssn"),
        ("postgresql", {}, "lsn"),
        ("sqlserver", {}, "lsn"),
        *(
            ("spanner", {n: v for n, v in place(1, "a", (0, 1), 0).items() if n != name}, name)
            for name in place(1, "a", (0, 1), 0)
        ),
    ],
)
def test_a_change_without_its_place_is_refused(source, fields, name):
    with pytest.raises(MissingSortKey, match=rf"source_metadata\.{name}.*record=1"):
        key(source, **fields)


@pytest.mark.rule("datastream-missing-position")
@pytest.mark.parametrize(
    ("source", "fields"),
    [
        ("mysql", {"log_file": "x", "log_position": 1}),
        ("mysql", {"log_file": "b.1", "log_position": -1}),
        ("mysql", {"log_file": "b.1", "log_position": 2**64}),
        ("oracle", {"rs_id": "1.2", "ssn": 1}),
        ("postgresql", {"lsn": "x"}),
        ("sqlserver", {"lsn": "16/CB002DB0"}),
        ("spanner", place(1, "a", (0, 1), 0) | {"record_sequence": "x"}),
        ("spanner", place(2**64, "a", (0, 1), 0)),
        ("spanner", place(1, "a", (0, 1), -1)),
    ],
)
def test_a_place_in_another_notation_is_refused(source, fields):
    with pytest.raises(InvalidEvent, match=r"notation|range"):
        key(source, **fields)
