"""Order keys sort, bytewise, as the documentation says that each source made its changes."""

import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.datastream_files import SOURCES, backfill, history
from tidegate.producer.datastream.errors import (
    InvalidEvent,
    MissingSortKey,
    Position,
    SortKeyMismatch,
)
from tidegate.producer.datastream.event import parse_event
from tidegate.producer.datastream.event_order import (
    BACKFILL_KEY,
    log_file_number,
    oracle_record_set,
    order_key,
    postgresql_lsn,
    spanner_sequence,
    sql_server_lsn,
)
from tidegate.producer.datastream.metadata import metadata_of
from tidegate.producer.datastream.read_methods import SourceKind, read_method_of
from tidegate.producer.datastream.sort_keys import completed
from tidegate.schemas.order_key import OrderKey

HERE = Position("a.avro", 1)
METHODS = {
    "mysql": "mysql-cdc-binlog", "oracle": "oracle-cdc-logminer", "postgresql": "postgresql-cdc",
    "sqlserver": "sqlserver-cdc", "salesforce": "salesforce-cdc", "spanner": "spanner-cdc",
}  # fmt: skip
UINT32, UINT64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
TIMES = st.integers(-(2**40), 2**50)
FILES = st.integers(0, 2_000_000)
LAST_OF_SIX_DIGITS = 999_999
SUPPLEMENTATION = "oracle-supplementation"


def key(source, method="", at=0, **fields):
    name = "object_name" if source == "salesforce" else "table"
    metadata = metadata_of(SourceKind(source), {name: "t", **fields}, HERE)
    read_method = read_method_of(method or METHODS[source], fields)
    return order_key(read_method, metadata, source_timestamp_us=at, position=HERE)


def lsn_of(number):
    return f"{number >> 32:X}/{number & 0xFFFFFFFF:X}"


def assert_same_order(left, right, keys):
    first_key, other = keys
    assert (first_key < other) == (left < right)
    assert (first_key == other) == (left == right)


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
    assert {
        key("mysql", change_type=change_kind, **place) for change_kind in ("INSERT", "DELETE")
    } == {comes}
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


@pytest.mark.rule("datastream-oracle-order")
@given(st.tuples(UINT64, UINT64, UINT64, UINT64), st.tuples(UINT64, UINT64, UINT64, UINT64), TIMES)
def test_oracle_by_record_set_and_sequence_whatever_scn_and_time(left, right, at):
    keys = [
        key("oracle", at=time, rs_id=f"0x{a:06x}.{b:08x}.{c:04x}", ssn=ssn, scn=scn)
        for (a, b, c, ssn), time, scn in ((left, at, 9), (right, 0, 1))
    ]
    assert_same_order(left, right, keys)


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
    orders = [OrderKey(*side).encode() for side in (left, right)]
    assert_same_order(*orders, keys)
    assert [key_bytes[1:] for key_bytes in keys] == orders


@pytest.mark.rule("datastream-arrival")
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("seed", range(5))
def test_a_history_is_put_in_order_and_rows_of_a_backfill_before_it(source, seed):
    rng = random.Random(seed)
    changes, rows = history(source, rng, 60), backfill(source, rng, 8)
    shuffled = [*changes, *rows]
    rng.shuffle(shuffled)
    events = [parse_event(change, Position("f", n)) for n, change in enumerate(shuffled, 1)]
    keyed = sorted(events, key=lambda event: event.order_key)
    assert {event.order_key for event in keyed[: len(rows)]} == {BACKFILL_KEY}
    assert {event.uuid for event in keyed[: len(rows)]} == {row["uuid"] for row in rows}
    assert [event.uuid for event in keyed[len(rows) :]] == [change["uuid"] for change in changes]


@pytest.mark.rule("datastream-backfill-order")
@given(TIMES)
def test_rows_of_a_backfill_are_before_every_change_and_need_nothing(at):
    change = key("salesforce", at=-(2**63))
    for source in SourceKind:
        assert key(source.value, f"{source.value}-backfill", at=at) == BACKFILL_KEY < change


def test_a_supplementation_sorts_as_a_change_or_is_refused():
    place = {"rs_id": "0x1.2.3", "ssn": 4}
    assert key("oracle", SUPPLEMENTATION, **place) == key("oracle", **place)
    with pytest.raises(MissingSortKey):
        key("oracle", SUPPLEMENTATION)


