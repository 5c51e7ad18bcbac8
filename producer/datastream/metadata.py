"""What each kind of source adds to an event: `source_metadata`, one class per source.

Fields have the names of Datastream's page "Events and streams"; a field that a file does not have
is None or empty.  What a file has beyond that table is in `further`, unchanged.  The page has none
for Spanner: those are of `docs/protocol.md`, 3.10.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, TypeAlias

from tidegate.producer.datastream.position import Position
from tidegate.producer.datastream.read_methods import SourceKind
from tidegate.producer.datastream.record_fields import RecordFields


@dataclass(frozen=True, slots=True, kw_only=True)
class _Metadata:
    """What all sources have."""

    change_type: str | None
    """Absent in old files of rows that were found by a backfill."""
    is_deleted: bool | None
    primary_keys: tuple[str, ...]
    """Names of columns, in no documented order; empty for a table without a primary key."""
    further: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns that identify a row; empty if the table has neither key nor index."""
        return self.primary_keys


@dataclass(frozen=True, slots=True, kw_only=True)
class MySqlMetadata(_Metadata):
    """What events of MySQL say of their source.

    Streams that follow global transaction identifiers have `binlog_file` and `binlog_position` in
    place of the first two.
    """

    log_file: str | None
    log_position: int | None
    gtid: str | None
    """The global identifier of the transaction; None where the stream follows the binary log."""
    database: str | None
    table: str

    @property
    def path(self) -> tuple[str, ...]:
        """The names that identify the object, the outermost first."""
        return tuple(filter(None, (self.database, self.table)))


@dataclass(frozen=True, slots=True, kw_only=True)
class OracleMetadata(_Metadata):
    """What events of Oracle say of their source."""

    log_file: str | None
    scn: int | None
    row_id: str | None
    database: str | None
    schema: str | None
    table: str
    tx_id: str | None
    rs_id: str | None
    ssn: int | None

    @property
    def path(self) -> tuple[str, ...]:
        """The names that identify the object, the outermost first."""
        return tuple(filter(None, (self.database, self.schema, self.table)))


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgreSqlMetadata(_Metadata):
    """What events of PostgreSQL say of their source."""

    schema: str | None
    table: str
    tx_id: str | None
    lsn: str | None

    @property
    def path(self) -> tuple[str, ...]:
        """The names that identify the object, the outermost first."""
        return tuple(filter(None, (self.schema, self.table)))


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlServerMetadata(_Metadata):
    """What events of SQL Server say of their source.

    The documentation gives `database` the type long and `schema` an array of strings; files have
    strings.  Both are read, an array with dots between its parts.
    """

    table: str
    database: str | None
    schema: str | None
    lsn: str | None
    tx_id: str | None
    physical_location: tuple[int, ...]
    """File, page and slot of the log record; empty if it is absent."""
    replication_index: tuple[str, ...]
    """Columns of an index that identifies a row, where there is no primary key."""

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns that identify a row; empty if the table has neither key nor index."""
        return self.primary_keys or self.replication_index

    @property
    def path(self) -> tuple[str, ...]:
        """The names that identify the object, the outermost first."""
        return tuple(filter(None, (self.database, self.schema, self.table)))


@dataclass(frozen=True, slots=True, kw_only=True)
class SalesforceMetadata(_Metadata):
    """What events of Salesforce say of their source."""

    object_name: str
    domain: str | None

    @property
    def path(self) -> tuple[str, ...]:
        """The names that identify the object, the outermost first."""
        return tuple(filter(None, (self.domain, self.object_name)))


@dataclass(frozen=True, slots=True, kw_only=True)
class SpannerMetadata(_Metadata):
    """What files that Tidegate writes say of Spanner."""

    database: str | None
    schema: str | None
    """Empty for a table without one."""
    table: str
    tx_id: str | None
    record_sequence: str | None
    mod_number: int | None
    commit_timestamp: int | None
    """In microseconds since 1970, whatever the file's format."""
    is_last_record_in_transaction_in_partition: bool | None
    number_of_records_in_transaction: int | None
    number_of_partitions_in_transaction: int | None
    transaction_tag: str | None
    is_system_transaction: bool | None
    value_capture_type: str | None
    captured_columns: tuple[str, ...]
    """The columns that the payload holds; the others are not NULL, but unknown."""

    @property
    def path(self) -> tuple[str, ...]:
        """The names that identify the object, the outermost first."""
        return tuple(filter(None, (self.schema, self.table)))

    @property
    def is_whole_row(self) -> bool:
        """Whether an event that is no deletion has the whole row."""
        return self.change_type == "INSERT" or self.value_capture_type in _WHOLE_ROWS


