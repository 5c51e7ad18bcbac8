"""The order key of Datastream's events: bytes that sort, bytewise, as the source made the changes.

    kind of read       1 byte    0: row of a backfill, nothing follows; 1: change
    MySQL              8 + 8 + 1 number of the binary log, position in it; 0: UPDATE-DELETE, 1: any
    MySQL with GTIDs   8 + 8 + 1 number of the transaction, position in its log; as above
    Oracle             3 x 8 + 8 parts of `rs_id`, `ssn`
    PostgreSQL         8 + 8     `source_timestamp` in microseconds, LSN
    SQL Server         8 + 10    `source_timestamp` in microseconds, LSN (4, 4 and 2 bytes)
    Salesforce         8         `source_timestamp` in microseconds
    Spanner            any       the order key of the protocol (`schemas.order_key`)

All integers are big endian; timestamps have 2^63 added, so that those before 1970 sort first.
Keys of one source are compared with each other only.  The order follows Datastream's page "Events
and streams" ("Ordering and consistency").  Rows of a backfill come in any order, so they
have one key.  Several changes may have one key, such as those of one binary log event.  They are in
the order of their file.

One UPDATE of MySQL may move rows to keys that others of them leave, all at one position, and its
events may be in several files.  So the half that removes a row of the old key is before every other
change at its position: a row that came to a key by an UPDATE does not leave it by the same one.

Streams of MySQL that follow global identifiers may go on with another server, whose logs have other
names and positions.  A transaction keeps its number, and is in one log of each server.

Oracle's rows that are read after a rollback (`oracle-supplementation`) sort as changes, by the same
two fields.  A row of a backfill of Spanner has a place among the changes.  A row of a backfill that
repairs a table has one too, if the settings say after which changes it was read: it is before the
first change of a log, or of a time.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

from tidegate.producer.datastream.errors import InvalidEvent, MissingSortKey, Position
from tidegate.producer.datastream.metadata import (
    MySqlMetadata,
    OracleMetadata,
    PostgreSqlMetadata,
    SalesforceMetadata,
    SourceMetadata,
    SpannerMetadata,
    SqlServerMetadata,
)
from tidegate.producer.datastream.read_methods import ReadKind, ReadMethod, SourceKind
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.order_key import OrderKey, sequence_pair

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
    """Return the source of a global identifier's transactions, and its number among them.

    MySQL counts the transactions of a server (`3e11fa47-71ca-11e1-9e33-c80aa9429562:23`) and of a
    tag on it, MariaDB those of a domain (`0-1-270`).  Numbers of two sources have no common order.
    """
    match = _GTID.fullmatch(gtid)
    if match is not None:
        return match[1].lower(), int(match[2])
    match = _MARIADB_GTID.fullmatch(gtid)
    return None if match is None else (f"domain {match[1]}", int(match[2]))


def log_of_mysql(log_file: str | None, gtid: str | None) -> str:
    """Return the sequence in which a change of MySQL has its place; an empty text if none.

    That is `gtid` and a server for changes that are ordered by global identifiers, otherwise the
    base name of the binary log.
    """
    if gtid is not None:
        place = gtid_of_log(gtid)
        return "" if place is None else f"gtid {place[0]}"
    place = log_file_number(log_file or "")
    return "" if place is None else place[0]


def postgresql_lsn(lsn: str) -> int | None:
    """Parse a PostgreSQL LSN such as `16/CB002DB0` into a byte position."""
    match = _POSTGRESQL_LSN.fullmatch(lsn)
    return None if match is None else (int(match[1], 16) << 32) | int(match[2], 16)


def sql_server_lsn(lsn: str) -> tuple[int, int, int] | None:
    """Parse a SQL Server LSN into its parts: log file, block and slot.

    Written as `00000025:00000728:0003`, or as the 10 bytes of the type `binary(10)`.
    """
    match = _SQL_SERVER_LSN.fullmatch(lsn) or _SQL_SERVER_BINARY.fullmatch(lsn)
    return None if match is None else (int(match[1], 16), int(match[2], 16), int(match[3], 16))


def oracle_record_set(rs_id: str) -> tuple[int, int, int] | None:
    """Parse an Oracle `rs_id` such as `0x0073c9.000a4e4c.01d0` into its parts.

    They are the log's sequence number, block and offset; LogMiner puts spaces around the text.
    """
    match = _RECORD_SET.fullmatch(rs_id.strip(" "))
    return None if match is None else (int(match[1], 16), int(match[2], 16), int(match[3], 16))


def spanner_sequence(sequence: str) -> tuple[int, int] | None:
    """Parse a record sequence of Spanner.

    Written in Spanner's form, or as the 32 hexadecimal digits of a sort key.
    """
    match = _SPANNER_SEQUENCE.fullmatch(sequence)
    if match is not None:
        return int(match[1], 16), int(match[2], 16)
    try:
        return sequence_pair(sequence)
    except SchemaError:
        return None


BACKFILL_KEY = b"\0"
"""The key of every row of a backfill: before all changes."""
_CHANGE = b"\1"
_EPOCH_OFFSET = 1 << 63
_MYSQL = struct.Struct(">QQB")
_REMOVES_OLD_KEY = "UPDATE-DELETE"
_ORACLE = struct.Struct(">QQQQ")
_POSTGRESQL = struct.Struct(">QQ")
_SQL_SERVER = struct.Struct(">QIIH")
_SALESFORCE = struct.Struct(">Q")
_SEQUENCE = re.compile(r"[0-9]{1,18}", re.ASCII)

_Parsed = TypeVar("_Parsed")


def order_key(
    method: ReadMethod, metadata: SourceMetadata, *, source_timestamp_us: int, position: Position
) -> bytes:
    """Return the order key of an event.

    Raises MissingSortKey if the fields that order the source's changes are absent or empty, and
    InvalidEvent if one has another notation or is out of range.
    """
    if method.kind is ReadKind.BACKFILL and not _has_place(metadata):
        return BACKFILL_KEY
    shifted_us = source_timestamp_us + _EPOCH_OFFSET
    try:
        return _CHANGE + _encoded(metadata, shifted_us, position)
    except (struct.error, SchemaError) as error:
        raise InvalidEvent.at(
            position, "a field that orders changes is out of range", cause=str(error)[:200]
        ) from error


def order_after_log(source: SourceKind, log: str) -> bytes | None:
    """Return the order key before every change of a log of MySQL or Oracle.

    `log` is the name of a binary log, or the sequence number of a redo log.  It may be the global
    identifier of MySQL's last transaction before: then the key is after it.  None for another text,
    and for another source.
    """
    if source is SourceKind.MYSQL and (last := gtid_of_log(log)) is not None:
        return _CHANGE + _MYSQL.pack(last[1] + 1, 0, 0)
    if source is SourceKind.MYSQL:
        place = log_file_number(log)
        return None if place is None else _CHANGE + _MYSQL.pack(place[1], 0, 0)
    if source is SourceKind.ORACLE and _SEQUENCE.fullmatch(log):
        return _CHANGE + _ORACLE.pack(int(log), 0, 0, 0)
    return None


def order_after_time(source: SourceKind, time_us: int) -> bytes:
    """Return the order key before every change from a time on, for a source ordered by time."""
    shifted_us = time_us - 1 + _EPOCH_OFFSET
    match source:
        case SourceKind.POSTGRESQL:
            return _CHANGE + _POSTGRESQL.pack(shifted_us, 0)
        case SourceKind.SQL_SERVER:
            return _CHANGE + _SQL_SERVER.pack(shifted_us, 0, 0, 0)
        case _:
            return _CHANGE + _SALESFORCE.pack(shifted_us)


def _encoded(metadata: SourceMetadata, shifted_us: int, position: Position) -> bytes:
    match metadata:
        case MySqlMetadata(gtid=str() as gtid, log_position=log_position):
            _, number = _parsed("gtid", gtid, gtid_of_log, position)
            at_place = _present("binlog_position", log_position, position)
            return _MYSQL.pack(number, at_place, metadata.change_type != _REMOVES_OLD_KEY)
        case MySqlMetadata(log_file=log_file, log_position=log_position):
            _, number = _parsed("log_file", log_file, log_file_number, position)
            at_place = _present("log_position", log_position, position)
            return _MYSQL.pack(number, at_place, metadata.change_type != _REMOVES_OLD_KEY)
        case OracleMetadata(rs_id=rs_id, ssn=ssn):
            parts = _parsed("rs_id", rs_id, oracle_record_set, position)
            return _ORACLE.pack(*parts, _present("ssn", ssn, position))
        case PostgreSqlMetadata(lsn=lsn):
            return _POSTGRESQL.pack(shifted_us, _parsed("lsn", lsn, postgresql_lsn, position))
        case SqlServerMetadata(lsn=lsn):
            return _SQL_SERVER.pack(shifted_us, *_parsed("lsn", lsn, sql_server_lsn, position))
        case SalesforceMetadata():
            return _SALESFORCE.pack(shifted_us)
        case SpannerMetadata(record_sequence=sequence, tx_id=transaction):
            return OrderKey(
                _present("commit_timestamp", metadata.commit_timestamp, position),
                _present("tx_id", transaction, position),
                _parsed("record_sequence", sequence, spanner_sequence, position),
                _present("mod_number", metadata.mod_number, position),
            ).encode()


def _has_place(metadata: SourceMetadata) -> bool:
    """Whether a row of a backfill was read at a known time."""
    return isinstance(metadata, SpannerMetadata) and metadata.commit_timestamp is not None


def _present(name: str, value: _Parsed | None, position: Position) -> _Parsed:
    if value is None or value == "":
        raise MissingSortKey.at(
            position, f"a change has no source_metadata.{name}, which orders its source's changes"
        )
    return value


def _parsed(
    name: str, text: str | None, parse: Callable[[str], _Parsed | None], position: Position
) -> _Parsed:
    text_present = _present(name, text, position)
    parsed = parse(text_present)
    if parsed is None:
        raise InvalidEvent.at(
            position, f"source_metadata.{name} has an unknown notation", **{name: text_present[:80]}
        )
    return parsed
