"""How a change stream is queried and its responses decoded, by dialect and partition mode.

Everything else of a query is the same in each form (seed: "Change stream read functions and query
syntax"): its four arguments, its errors, the `records` that come of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from google.cloud.spanner_v1.types import TypeCode

from tidegate.producer.description import (
    GOOGLE_SQL,
    IMMUTABLE_KEY_RANGE,
    MUTABLE_KEY_RANGE,
    POSTGRESQL,
)
from tidegate.producer.records import StreamRecord
from tidegate.producer.spanner.decoding.json_rows import JsonResponseDecoder
from tidegate.producer.spanner.decoding.proto_rows import ProtoResponseDecoder
from tidegate.producer.spanner.decoding.struct_rows import ColumnTypesCache, ResponseDecoder
from tidegate.schemas.errors import ConfigError

_STREAM_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,117}")

WINDOW_US = 20 * 60 * 1_000_000
"""The interval of one query of mutable key ranges: the service takes at most 30 minutes."""


class Decoder(Protocol):
    """Decodes the response messages of one query, in their order."""

    def decode(self, message: bytes) -> list[StreamRecord]:
        """Return the records that a serialised `PartialResultSet` completes.

        Raises SchemaError if the message or a record in it is not of the form.
        """
        ...

    @property
    def unfinished_bytes(self) -> int:
        """The size of the value that is kept until its rest arrives; 0 without one."""
        ...

    def end(self) -> None:
        """Check that the response did not stop in the middle of a value; raises SchemaError."""
        ...


@dataclass(frozen=True, slots=True)
class StreamForm:
    """The queries of one change stream; what its decoders keep of column lists is shared."""

    sql: str
    start: str
    """Name of the parameter with the start; a TIMESTAMP as RFC 3339 text."""
    end: str
    """The end's form: as the start, or NULL."""
    token: str
    """The stream partition token's form: a STRING, or NULL for the initial query."""
    heartbeat: str
    """The heartbeat interval's form: an INT64, in milliseconds."""
    decoding_factor: int
    """What a message takes until it is decoded and translated, itself included, by its size."""
    decoder: Callable[[], Decoder]
    """Makes the decoder of one query's response."""


def form_of(dialect: str, partition_mode: str, name: str) -> StreamForm:
    """Return the form of a change stream of this mode in a database of this dialect.

    Raises ConfigError for a name that no change stream can have, or an unknown dialect or mode.
    """
    if not _STREAM_NAME.fullmatch(name):
        raise ConfigError(
            f"change_stream: {name!r} is not a valid name of a change stream",
            hint="Use the name as in CREATE CHANGE STREAM",
        )
    make = _FORMS.get((dialect, partition_mode))
    if make is None:
        raise ConfigError(
            f"database: its dialect {dialect} is not supported with {partition_mode}",
            hint=f"Use one of {'; '.join(' with '.join(one) for one in _FORMS)}",
        )
    return make(name)


def _google_sql(name: str) -> StreamForm:
    columns = ColumnTypesCache()
    return StreamForm(
        sql=_google_sql_text(name),
        **_GOOGLE_SQL_PARAMETERS,
        # 2 to 4 for one large value, which is not copied at each level of its lists; 5.6 to 7.9 for
        # many rows (`benchmarks/results/producer.md`).
        decoding_factor=8,
        decoder=lambda: ResponseDecoder(columns),
    )


def _google_sql_proto(name: str) -> StreamForm:
    columns = ColumnTypesCache()
    return StreamForm(
        sql=_google_sql_text(name),
        **_GOOGLE_SQL_PARAMETERS,
        decoding_factor=_PROTO_FACTOR,
        decoder=lambda: ProtoResponseDecoder(columns, column_type=TypeCode.PROTO),
    )


def _google_sql_text(name: str) -> str:
    return (
        f"SELECT ChangeRecord FROM `READ_{name}`("  # noqa: S608 - the name is checked
        "start_timestamp => @start_timestamp, end_timestamp => @end_timestamp, partition_token => "
        "@partition_token, heartbeat_milliseconds => @heartbeat_milliseconds)"
    )


_GOOGLE_SQL_PARAMETERS = {
    "start": "start_timestamp",
    "end": "end_timestamp",
    "token": "partition_token",
    "heartbeat": "heartbeat_milliseconds",
}


def _postgresql(name: str) -> StreamForm:
    columns = ColumnTypesCache()
    return StreamForm(
        sql=_postgresql_text("read_json", name),
        **_POSTGRESQL_PARAMETERS,
        # 3 to 6 for large values and many rows, 11 for an array of short texts, and 16 for one
        # record with many small changes, whose JSON is parsed as a whole.
        decoding_factor=16,
        decoder=lambda: JsonResponseDecoder(columns),
    )


def _postgresql_proto(name: str) -> StreamForm:
    columns = ColumnTypesCache()
    return StreamForm(
        sql=_postgresql_text("read_proto_bytes", name),
        **_POSTGRESQL_PARAMETERS,
        decoding_factor=_PROTO_FACTOR,
        decoder=lambda: ProtoResponseDecoder(columns, column_type=TypeCode.BYTES),
    )


def _postgresql_text(function: str, name: str) -> str:
    # Quoted: PostgreSQL folds other names to lower case.
    return f'SELECT * FROM "spanner"."{function}_{name}"($1, $2, $3, $4, null)'  # noqa: S608 - as above


# Spanner's API names the parameter $1 p1.
_POSTGRESQL_PARAMETERS = {"start": "p1", "end": "p2", "token": "p3", "heartbeat": "p4"}

_PROTO_FACTOR = 16
"""As `message_memory` measures it: a record is parsed as a whole, as JSON is."""

_FORMS: dict[tuple[str, str], Callable[[str], StreamForm]] = {
    (GOOGLE_SQL, IMMUTABLE_KEY_RANGE): _google_sql,
    (GOOGLE_SQL, MUTABLE_KEY_RANGE): _google_sql_proto,
    (POSTGRESQL, IMMUTABLE_KEY_RANGE): _postgresql,
    (POSTGRESQL, MUTABLE_KEY_RANGE): _postgresql_proto,
}
