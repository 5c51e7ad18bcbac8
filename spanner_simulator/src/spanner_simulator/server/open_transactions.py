"""Transactions of the API: their sessions, their permitted operations, and their answers.

The core's transaction has reads and writes; this one has the session that began it, its mode, and
the replies to its DML by sequence number, so that a statement sent twice runs once.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, Literal

from google.cloud.spanner_v1 import types as spanner

from spanner_simulator.core.rows.transactions import Transaction
from spanner_simulator.errors import (
    Code,
    SpannerError,
    failed_precondition,
    invalid_argument,
    not_found,
)
from spanner_simulator.server.messages import Message

TransactionMode = Literal["read_write", "read_only", "partitioned_dml"]

# Clients may abandon read-only transactions; the oldest of this many cannot be in use any more.
_TRANSACTIONS_MAX = 50_000


@dataclass(frozen=True, slots=True)
class Answered:
    """The outcome of a DML request with a sequence number: a reply or the error.

    `request` distinguishes the request from others.
    """

    request: object
    reply: Any
    error: SpannerError | None


@dataclass(slots=True, eq=False)
class OpenTransaction:
    """One transaction of a session."""

    core: Transaction
    session: str
    mode: TransactionMode
    is_multiplexed: bool = False
    precommit_seq: int = 0
    last_seqno: int = 0
    answered: dict[int, Answered] = field(default_factory=dict)

    @property
    def transaction_id(self) -> bytes:
        """Its name in the API."""
        return self.core.transaction_id

    def next_precommit_token(self) -> Message | None:
        """The token for the next reply to a read-write transaction of a multiplexed session."""
        if not self.is_multiplexed or self.mode != "read_write":
            return None
        self.precommit_seq += 1
        return spanner.MultiplexedSessionPrecommitToken.pb()(
            precommit_token=b"pc." + self.transaction_id, seq_num=self.precommit_seq
        )

    def check_precommit_token(self, token: Message) -> None:
        """INVALID_ARGUMENT for a token that this transaction never returned."""
        if not self.is_multiplexed:
            raise invalid_argument(
                "A precommit token is only valid for transactions on a multiplexed session."
            )
        if (
            token.precommit_token != b"pc." + self.transaction_id
            or token.seq_num > self.precommit_seq
        ):
            raise invalid_argument("The precommit token does not belong to the transaction.")

    def check_ending(self) -> None:
        """Reject commit and rollback of other than read-write transactions."""
        if self.mode != "read_write":
            raise failed_precondition(
                "Cannot commit or rollback a read-only or partitioned-dml transaction."
            )

    def check_active(self) -> None:
        """Reject reads and writes in a transaction that is over."""
        if self.core.state == "ABORTED":
            raise SpannerError(Code.ABORTED, "Transaction was aborted.", retry_delay_ms=5)
        if self.core.state != "ACTIVE":
            raise failed_precondition(
                "Cannot read or query using a transaction after it has been committed or "
                "rolledback."
            )

    def replayed(self, seqno: int, request: object, *, sql: str) -> Answered | None:
        """The outcome of the same request if it was answered before.

        Raises INVALID_ARGUMENT for another request with the same number, or one out of order.
        """
        before = self.answered.get(seqno)
        if before is not None and before.request == request:
            return before
        if before is not None:
            raise invalid_argument(
                f"Previously received a different request with this seqno. seqno={seqno}\n"
                f"Requested SQL: {sql}"
            )
        if seqno < self.last_seqno:
            raise invalid_argument(
                f"Request has an out-of-order seqno. Request seqno={seqno}. Last seen "
                f"seqno={self.last_seqno}. The sequence number must be monotonically increasing "
                "within the transaction. If a request arrives for the first time with an "
                "out-of-order sequence number, the transaction will be invalidated.\n"
                f"Requested SQL: {sql}"
            )
        return None

    def settle(self) -> None:
        """Free the stored answers, which may be large, once the transaction has ended."""
        if self.core.state != "ACTIVE":
            self.answered.clear()

    def note_answer(self, seqno: int, answered: Answered) -> None:
        """Store the outcome of a DML request."""
        self.last_seqno = max(self.last_seqno, seqno)
        self.answered[seqno] = answered


class OpenTransactions:
    """The transactions of one database that were begun explicitly."""

    def __init__(self) -> None:
        self._by_id: OrderedDict[bytes, OpenTransaction] = OrderedDict()
        # Clients delete hundreds of sessions when they stop; examining every transaction takes
        # long.
        self._by_session: dict[str, dict[bytes, OpenTransaction]] = {}

    def add(self, transaction: OpenTransaction) -> None:
        """Add a new transaction, and drop the oldest if there are too many."""
        transaction_id, session = transaction.transaction_id, transaction.session
        self._by_id[transaction_id] = transaction
        self._by_session.setdefault(session, {})[transaction_id] = transaction
        if len(self._by_id) > _TRANSACTIONS_MAX:
            oldest_id, oldest = self._by_id.popitem(last=False)
            transactions = self._by_session[oldest.session]
            del transactions[oldest_id]
            if not transactions:
                del self._by_session[oldest.session]

    def find(self, transaction_id: bytes, *, session: str) -> OpenTransaction:
        """A transaction of this session, or NOT_FOUND.

        Read-only ones are found from every session, because other processes read the shares of a
        partitioned read.
        """
        transaction = self._by_id.get(transaction_id)
        if transaction is None or (
            transaction.session != session and transaction.mode != "read_only"
        ):
            name = transaction_id.decode(errors="replace")
            raise not_found(f"Transaction not found: {name}")
        return transaction

    def forget_session(self, session: str) -> list[OpenTransaction]:
        """Drop the transactions of a deleted session; return those that were active."""
        transactions = self._by_session.pop(session, {})
        for transaction_id in transactions:
            del self._by_id[transaction_id]
        return [
            transaction
            for transaction in transactions.values()
            if transaction.core.state == "ACTIVE"
        ]