def test_the_bytes_are_those_of_the_description():
    assert key("mysql", log_file="b.000014", log_position=3).hex() == (
        "01" + "000000000000000e" + "0000000000000003" + "01"
    )
    assert key("sqlserver", at=1, lsn="25:728:3").hex() == (
        "01" + "8000000000000001" + "00000025" + "00000728" + "0003"
    )


@pytest.mark.rule("datastream-postgresql-order")
@given(st.tuples(TIMES, UINT64), st.tuples(TIMES, UINT64))
def test_postgresql_by_time_and_lsn(left, right):
    keys = [key("postgresql", at=at, lsn=lsn_of(lsn)) for at, lsn in (left, right)]
    assert_same_order(left, right, keys)


THREE_PARTS = st.tuples(TIMES, UINT32, UINT32, st.integers(0, 2**16 - 1))


@pytest.mark.rule("datastream-sql-server-order", "datastream-salesforce-order")
@given(THREE_PARTS, THREE_PARTS)
def test_sql_server_by_time_and_lsn_and_salesforce_by_time(left, right):
    keys = [key("sqlserver", at=at, lsn=f"{a:x}:{b:x}:{c:x}") for at, a, b, c in (left, right)]
    assert_same_order(left, right, keys)
    keys = [key("salesforce", at=at) for at, *_ in (left, right)]
    assert_same_order(left[0], right[0], keys)


WITHOUT = "source_metadata.{}.*record=1"


@pytest.mark.rule("datastream-missing-position")
@pytest.mark.parametrize(
    ("source", "fields", "kind", "text"),
    [
        ("mysql", {"log_position": 1}, MissingSortKey, WITHOUT.format("log_file")),
        ("mysql", {"log_file": "", "log_position": 1}, MissingSortKey, WITHOUT.format("log_file")),
        ("mysql", {"log_file": "b.1"}, MissingSortKey, WITHOUT.format("log_position")),
        ("mysql", {"gtid": f"{SERVER}:1"}, MissingSortKey, "binlog_position"),
        ("oracle", {"ssn": 1}, MissingSortKey, WITHOUT.format("rs_id")),
        ("oracle", {"rs_id": "0x1.2.3"}, MissingSortKey, WITHOUT.format("ssn")),
        ("postgresql", {}, MissingSortKey, WITHOUT.format("lsn")),
        ("sqlserver", {}, MissingSortKey, WITHOUT.format("lsn")),
        *(
            ("spanner", {n: v for n, v in place(1, "a", (0, 1), 0).items() if n != name},
             MissingSortKey, WITHOUT.format(name))
            for name in place(1, "a", (0, 1), 0)
        ),
        *(
            ("mysql", {"gtid": gtid, "binlog_position": 4}, InvalidEvent, "gtid has an unknown not")
            for gtid in (f"{SERVER}:1-23", f"{SERVER}:", "17", f"{SERVER}:{10**18}")
        ),
        *(
            (source, fields, InvalidEvent, "notation|range")
            for source, fields in (
                ("mysql", {"log_file": "x", "log_position": 1}),
                ("mysql", {"log_file": "b.1", "log_position": -1}),
                ("mysql", {"log_file": "b.1", "log_position": 2**64}),
                ("oracle", {"rs_id": "1.2", "ssn": 1}), ("postgresql", {"lsn": "x"}),
                ("sqlserver", {"lsn": "16/CB002DB0"}), ("spanner", place(2**64, "a", (0, 1), 0)),
                ("spanner", place(1, "a", (0, 1), 0) | {"record_sequence": "x"}),
                ("spanner", place(1, "a", (0, 1), -1)),
            )
        ),
    ],
)  # fmt: skip
def test_a_change_without_its_place_is_refused(source, fields, kind, text):
    with pytest.raises(kind, match=text):
        key(source, **fields)


@pytest.mark.rule("datastream-positions")
@pytest.mark.parametrize(
    ("parse", "earlier", "later"),
    [
        (log_file_number, "mysql-bin.999999", "mysql-bin.1000000"),
        (postgresql_lsn, "9/0", "10/0"),
        (oracle_record_set, "0xffffff.0.0", "0x1000000.0.0"),
        (sql_server_lsn, "9000000:0:1", "10000000:0:1"),
    ],
)
def test_as_text_they_would_sort_wrongly(parse, earlier, later):
    assert earlier > later
    assert parse(earlier) < parse(later)


