"""Shares of a partitioned read or query: which part of the result a partition token stands for.

All shares are computed at one read timestamp, where the result has one content and one order, so
share k of n is the k-th of n runs of its rows: together they are the whole, and none overlap.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from spanner_simulator.errors import Code, SpannerError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spanner_simulator.core.values import Value
    from spanner_simulator.server.messages import Message
    from spanner_simulator.server.transaction_selection import Selected


_SHARES = 4
_SHARES_MAX = 200


@dataclass(frozen=True, slots=True)
class Share:
    """Share `index` of `count` of one request (`digest`) in one read-only transaction."""

    kind: Literal["read", "query"]
    digest: int
    transaction_id: bytes
    index: int
    count: int

    def token(self) -> bytes:
        """The partition token."""
        text = f"{self.kind}.{self.digest}.{self.index}.{self.count}."
        return base64.urlsafe_b64encode(text.encode() + self.transaction_id)

    @staticmethod
    def parse(token: bytes, kind: Literal["read", "query"], digest: int) -> Share:
        """The share that a token means; INVALID_ARGUMENT when it is none of this request."""
        try:
            parts = base64.b64decode(token, altchars=b"-_", validate=True).split(b".", 4)
        except binascii.Error as error:
            raise SpannerError(Code.INVALID_ARGUMENT, "Invalid partition token.") from error
        if len(parts) != 5 or not all(part.isdigit() and len(part) < 12 for part in parts[1:4]):
            raise SpannerError(Code.INVALID_ARGUMENT, "Invalid partition token.")
        found_digest, index, count = (int(part) for part in parts[1:4])
        if parts[0] != kind.encode() or found_digest != digest or index >= count:
            raise SpannerError(
                Code.INVALID_ARGUMENT, "Partitioned request was created for a different request."
            )
        return Share(kind, digest, parts[4], index, count)

    def check_transaction(self, selected: Selected) -> None:
        """Shares are only valid in the transaction in which they were made."""
        if selected.open is None or selected.open.transaction_id != self.transaction_id:
            raise SpannerError(
                Code.INVALID_ARGUMENT,
                "Partitioned request was created for a different transaction.",
            )

    def of(self, rows: Sequence[Sequence[Value]]) -> Sequence[Sequence[Value]]:
        """The rows of this share."""
        total = len(rows)
        return rows[total * self.index // self.count : total * (self.index + 1) // self.count]


def check_partitioning(selector: Message, options: Message) -> None:
    """What PartitionRead and PartitionQuery ask of their transaction and options."""
    match selector.WhichOneof("selector"):
        case None:
            raise SpannerError(
                Code.INVALID_ARGUMENT,
                "No value provided for required field: TransactionSelector.selector",
            )
        case "single_use":
            raise SpannerError(
                Code.INVALID_ARGUMENT,
                "Partition reads may not be performed in single-use transactions, since the "
                "response needs to be reused.",
            )
        case "begin" if selector.begin.WhichOneof("mode") in ("read_write", "partitioned_dml"):
            raise SpannerError(
                Code.INVALID_ARGUMENT,
                "Partitioned reads can only be performed in a read-only transaction.",
            )
        case _:
            pass
    if options.max_partitions < 0:
        raise SpannerError(
            Code.INVALID_ARGUMENT,
            "Invalid partition_options: max partition count must be greater than zero.",
        )
    if options.partition_size_bytes < 0:
        raise SpannerError(
            Code.INVALID_ARGUMENT,
            "Invalid partition_options: bytes per batch must be greater than zero.",
        )


def share_count(options: Message, *, rows: int, size: int) -> int:
    """How many shares a result of so many rows and bytes is cut into."""
    wanted = _SHARES
    if options.partition_size_bytes:
        wanted = -(-size // options.partition_size_bytes)
    return max(1, min(wanted, options.max_partitions or _SHARES_MAX, _SHARES_MAX, rows))
