"""Positions in the logs of sources, from their notations to integers that sort as the source does.

As text they sort wrongly: `mysql-bin.1000000` stands before `mysql-bin.999999`, the LSN `9/0` after
`10/0`.  Each function returns None for a text in another notation.
"""

from __future__ import annotations

import re
from functools import lru_cache

from tidegate.schemas.errors import SchemaError
from tidegate.schemas.order_key import sequence_pair

__all__ = [
    "log_file_number",
    "oracle_record_set",
    "postgresql_lsn",
    "spanner_sequence",
    "sql_server_lsn",
]

# Bounded digits, so that every part fits 64 bits.
_LOG_FILE = re.compile(r"(.+)\.([0-9]{1,18})", re.ASCII | re.DOTALL)
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
