"""The transaction that a read or query runs in, from its selector; waits for times to come."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from google.cloud.spanner_v1 import types as spanner

from tidegate.spanner_simulator.errors import Code, SpannerError
from tidegate.spanner_simulator.server.messages import timestamp_message, timestamp_us_of

if TYPE_CHECKING:
    from tidegate.spanner_simulator.core.rows.transactions import Transaction
    from tidegate.spanner_simulator.server.host import Host, Session
    from tidegate.spanner_simulator.server.messages import Message

__all__ = ["Selected", "begin_transaction", "precommit_token", "select_transaction"]


@dataclass(frozen=True, slots=True)
class Selected:
    """How to read: at `read_us`, or (None) at the newest state inside `transaction`.

    `begun` is the message for the result's metadata when the client asked to hear of it.
    """

    transaction: Transaction | None
    read_us: int | None
    begun: Message | None = None


def precommit_token(session: Session, transaction: Transaction) -> Message | None:
    """What a read-write transaction on a multiplexed session must be given."""
    if not session.is_multiplexed or transaction.is_read_only:
        return None
    return spanner.MultiplexedSessionPrecommitToken.pb()(
        precommit_token=transaction.transaction_id, seq_num=1
    )


async def select_transaction(host: Host, session: Session, selector: Message) -> Selected:
    """Resolve a TransactionSelector; absent means single-use and strong."""
    database = session.database.database
    match selector.WhichOneof("selector"):
        case "id":
            transaction = database.transaction(selector.id)
            if transaction.state != "ACTIVE":
                raise SpannerError(
                    Code.FAILED_PRECONDITION, "The transaction has been committed or rolled back."
                )
            return Selected(transaction, transaction.read_us)
        case "begin":
            transaction, message = await begin_transaction(host, session, selector.begin)
            return Selected(transaction, transaction.read_us, message)
        case "single_use":
            options = selector.single_use
            if options.WhichOneof("mode") not in (None, "read_only"):
                raise SpannerError(
                    Code.INVALID_ARGUMENT, "A single-use transaction for reading must be read-only."
                )
            read_us = await _read_time_us(host, session, options.read_only)
            begun = None
            if options.read_only.return_read_timestamp:
                begun = spanner.Transaction.pb()(read_timestamp=timestamp_message(read_us))
            return Selected(None, read_us, begun)
        case _:
            return Selected(None, database.clock.read_now_us(host.now_us()))


async def begin_transaction(
    host: Host, session: Session, options: Message, *, tag: str = ""
) -> tuple[Transaction, Message]:
    """Start a transaction and describe it."""
    database = session.database.database
    match options.WhichOneof("mode"):
        case "read_write":
            transaction = database.begin(tag=tag)
            transaction.exclude_from_streams = options.exclude_txn_from_change_streams
            message = spanner.Transaction.pb()(id=transaction.transaction_id)
            token = precommit_token(session, transaction)
            if token is not None:
                message.precommit_token.CopyFrom(token)
            return transaction, message
        case "read_only":
            if options.exclude_txn_from_change_streams:
                raise SpannerError(
                    Code.INVALID_ARGUMENT,
                    "exclude_txn_from_change_streams is only for read-write transactions.",
                )
            read_us = await _read_time_us(host, session, options.read_only)
            transaction = database.begin(read_us=read_us)
            message = spanner.Transaction.pb()(id=transaction.transaction_id)
            if options.read_only.return_read_timestamp:
                message.read_timestamp.CopyFrom(timestamp_message(read_us))
            return transaction, message
        case "partitioned_dml":
            raise SpannerError(
                Code.UNIMPLEMENTED, "The simulator does not support: partitioned DML"
            )
        case _:
            raise SpannerError(Code.INVALID_ARGUMENT, "A transaction needs a mode.")


async def _read_time_us(host: Host, session: Session, bound: Message) -> int:
    clock = session.database.database.clock
    match bound.WhichOneof("timestamp_bound"):
        case "read_timestamp":
            read_us = timestamp_us_of(bound.read_timestamp)
        case "exact_staleness":
            read_us = host.now_us() - timestamp_us_of(bound.exact_staleness)
        case "min_read_timestamp":
            read_us = max(timestamp_us_of(bound.min_read_timestamp), host.now_us())
        case _:
            return clock.read_now_us(host.now_us())
    # A time to come is waited for, so that nothing can commit behind the read.
    await asyncio.sleep(max(0, read_us - host.now_us()) / 1e6)
    session.database.database.close_read(read_us, now_us=host.now_us())
    return read_us
