"""How a change stream is queried and its responses decoded, by the dialect of its database.

Each form is for partition mode IMMUTABLE_KEY_RANGE (seed: "Change stream read functions and query
syntax").  Everything else of a query is the same in each: its four arguments, its errors, the
`records` that come of it.  A form of MUTABLE_KEY_RANGE would be chosen here too, by mode.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tidegate.producer.description import GOOGLE_SQL, POSTGRESQL
from tidegate.producer.spanner.decode import ColumnTypesCache, ResponseDecoder
from tidegate.producer.spanner.decode_json import JsonResponseDecoder
from tidegate.schemas.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.producer.records import StreamRecord

__all__ = ["Decoder", "StreamForm", "form_of"]

_STREAM_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,117}")


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
    """Of the end: as the start, or NULL."""
    token: str
    """Of the stream partition token: a STRING, or NULL for the initial query."""
    heartbeat: str
    """Of the heartbeat interval: an INT64, in milliseconds."""
    decoding_factor: int
    """What a message takes until it is decoded and translated, itself included, by its size."""
    decoder: Callable[[], Decoder]
    """Makes the decoder of one query's response."""


def form_of(dialect: str, name: str) -> StreamForm:
    """Return the form of a change stream in a database of this dialect.

    Raises ConfigError for a name that no change stream can have, and for an unknown dialect.
    """
    if not _STREAM_NAME.fullmatch(name):
        raise ConfigError(
            f"change_stream: {name!r} is not a valid name of a change stream",
            hint="Use the name as in CREATE CHANGE STREAM",
        )
    make = _FORMS.get(dialect)
    if make is None:
        raise ConfigError(
            f"database: its dialect {dialect} is not supported",
            hint=f"Use a database of one of the dialects {', '.join(_FORMS)}",
        )
    return make(name)


def _google_sql(name: str) -> StreamForm:
    columns = ColumnTypesCache()
    return StreamForm(
        sql=(
            f"SELECT ChangeRecord FROM `READ_{name}`("  # noqa: S608 - the name is checked
            "start_timestamp => @start_timestamp, end_timestamp => @end_timestamp, "
            "partition_token => @partition_token, "
            "heartbeat_milliseconds => @heartbeat_milliseconds)"
        ),
        start="start_timestamp",
        end="end_timestamp",
        token="partition_token",  # noqa: S106 - a parameter's name
        heartbeat="heartbeat_milliseconds",
        # 2 to 4 for one large value, which is not copied at each level of its lists; 5.6 to 7.9 for
        # many rows (`benchmarks/results/producer.md`).
        decoding_factor=8,
        decoder=lambda: ResponseDecoder(columns),
    )


def _postgresql(name: str) -> StreamForm:
    columns = ColumnTypesCache()
    return StreamForm(
        # Quoted: PostgreSQL folds other names to lower case.
        sql=f'SELECT * FROM "spanner"."read_json_{name}"($1, $2, $3, $4, null)',  # noqa: S608 - as above
        # Spanner's API names the parameter $1 p1.
        start="p1",
        end="p2",
        token="p3",  # noqa: S106 - a parameter's name
        heartbeat="p4",
        # 3 to 6 for large values and many rows, 11 for an array of short texts, and 16 for one
        # record with many small changes, whose JSON is parsed as a whole.
        decoding_factor=16,
        decoder=lambda: JsonResponseDecoder(columns),
    )


_FORMS: dict[str, Callable[[str], StreamForm]] = {
    GOOGLE_SQL: _google_sql,
    POSTGRESQL: _postgresql,
}
