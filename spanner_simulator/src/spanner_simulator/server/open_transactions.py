"""Transactions as the API sees them: whose they are, what they may do, what they have answered.

The core's transaction knows reads and writes; this one knows the session that began it, its mode,
and the replies to its DML by sequence number, so that a statement sent twice runs once.
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

# Clients simply forget read-only transactions; the oldest of this many cannot be in use any more.
_TRANSACTIONS_MAX = 50_000


@dataclass(frozen=True, slots=True)
class Answered:
    """The outcome of a DML request with a sequence number: a reply or the error.

    `request` is what tells the request from others.
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
        """What each reply to a read-write transaction of a multiplexed session must carry."""
        if not self.is_multiplexed or self.mode != "read_write":
            return None
        self.precommit_seq += 1
        return spanner.MultiplexedSessionPrecommitToken.pb()(
            precommit_token=b"pc." + self.transaction_id, seq_num=self.precommit_seq
        )

    def check_precommit_token(self, token: Message) -> None:
        """INVALID_ARGUMENT for a token that this transaction was never given."""
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
        """Only read-write transactions are committed and rolled back."""
        if self.mode != "read_write":
            raise failed_precondition(
                "Cannot commit or rollback a read-only or partitioned-dml transaction."
            )

    def check_active(self) -> None:
        """Refuse to read or write in a transaction that is over."""
        if self.core.state == "ABORTED":
            raise SpannerError(Code.ABORTED, "Transaction was aborted.", retry_delay_ms=5)
        if self.core.state != "ACTIVE":
            raise failed_precondition(
                "Cannot read or query using a transaction after it has been committed or "
                "rolledback."
            )

    def replayed(self, seqno: int, request: object, *, sql: str) -> Answered | None:
        """The outcome of the same request if it was answered before.

        Raises INVALID_ARGUMENT for another request of the same number, or one out of order.
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
        """Remember the outcome of a DML request."""
        self.last_seqno = max(self.last_seqno, seqno)
        self.answered[seqno] = answered


class OpenTransactions:
    """The transactions of one database that were begun by name."""

    def __init__(self) -> None:
        self._by_id: OrderedDict[bytes, OpenTransaction] = OrderedDict()
        # Clients delete hundreds of sessions as they stop; looking at every transaction takes long.
        self._by_session: dict[str, dict[bytes, OpenTransaction]] = {}

    def add(self, transaction: OpenTransaction) -> None:
        """Remember a new transaction, and forget the oldest when there are too many."""
        transaction_id, session = transaction.transaction_id, transaction.session
        self._by_id[transaction_id] = transaction
        self._by_session.setdefault(session, {})[transaction_id] = transaction
        if len(self._by_id) > _TRANSACTIONS_MAX:
            oldest_id, oldest = self._by_id.popitem(last=False)
            others = self._by_session[oldest.session]
            del others[oldest_id]
            if not others:
                del self._by_session[oldest.session]

    def find(self, transaction_id: bytes, *, session: str) -> OpenTransaction:
        """A transaction of this session, or NOT_FOUND.

        Read-only ones are found from every session, as shares of a partitioned read are read by
        other processes.
        """
        transaction = self._by_id.get(transaction_id)
        if transaction is None or (
            transaction.session != session and transaction.mode != "read_only"
        ):
            name = transaction_id.decode(errors="replace")
            raise not_found(f"Transaction not found: {name}")
        return transaction

    def forget_session(self, session: str) -> list[OpenTransaction]:
        """Drop the transactions of a session that is deleted; the ones that were active."""
        gone = self._by_session.pop(session, {})
        for transaction_id in gone:
            del self._by_id[transaction_id]
        return [one for one in gone.values() if one.core.state == "ACTIVE"]
