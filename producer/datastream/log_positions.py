"""Positions in the logs of sources, from their notations to integers that sort as the source does.

As text they sort wrongly: `mysql-bin.1000000` stands before `mysql-bin.999999`, the LSN `9/0` after
`10/0`.  Each function returns None for a text in another notation.
"""

from __future__ import annotations

import re
from functools import lru_cache

from tidegate.schemas.errors import SchemaError
from tidegate.schemas.order_key import sequence_pair

# Bounded digits, so that every part fits 64 bits.
_LOG_FILE = re.compile(r"(.+)\.([0-9]{1,18})", re.ASCII | re.DOTALL)
_GTID = re.compile(
    r"([0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}(?::[A-Za-z_][A-Za-z0-9_]{0,31})?)"
    r":([0-9]{1,18})",
    re.ASCII,
)
_MARIADB_GTID = re.compile(r"([0-9]{1,10})-[0-9]{1,10}-([0-9]{1,18})", re.ASCII)
_POSTGRESQL_LSN = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})", re.ASCII)
_SQL_SERVER_LSN = re.compile(r"([0-9A-Fa-f]{1,8}):([0-9A-Fa-f]{1,8}):([0-9A-Fa-f]{1,4})", re.ASCII)
_SQL_SERVER_BINARY = re.compile(r"0x([0-9A-Fa-f]{8})([0-9A-Fa-f]{8})([0-9A-Fa-f]{4})", re.ASCII)
_SPANNER_SEQUENCE = re.compile(r"([0-9a-f]{16})([0-9a-f]{16})", re.ASCII)
_RECORD_SET = re.compile(
    r"0x([0-9A-Fa-f]{1,16})\.([0-9A-Fa-f]{1,16})\.([0-9A-Fa-f]{1,16})", re.ASCII
)


@lru_cache(64)
def log_file_number(log_file: str) -> tuple[str, int] | None:
    """Return base name and number of a MySQL binary log such as `mysql-bin.000014`.

    Numbers of two base names have no common order.
    """
    match = _LOG_FILE.fullmatch(log_file)
    return None if match is None else (match[1], int(match[2]))


@lru_cache(64)
def gtid_of_log(gtid: str) -> tuple[str, int] | None:
    """Return whose transactions a global identifier counts, and its number among them.

    MySQL counts those of a server (`3e11fa47-71ca-11e1-9e33-c80aa9429562:23`) and of a tag on it,
    MariaDB those of a domain (`0-1-270`).  Numbers of two of them have no common order.
    """
    match = _GTID.fullmatch(gtid)
    if match is not None:
        return match[1].lower(), int(match[2])
    match = _MARIADB_GTID.fullmatch(gtid)
    return None if match is None else (f"domain {match[1]}", int(match[2]))


def log_of_mysql(log_file: str | None, gtid: str | None) -> str:
    """Return what numbers a change of MySQL has its place in, or an empty text.

    That is `gtid` and a server for changes that are ordered by global identifiers, else the base
    name of the binary log.
    """
    if gtid is not None:
        found = gtid_of_log(gtid)
        return "" if found is None else f"gtid {found[0]}"
    found = log_file_number(log_file or "")
    return "" if found is None else found[0]


def postgresql_lsn(lsn: str) -> int | None:
    """Return a PostgreSQL LSN such as `16/CB002DB0` as the byte position that it is."""
    match = _POSTGRESQL_LSN.fullmatch(lsn)
    return None if match is None else (int(match[1], 16) << 32) | int(match[2], 16)


def sql_server_lsn(lsn: str) -> tuple[int, int, int] | None:
    """Return the parts of a SQL Server LSN: log file, block and slot.

    Written as `00000025:00000728:0003`, or as the 10 bytes of the type `binary(10)`.
    """
    match = _SQL_SERVER_LSN.fullmatch(lsn) or _SQL_SERVER_BINARY.fullmatch(lsn)
    return None if match is None else (int(match[1], 16), int(match[2], 16), int(match[3], 16))


def oracle_record_set(rs_id: str) -> tuple[int, int, int] | None:
    """Return the parts of an Oracle `rs_id` such as `0x0073c9.000a4e4c.01d0`.

    They are the log's sequence number, block and offset; LogMiner puts spaces around the text.
    """
    match = _RECORD_SET.fullmatch(rs_id.strip(" "))
    return None if match is None else (int(match[1], 16), int(match[2], 16), int(match[3], 16))


def spanner_sequence(sequence: str) -> tuple[int, int] | None:
    """Return the parts of a record sequence of Spanner.

    Written as Spanner has it, or as the 32 hexadecimal digits of a sort key.
    """
    match = _SPANNER_SEQUENCE.fullmatch(sequence)
    if match is not None:
        return int(match[1], 16), int(match[2], 16)
    try:
        return sequence_pair(sequence)
    except SchemaError:
        return None
