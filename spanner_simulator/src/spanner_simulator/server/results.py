"""Rows in the form of the API: one ResultSet, or a stream of PartialResultSets cut by size.

Cutting depends only on the rows, so a resume token that counts messages lets the same request, at
the same read time, continue right after the messages sent.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from google.cloud.spanner_v1 import types as spanner

from spanner_simulator.core.values import Value, ValueType, encode, encoder
from spanner_simulator.errors import failed_precondition, invalid_argument
from spanner_simulator.server.chunks import pieces_of
from spanner_simulator.server.messages import Message
from spanner_simulator.server.type_messages import metadata_bytes
from spanner_simulator.server.wire_bytes import (
    FALSE,
    NULL,
    TRUE,
    message_bytes,
    plain_bytes,
    result_set_bytes,
    row_bytes,
    string_bytes,
)

_MESSAGE_BYTES_MAX = 900_000
# The service's limit for one ResultSet; larger results have to be streamed.
_RESULT_SET_BYTES_MAX = 10 * 1024 * 1024
_BOOLEANS: dict[Value, bytes] = {None: NULL, True: TRUE, False: FALSE}
# Types whose values always travel as strings.
_TEXT_CODES = frozenset(
    (
        "INT64", "NUMERIC", "STRING", "BYTES", "DATE", "TIMESTAMP", "JSON", "UUID", "INTERVAL",
        "PROTO", "ENUM",
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Reply:
    """A result ready to be sent, without the additions of the transaction.

    `undeclared` are parameters whose types were inferred, not declared; `stats` is a ResultSetStats
    message.
    """

    columns: Sequence[tuple[str, ValueType]]
    rows: Sequence[Sequence[Value]]
    stats: Message | None = None
    undeclared: Sequence[tuple[str, ValueType]] = ()

    def metadata(self, begun: Message | None) -> bytes:
        """The serialised ResultSetMetadata."""
        return metadata_bytes(self.columns, begun, self.undeclared)

    def stats_bytes(self) -> bytes | None:
        """The serialised stats, or None."""
        return None if self.stats is None else self.stats.SerializeToString()


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """The progress of a stream: its read time (0: inside a transaction) and the messages sent."""

    read_us: int
    sent: int

    @staticmethod
    def digest(*request: object) -> int:
        """A number for the request, so that a token does not serve another request."""
        return zlib.crc32(repr(request).encode())

    def token(self, digest: int) -> bytes:
        """The resume token."""
        return b"rd.%d.%d.%d" % (digest, self.read_us, self.sent)

    @staticmethod
    def parse(token: bytes, digest: int) -> ResumePoint:
        """The point of a token; INVALID_ARGUMENT if it is not one of this request."""
        parts = token.split(b".")
        if len(parts) == 4 and parts[0] == b"rd" and all(_is_number(part) for part in parts[1:]):
            found_digest, read_us, sent = (int(part) for part in parts[1:])
            if found_digest == digest:
                return ResumePoint(read_us, sent)
        raise invalid_argument("Invalid resume_token: it belongs to another request.")


def _is_number(text: bytes) -> bool:
    return text.isdigit() and len(text) < 20


@lru_cache(maxsize=1024)
def value_encoder(value_type: ValueType) -> Callable[[Value], bytes]:
    """A function from a value of this type, or NULL, to an encoded google.protobuf.Value."""
    if value_type.code == "BOOL":
        return _BOOLEANS.__getitem__
    plain_of_value: Callable[[Value], Any] = encoder(value_type)
    write = string_bytes if value_type.code in _TEXT_CODES else plain_bytes

    def encoded(value: Value) -> bytes:
        return NULL if value is None else write(plain_of_value(value))

    return encoded


def reply_result_set(reply: Reply, *, begun: Message | None, token: Message | None) -> bytes:
    """A ResultSet; FAILED_PRECONDITION if it is larger than the service allows."""
    serialised = result_set_bytes(
        _encoded_rows(reply),
        metadata=reply.metadata(begun),
        stats=reply.stats_bytes(),
        precommit_token=None if token is None else token.SerializeToString(),
    )
    if len(serialised) > _RESULT_SET_BYTES_MAX:
        raise failed_precondition(
            f"Result set too large. Result sets larger than {_RESULT_SET_BYTES_MAX} bytes can "
            "only be yielded through a streaming API."
        )
    return serialised


def reply_messages(
    reply: Reply, *, begun: Message | None, token: Message | None, digest: int, resume: ResumePoint
) -> Iterator[bytes]:
    """PartialResultSets after the first `resume.sent`; each has a token with its number."""
    metadata: bytes | None = reply.metadata(begun)
    portions = _cut(reply)
    following = next(portions, None)
    number = 0
    while following is not None:
        values, is_chunked = following
        following = next(portions, None)
        is_last = following is None
        number += 1
        if number <= resume.sent and not is_last:
            continue
        yield message_bytes(
            [] if number <= resume.sent else values,
            metadata=metadata,
            is_chunked=is_chunked,
            resume_token=ResumePoint(resume.read_us, number).token(digest),
            stats=reply.stats_bytes() if is_last else None,
            precommit_token=token.SerializeToString() if token is not None and is_last else None,
        )
        metadata = None


def _encoded_rows(reply: Reply) -> Iterator[list[bytes]]:
    encoders = [value_encoder(kind) for _, kind in reply.columns]
    for row in reply.rows:
        yield [encoded(value) for encoded, value in zip(encoders, row, strict=True)]


def _cut(reply: Reply) -> Iterator[tuple[list[bytes], bool]]:
    """Encoded values in portions that fit a message, and whether the last one continues."""
    pending: list[bytes] = []
    size = 0
    for row, encoded in zip(reply.rows, _encoded_rows(reply), strict=True):
        encoded_row = row_bytes(encoded)
        if pending and size + len(encoded_row) > _MESSAGE_BYTES_MAX:
            yield pending, False
            pending, size = [], 0
        if len(encoded_row) <= _MESSAGE_BYTES_MAX:
            pending.append(encoded_row)
            size += len(encoded_row)
            continue
        for (_, kind), item, value in zip(reply.columns, row, encoded, strict=True):
            rest = value
            if pending and size + len(value) > _MESSAGE_BYTES_MAX:
                yield pending, False
                pending, size = [], 0
            if len(value) > _MESSAGE_BYTES_MAX:
                *pieces, last = pieces_of(encode(kind, item), _MESSAGE_BYTES_MAX)
                for piece in pieces:
                    yield [row_bytes([plain_bytes(piece)])], True
                rest = plain_bytes(last)
            pending.append(row_bytes([rest]))
            size += len(rest)
    yield pending, False


def count_stats(count: int, *, is_exact: bool = True) -> Message:
    """The ResultSetStats of DML: the rows that it changed; a lower bound for partitioned DML."""
    if is_exact:
        return spanner.ResultSetStats.pb()(row_count_exact=count)
    return spanner.ResultSetStats.pb()(row_count_lower_bound=count)
