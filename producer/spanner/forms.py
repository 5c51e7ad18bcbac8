"""The query and the decoding of a change stream, by dialect and partition mode.

Everything else is the same in each form: the query's four arguments, its errors, and the resulting
`records`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from google.cloud.spanner_v1.types import TypeCode

from tidegate.producer.description import (
    GOOGLE_SQL,
    IMMUTABLE_KEY_RANGE,
    MUTABLE_KEY_RANGE,
    POSTGRESQL,
)
from tidegate.producer.spanner.decoding.json_rows import JsonResponseDecoder
from tidegate.producer.spanner.decoding.proto_rows import ProtoResponseDecoder
from tidegate.producer.spanner.decoding.response import Decoder
from tidegate.producer.spanner.decoding.struct_rows import ColumnTypesCache, ResponseDecoder
from tidegate.schemas.errors import ConfigError

_STREAM_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,117}")

WINDOW_US = 20 * 60 * 1_000_000
"""The interval of one query of mutable key ranges: the service takes at most 30 minutes."""


@dataclass(frozen=True, slots=True)
class StreamForm:
    """The queries of one change stream; its decoders share their caches of column lists."""

    sql: str
    start: str
    """Name of the parameter with the start; a TIMESTAMP as RFC 3339 text."""
    end: str
    """The end's form: like the start, or NULL."""
    token: str
    """The stream partition token's form: a STRING, or NULL for the initial query."""
    heartbeat: str
    """The heartbeat interval's form: an INT64, in milliseconds."""
    decoding_factor: int
    """Memory of a message until it is decoded and translated, itself included, relative to its
    size."""
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
    parts = _FORMS.get((dialect, partition_mode))
    if parts is None:
        raise ConfigError(
            f"database: its dialect {dialect} is not supported with {partition_mode}",
            hint=f"Use one of {'; '.join(' with '.join(form) for form in _FORMS)}",
        )
    sql, parameters, factor, make_decoder = parts
    columns = ColumnTypesCache()
    return StreamForm(
        sql=sql.format(name=name),
        **parameters,
        decoding_factor=factor,
        decoder=lambda: make_decoder(columns),
    )


_GOOGLE_SQL = (
    "SELECT ChangeRecord FROM `READ_{name}`("
    "start_timestamp => @start_timestamp, end_timestamp => @end_timestamp, partition_token => "
    "@partition_token, heartbeat_milliseconds => @heartbeat_milliseconds)"
)
_GOOGLE_SQL_PARAMETERS = {
    "start": "start_timestamp",
    "end": "end_timestamp",
    "token": "partition_token",
    "heartbeat": "heartbeat_milliseconds",
}
# Quoted: PostgreSQL folds other names to lower case.
_POSTGRESQL = 'SELECT * FROM "spanner"."read_json_{name}"($1, $2, $3, $4, null)'
_POSTGRESQL_PROTO = 'SELECT * FROM "spanner"."read_proto_bytes_{name}"($1, $2, $3, $4, null)'
# Spanner's API names the parameter $1 p1.
_POSTGRESQL_PARAMETERS = {"start": "p1", "end": "p2", "token": "p3", "heartbeat": "p4"}

_STRUCT_FACTOR = 8
"""2 to 4 for one large value, which is not copied at each level of its lists; 5.6 to 7.9 for many
rows (`benchmarks/results/producer.md`)."""
_JSON_FACTOR = 16
"""3 to 6 for large values and many rows, 11 for an array of short texts, and 16 for one record with
many small changes, whose JSON is parsed as a whole."""
_PROTO_FACTOR = 16
"""A record is parsed as a whole, like JSON."""

_Parts: TypeAlias = tuple[str, dict[str, str], int, Callable[[ColumnTypesCache], Decoder]]
_FORMS: dict[tuple[str, str], _Parts] = {
    (GOOGLE_SQL, IMMUTABLE_KEY_RANGE): (
        _GOOGLE_SQL,
        _GOOGLE_SQL_PARAMETERS,
        _STRUCT_FACTOR,
        ResponseDecoder,
    ),
    (GOOGLE_SQL, MUTABLE_KEY_RANGE): (
        _GOOGLE_SQL,
        _GOOGLE_SQL_PARAMETERS,
        _PROTO_FACTOR,
        partial(ProtoResponseDecoder, column_type=TypeCode.PROTO),
    ),
    (POSTGRESQL, IMMUTABLE_KEY_RANGE): (
        _POSTGRESQL,
        _POSTGRESQL_PARAMETERS,
        _JSON_FACTOR,
        JsonResponseDecoder,
    ),
    (POSTGRESQL, MUTABLE_KEY_RANGE): (
        _POSTGRESQL_PROTO,
        _POSTGRESQL_PARAMETERS,
        _PROTO_FACTOR,
        partial(ProtoResponseDecoder, column_type=TypeCode.BYTES),
    ),
}