@pytest.mark.parametrize(
    ("parse", "text", "expected"),
    [
        (log_file_number, "a.b-bin.000014", ("a.b-bin", 14)),
        (postgresql_lsn, "16/CB002DB0", 0x16CB002DB0),
        (postgresql_lsn, "16/cb002db0", 0x16CB002DB0),
        (sql_server_lsn, "00000025:00000728:0003", (0x25, 0x728, 3)),
        (sql_server_lsn, "0x00000025000007280003", (0x25, 0x728, 3)),
        (oracle_record_set, " 0x0073c9.000a4e4c.01d0 ", (0x73C9, 0xA4E4C, 0x1D0)),
        (spanner_sequence, "00000007", (0, 7)), (spanner_sequence, "11-a", (17, 10)),
        (spanner_sequence, f"{17:016x}{10:016x}", (17, 10)),
        (spanner_sequence, "0" * 16 + "f" * 16, (0, 2**64 - 1)),
        *(
            (parse, text, None)
            for parse, texts in {
                log_file_number: ("mysql-bin", "mysql-bin.", ".000014", "mysql-bin.00001x",
                                  "mysql-bin." + "9" * 19, "mysql-bin.\u0661"),
                postgresql_lsn: ("16CB002DB0", "1/123456789", "/1", "g/1"),
                sql_server_lsn: ("1:2", "1:2:3:4", "1:2:00003", "0x25"),
                oracle_record_set: ("1.2.3", "0x1.2", "0x1.2." + "1" * 17, ""),
                spanner_sequence: ("seven", "", "1" * 30),
            }.items()
            for text in texts
        ),
    ],
)  # fmt: skip
def test_notations(parse, text, expected):
    assert parse(text) == expected


AT_MS = 1_714_996_408_000
KEYS = {
    "mysql": ([AT_MS, "mysql-bin.000014", 48351],
              {"log_file": "mysql-bin.000014", "log_position": 48351}),
    "oracle": ([AT_MS, 15869116216871, "0x0073c9.000a4e4c.01d0", 67],
               {"scn": 15869116216871, "rs_id": "0x0073c9.000a4e4c.01d0", "ssn": 67}),
    "postgresql": ([AT_MS, "16/CB002DB0"], {"lsn": "16/CB002DB0"}),
    "sqlserver": ([AT_MS, "00000025:00000728:0003"], {"lsn": "00000025:00000728:0003"}),
    "salesforce": ([AT_MS], {}),
    "spanner": ([AT_MS, AT_MS * 1_000 + 999, "MTIz", f"{0x11:016x}{0xA:016x}", 1],
                {"commit_timestamp": AT_MS * 1_000 + 999, "tx_id": "MTIz",
                 "record_sequence": f"{0x11:016x}{0xA:016x}", "mod_number": 1}),
}  # fmt: skip


def check(source, keys, fields, *, method="", at_us=AT_MS * 1_000 + 999):
    name = "object_name" if source == "salesforce" else "table"
    metadata = metadata_of(SourceKind(source), {name: "t", **fields}, HERE)
    completed_metadata = completed(
        None if keys is None else tuple(keys), read_method_of(method or METHODS[source]), metadata,
        source_timestamp_us=at_us, position=HERE,
    )  # fmt: skip
    return metadata, completed_metadata


@pytest.mark.rule("datastream-sort-keys")
@pytest.mark.parametrize("source", KEYS)
def test_what_only_they_have_is_taken_from_them(source):
    keys, fields = KEYS[source]
    _, whole = check(source, keys, {})
    assert {name: getattr(whole, name) for name in fields} == fields
    metadata, whole = check(source, keys, fields)
    assert whole is metadata  # keys that agree change nothing
    _, whole = check(source, keys, {n: "" for n, value in fields.items() if isinstance(value, str)})
    assert {name: getattr(whole, name) for name in fields} == fields