_WHOLE_ROWS = ("NEW_ROW", "NEW_ROW_AND_OLD_VALUES")

SourceMetadata: TypeAlias = (
    MySqlMetadata
    | OracleMetadata
    | PostgreSqlMetadata
    | SqlServerMetadata
    | SalesforceMetadata
    | SpannerMetadata
)


def metadata_of(
    source: SourceKind, values: Mapping[str, Any], position: Position
) -> SourceMetadata:
    """Return an event's `source_metadata`; raises WrongSchema for a field of another type."""
    of = RecordFields(values, position, within="source_metadata")
    shared: dict[str, Any] = {
        "change_type": of.text("change_type"),
        "is_deleted": of.flag("is_deleted"),
        "primary_keys": of.texts("primary_keys"),
    }
    match source:
        case SourceKind.MYSQL:
            log_file = of.text("log_file")
            return MySqlMetadata(
                log_file=log_file or of.text("binlog_file"),
                log_position=_first(of.number("log_position"), of.number("binlog_position")),
                # Beside a log it says nothing of the order, which may not change in a stream.
                gtid=None if log_file else (of.text("gtid") or None),
                database=of.text("database"),
                table=of.needed_text("table"),
                further=of.rest(_known(MySqlMetadata) | _GTID_MODE),
                **shared,
            )
        case SourceKind.ORACLE:
            return OracleMetadata(
                log_file=of.text("log_file"),
                scn=of.number("scn"),
                row_id=of.text("row_id"),
                database=of.text("database"),
                schema=of.text("schema"),
                table=of.needed_text("table"),
                tx_id=of.text("tx_id"),
                rs_id=of.text("rs_id"),
                ssn=of.number("ssn"),
                further=of.rest(_known(OracleMetadata)),
                **shared,
            )
        case SourceKind.POSTGRESQL:
            return PostgreSqlMetadata(
                schema=of.text("schema"),
                table=of.needed_text("table"),
                tx_id=of.text("tx_id"),
                lsn=of.text("lsn"),
                further=of.rest(_known(PostgreSqlMetadata)),
                **shared,
            )
        case SourceKind.SQL_SERVER:
            return SqlServerMetadata(
                table=of.needed_text("table"),
                database=of.text("database"),
                schema=of.joined("schema"),
                lsn=of.text("lsn"),
                tx_id=of.text("tx_id"),
                physical_location=of.numbers("physical_location"),
                replication_index=of.texts("replication_index"),
                further=of.rest(_known(SqlServerMetadata)),
                **shared,
            )
        case SourceKind.SALESFORCE:
            return SalesforceMetadata(
                object_name=of.needed_text("object_name"),
                domain=of.text("domain"),
                further=of.rest(_known(SalesforceMetadata)),
                **shared,
            )
        case SourceKind.SPANNER:
            return SpannerMetadata(
                database=of.text("database"),
                schema=of.text("schema"),
                table=of.needed_text("table"),
                tx_id=of.text("tx_id"),
                record_sequence=of.text("record_sequence"),
                mod_number=of.number("mod_number"),
                commit_timestamp=of.instant_us("commit_timestamp"),
                is_last_record_in_transaction_in_partition=of.flag(
                    "is_last_record_in_transaction_in_partition"
                ),
                number_of_records_in_transaction=of.number("number_of_records_in_transaction"),
                number_of_partitions_in_transaction=of.number(
                    "number_of_partitions_in_transaction"
                ),
                transaction_tag=of.text("transaction_tag"),
                is_system_transaction=of.flag("is_system_transaction"),
                value_capture_type=of.text("value_capture_type"),
                captured_columns=of.texts("captured_columns"),
                further=of.rest(_known(SpannerMetadata)),
                **shared,
            )


_GTID_MODE = frozenset(("binlog_file", "binlog_position"))


def _first(one: int | None, other: int | None) -> int | None:
    return other if one is None else one


@cache
def _known(kind: type[SourceMetadata]) -> frozenset[str]:
    return frozenset(one.name for one in fields(kind)) - {"further"}
