"""Positions are numbers, part by part, and never text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.producer.datastream.log_positions import (
    log_file_number,
    oracle_record_set,
    postgresql_lsn,
    spanner_sequence,
    sql_server_lsn,
)

NUMBERS = st.integers(0, 10**7)


@given(NUMBERS, NUMBERS)
def test_log_files_are_compared_by_number(left, right):
    one, other = (log_file_number(f"mysql-bin.{number:06d}") for number in (left, right))
    assert (one < other) == (left < right)


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_lsns_of_postgresql_are_one_number(left, right):
    one, other = (postgresql_lsn(f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}") for lsn in (left, right))
    assert (one < other) == (left < right)
    assert one == left


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


def test_notations():
    assert log_file_number("a.b-bin.000014") == ("a.b-bin", 14)
    assert postgresql_lsn("16/CB002DB0") == postgresql_lsn("16/cb002db0") == 0x16CB002DB0
    assert sql_server_lsn("00000025:00000728:0003") == (0x25, 0x728, 3)
    assert sql_server_lsn("0x00000025000007280003") == (0x25, 0x728, 3)
    assert oracle_record_set(" 0x0073c9.000a4e4c.01d0 ") == (0x73C9, 0xA4E4C, 0x1D0)


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (log_file_number, "mysql-bin"), (log_file_number, "mysql-bin."),
        (log_file_number, ".000014"), (log_file_number, "mysql-bin.00001x"),
        (log_file_number, "mysql-bin." + "9" * 19), (log_file_number, "mysql-bin.\u0661"),
        (postgresql_lsn, "16CB002DB0"), (postgresql_lsn, "1/123456789"), (postgresql_lsn, "/1"),
        (postgresql_lsn, "g/1"), (sql_server_lsn, "1:2"), (sql_server_lsn, "1:2:3:4"),
        (sql_server_lsn, "1:2:00003"), (sql_server_lsn, "0x25"), (oracle_record_set, "1.2.3"),
        (oracle_record_set, "0x1.2"), (oracle_record_set, "0x1.2." + "1" * 17),
        (oracle_record_set, ""),
    ],
)  # fmt: skip
def test_another_notation_is_refused(parse, text):
    assert parse(text) is None


@pytest.mark.parametrize(
    ("sequence", "parts"),
    [("00000007", (0, 7)), ("11-a", (17, 10)), (f"{17:016x}{10:016x}", (17, 10)),
     ("0" * 16 + "f" * 16, (0, 2**64 - 1)), ("seven", None), ("", None), ("1" * 30, None)],
)  # fmt: skip
def test_sequences_of_spanner_in_both_notations(sequence, parts):
    assert spanner_sequence(sequence) == parts
