"""Reads and queries answered completely, as a stream, or in the shares of a partition token.

All shares are computed at one read timestamp, at which the result has one content and one order, so
share k of n is the k-th of n runs of its rows: together they are complete, and none overlap.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from google.cloud.spanner_v1 import types as spanner

from spanner_simulator.core.values import Value
from spanner_simulator.errors import invalid_argument
from spanner_simulator.server.host import Host, Session
from spanner_simulator.server.messages import Message
from spanner_simulator.server.results import Reply, ResumePoint, reply_messages, reply_result_set
from spanner_simulator.server.transaction_selection import Selected, selected_transaction

ShareKind = Literal["read", "query"]
_SHARES = 4
_SHARES_MAX = 200


@dataclass(frozen=True, slots=True)
class Share:
    """Share `index` of `count` of one request (`digest`) in one read-only transaction."""

    kind: ShareKind
    digest: int
    transaction_id: bytes
    index: int
    count: int

    def token(self) -> bytes:
        """The partition token."""
        text = f"{self.kind}.{self.digest}.{self.index}.{self.count}."
        return base64.urlsafe_b64encode(text.encode() + self.transaction_id)

    @staticmethod
    def parse(token: bytes, kind: ShareKind, digest: int) -> Share:
        """The share of a token; INVALID_ARGUMENT if it is not one of this request."""
        try:
            parts = base64.b64decode(token, altchars=b"-_", validate=True).split(b".", 4)
        except binascii.Error as error:
            raise invalid_argument("Invalid partition token.") from error
        if len(parts) != 5 or not all(part.isdigit() and len(part) < 12 for part in parts[1:4]):
            raise invalid_argument("Invalid partition token.")
        found_digest, index, count = (int(part) for part in parts[1:4])
        if parts[0] != kind.encode() or found_digest != digest or index >= count:
            raise invalid_argument("Partitioned request was created for a different request.")
        return Share(kind, digest, parts[4], index, count)

    def check_transaction(self, selected: Selected) -> None:
        """Shares are only valid in the transaction in which they were made."""
        if selected.open is None or selected.open.transaction_id != self.transaction_id:
            raise invalid_argument("Partitioned request was created for a different transaction.")

    def of(self, rows: Sequence[Sequence[Value]]) -> Sequence[Sequence[Value]]:
        """The rows of this share."""
        total = len(rows)
        return rows[total * self.index // self.count : total * (self.index + 1) // self.count]


def share_of(request: Message, kind: ShareKind, digest: int, selected: Selected) -> Share | None:
    """The requested share of a result; None: all of it, which Data Boost does not read."""
    if not request.partition_token:
        if request.data_boost_enabled:
            raise invalid_argument("data_boost_enabled needs a partition_token.")
        return None
    share = Share.parse(request.partition_token, kind, digest)
    share.check_transaction(selected)
    return share


Run = Callable[[Session, Selected], Reply]
"""A function that computes a request's result, in the transaction that it selected."""


async def answer(host: Host, request: Message, run: Run) -> bytes:
    """The whole result in one message."""
    session = host.session(request.session)
    tag = request.request_options.transaction_tag
    async with selected_transaction(host, session, request.transaction, tag=tag) as selected:
        reply = run(session, selected)
        return reply_result_set(reply, begun=selected.begun, token=selected.precommit_token())


async def answer_stream(
    host: Host, request: Message, run: Run, *, digest: int
) -> AsyncGenerator[bytes, None]:
    """The result in as many messages as necessary, or the rest after a resume token."""
    session = host.session(request.session)
    tag = request.request_options.transaction_tag
    async with selected_transaction(host, session, request.transaction, tag=tag) as chosen:
        selected, resume = chosen, ResumePoint(chosen.read_us or 0, 0)
        if request.resume_token:
            resume = ResumePoint.parse(request.resume_token, digest)
            selected = chosen.resumed(resume, session.database.database, now_us=host.now_us())
        reply = run(session, selected)
    token = selected.precommit_token()
    for message in reply_messages(
        reply, begun=selected.begun, token=token, digest=digest, resume=resume
    ):
        yield message


async def answer_partitions(
    host: Host, request: Message, run: Run, *, kind: ShareKind, digest: int
) -> Message:
    """Tokens for shares of a result, to be read in the same transaction."""
    session = host.session(request.session)
    check_partitioning(request.transaction, request.partition_options)
    async with selected_transaction(host, session, request.transaction) as selected:
        opened = selected.read_only_transaction()
        rows = run(session, selected).rows
    size = sum(len(repr(row)) for row in rows)
    count = share_count(request.partition_options, rows=len(rows), size=size)
    message = spanner.PartitionResponse.pb()()
    if selected.begun is not None:
        message.transaction.CopyFrom(selected.begun)
    for index in range(count):
        share = Share(kind, digest, opened.transaction_id, index, count)
        message.partitions.add(partition_token=share.token())
    return message


def check_partitioning(selector: Message, options: Message) -> None:
    """Check the requirements of PartitionRead and PartitionQuery on transaction and options."""
    match selector.WhichOneof("selector"):
        case None:
            raise invalid_argument(
                "No value provided for required field: TransactionSelector.selector"
            )
        case "single_use":
            raise invalid_argument(
                "Partition reads may not be performed in single-use transactions, since the "
                "response needs to be reused."
            )
        case "begin" if selector.begin.WhichOneof("mode") in ("read_write", "partitioned_dml"):
            raise invalid_argument(
                "Partitioned reads can only be performed in a read-only transaction."
            )
        case _:
            pass
    if options.max_partitions < 0:
        raise invalid_argument(
            "Invalid partition_options: max partition count must be greater than zero."
        )
    if options.partition_size_bytes < 0:
        raise invalid_argument(
            "Invalid partition_options: bytes per batch must be greater than zero."
        )


def share_count(options: Message, *, rows: int, size: int) -> int:
    """The number of shares for a result with this number of rows and bytes."""
    count = _SHARES
    if options.partition_size_bytes:
        count = -(-size // options.partition_size_bytes)
    return max(1, min(count, options.max_partitions or _SHARES_MAX, _SHARES_MAX, rows))