@pytest.mark.rule("datastream-sort-keys", "datastream-tidegate-sort-keys")
@pytest.mark.parametrize(
    ("source", "place", "other"),
    [
        ("mysql", 1, "mysql-bin.000015"), ("mysql", 1, "other-bin.000014"), ("mysql", 2, 48352),
        ("oracle", 1, 1), ("oracle", 2, "0x0073c9.000a4e4c.01d1"), ("oracle", 3, 68),
        ("spanner", 1, 1), ("spanner", 2, "MTI0"), ("spanner", 3, "0" * 32), ("spanner", 4, 0),
        ("postgresql", 1, "16/CB002DB1"), ("sqlserver", 1, "00000025:00000728:0004"),
    ],
)  # fmt: skip
def test_a_part_that_contradicts_the_metadata_is_refused(source, place, other):
    keys, fields = KEYS[source]
    wrong = [other if n == place else part for n, part in enumerate(keys)]
    with pytest.raises(SortKeyMismatch, match="different values"):
        check(source, wrong, fields)


@pytest.mark.parametrize(("place", "other"), [(1, 0), (2, "48351")])
def test_a_part_of_another_type_is_refused(place, other):
    keys, fields = KEYS["mysql"]
    wrong = [other if n == place else part for n, part in enumerate(keys)]
    with pytest.raises(SortKeyMismatch, match="another type"):
        check("mysql", wrong, fields)


@pytest.mark.rule("datastream-sort-keys")
@pytest.mark.parametrize("source", KEYS)
def test_they_begin_with_the_sources_time(source):
    keys, fields = KEYS[source]
    with pytest.raises(SortKeyMismatch, match="do not begin with source_timestamp"):
        check(source, [AT_MS + 1, *keys[1:]], fields)
    fewer = [] if source in ("sqlserver", "salesforce") else [keys[:-1]]
    if not fewer:
        check(source, keys[:1], fields)
    for parts in ([], [*keys, 1], *fewer):
        with pytest.raises(SortKeyMismatch, match="parts"):
            check(source, parts, fields)


@pytest.mark.rule("datastream-sort-keys")
def test_those_of_a_row_read_after_a_rollback_are_compared():
    keys, fields = KEYS["oracle"]
    metadata, whole = check("oracle", keys, fields, method=SUPPLEMENTATION)
    assert whole is metadata
    _, whole = check("oracle", keys, {}, method=SUPPLEMENTATION)
    assert (whole.rs_id, whole.ssn) == (fields["rs_id"], fields["ssn"])
    with pytest.raises(SortKeyMismatch, match="different values"):
        check("oracle", [*keys[:3], 68], fields, method=SUPPLEMENTATION)
    # The first statement of a record set is no placeholder.
    keys, given = [*keys[:3], 0], {"rs_id": fields["rs_id"]}
    assert check("oracle", keys, given, method=SUPPLEMENTATION)[1].ssn == 0
    with pytest.raises(SortKeyMismatch, match="different values of ssn"):
        check("oracle", keys, fields, method=SUPPLEMENTATION)


@pytest.mark.parametrize(
    "keys", [[AT_MS, 0, "", 0], [0, 0, "", 0], [AT_MS, 0, 0, 0], [AT_MS, 15869116216871, "", 0]]
)
def test_a_row_read_after_a_rollback_may_have_the_placeholders_of_a_backfill(keys):
    """They give no place: they neither contradict one that the metadata have, nor are one."""
    _, fields = KEYS["oracle"]
    for known in (fields, {**fields, "ssn": None}):
        metadata, whole = check("oracle", keys, known, method=SUPPLEMENTATION)
        assert whole is metadata
    with pytest.raises(SortKeyMismatch):
        check("oracle", keys, fields)


def test_a_row_read_after_a_rollback_has_the_parts_and_the_time_of_a_change():
    for keys, fields, text in (
        ([AT_MS, 0, ""], {}, "parts"),
        ([AT_MS + 1, 0, "", 0], {}, "do not begin with source_timestamp"),
        ([AT_MS, 1, "", 0], {"scn": 2}, "different values of scn"),
    ):
        with pytest.raises(SortKeyMismatch, match=text):
            check("oracle", keys, fields, method=SUPPLEMENTATION)


def test_one_place_may_be_written_in_two_ways():
    check("postgresql", [AT_MS, "16/cb002db0"], {"lsn": "16/CB002DB0"})
    place, fields = KEYS["spanner"]
    check("spanner", place, {**fields, "record_sequence": "11-a"})
    check("oracle", [AT_MS, 1, " 0x0073c9.000a4e4c.01d0 ", 2],
          {"scn": 1, "rs_id": "0x0073c9.000a4e4c.01d0", "ssn": 2})  # fmt: skip
