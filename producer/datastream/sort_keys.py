"""Datastream's own `sort_keys`: compared with the fields that order a source's changes.

They do not determine the order.  Their order begins with the source's timestamp, also for MySQL and
Oracle, whose documented order is only the log's; a statement's time may be later than that of one
that was committed after it.  They have the same fields a second time: a field that the metadata
lacks is taken from them, and one that differs is an error.

    MySQL        [ms, log_file, log_position]
    Oracle       [ms, scn, rs_id, ssn]
    PostgreSQL   [ms, lsn]
    SQL Server   [ms, lsn], or [ms] alone
    Salesforce   [ms]
    Spanner      [ms, commit timestamp in microseconds, tx_id, record_sequence, mod_number]

Streams of MySQL that follow global identifiers have keys of a form that is not documented; they are
not compared.  Files of before 2021 have none.  Those of a backfill hold zeros and empty texts, and
are not compared; those of a row that was read after a rollback are, since it sorts as a change.  If
they name no record set, their zeros and empty texts say nothing: zero may be the number of a
statement in a record set, and means one only next to a record set.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from tidegate.producer.datastream.errors import Position, SortKeyMismatch
from tidegate.producer.datastream.event_order import (
    log_file_number,
    oracle_record_set,
    postgresql_lsn,
    spanner_sequence,
    sql_server_lsn,
)
from tidegate.producer.datastream.metadata import (
    MySqlMetadata,
    OracleMetadata,
    PostgreSqlMetadata,
    SalesforceMetadata,
    SourceMetadata,
    SpannerMetadata,
    SqlServerMetadata,
)
from tidegate.producer.datastream.read_methods import ReadKind, ReadMethod
from tidegate.schemas.instants import US_PER_MS

SortKeys: TypeAlias = tuple[str | int, ...]
_Parse: TypeAlias = Callable[[str], object]

_FORMS: dict[type, tuple[tuple[str, _Parse | None], ...]] = {
    MySqlMetadata: (("log_file", log_file_number), ("log_position", None)),
    OracleMetadata: (("scn", None), ("rs_id", oracle_record_set), ("ssn", None)),
    PostgreSqlMetadata: (("lsn", postgresql_lsn),),
    SqlServerMetadata: (("lsn", sql_server_lsn),),
    SalesforceMetadata: (),
    SpannerMetadata: (
        ("commit_timestamp", None),
        ("tx_id", str),
        ("record_sequence", spanner_sequence),
        ("mod_number", None),
    ),
}
"""The fields that follow the timestamp, each with the parser of a text; None for a number."""


def completed(
    sort_keys: SortKeys | None,
    method: ReadMethod,
    metadata: SourceMetadata,
    *,
    source_timestamp_us: int,
    position: Position,
) -> SourceMetadata:
    """Return the metadata, with the fields that only `sort_keys` have.

    Raises SortKeyMismatch if the keys have another form than the source's, or contradict the
    timestamp or the metadata.
    """
    if sort_keys is None or method.kind is ReadKind.BACKFILL:
        return metadata
    if isinstance(metadata, MySqlMetadata) and metadata.gtid is not None:
        return metadata
    form = _FORMS[type(metadata)]
    first, rest = sort_keys[:1], sort_keys[1:]
    may_end = isinstance(metadata, SqlServerMetadata)
    if not first or len(rest) > len(form) or (len(rest) < len(form) and not may_end):
        raise SortKeyMismatch.at(
            position,
            f"sort_keys have {len(sort_keys)} parts and not {len(form) + 1}",
            sort_keys=list(sort_keys),
        )
    is_without_place = method.kind is ReadKind.SUPPLEMENTATION and not _has_text(rest)
    if first[0] != source_timestamp_us // US_PER_MS and not (is_without_place and first[0] == 0):
        message = "sort_keys do not begin with source_timestamp in milliseconds"
        expected = source_timestamp_us // US_PER_MS
        raise SortKeyMismatch.at(position, message, sort_keys=list(sort_keys), expected=expected)
    keys = [key or None for key in rest] if is_without_place else rest
    missing = _missing(form, keys, metadata, position)
    return replace(metadata, **missing) if missing else metadata


def _missing(
    form: Sequence[tuple[str, _Parse | None]],
    keys: Sequence[str | int | None],
    metadata: SourceMetadata,
    position: Position,
) -> dict[str, Any]:
    """Return the fields that the metadata lacks; raises SortKeyMismatch if a field differs.

    A null key is ignored.
    """
    missing: dict[str, Any] = {}
    for (name, parse), key in zip(form, keys, strict=False):
        if key is None:
            continue
        value = getattr(metadata, name)
        if not isinstance(key, int if parse is None else str):
            raise SortKeyMismatch.at(
                position, f"the part of sort_keys for {name} has another type", found=key
            )
        if value is None or value == "":
            missing[name] = key
        elif not _is_same(value, key, parse):
            raise SortKeyMismatch.at(
                position,
                f"sort_keys and source_metadata have different values of {name}",
                sort_key=key,
                metadata=value,
            )
    return missing


def _is_same(value: object, key: object, parse: _Parse | None) -> bool:
    """Whether two values are the same place, in any notation."""
    if parse is None or not (isinstance(value, str) and isinstance(key, str)):
        return value == key
    return value == key or (parse(value) is not None and parse(value) == parse(key))


def _has_text(keys: Sequence[str | int]) -> bool:
    """Whether a place in the source's log is named; each place contains numbers, possibly zero."""
    return any(isinstance(key, str) and key for key in keys)
