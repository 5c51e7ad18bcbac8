"""The transactions of a database by their ids: their beginning, look-up and end.

A transaction that has ended is kept for a while, because a client may ask for it again; clients may
abandon others, so the oldest are dropped if there are very many.
"""

from __future__ import annotations

from collections import OrderedDict

from spanner_simulator.core.rng import Rng
from spanner_simulator.core.rows.transactions import Transaction
from spanner_simulator.errors import Code, SpannerError, failed_precondition, not_found

_FINISHED_TRANSACTIONS_MAX = 10_000
# Clients may abandon read-only transactions; the oldest of this many cannot be in use any more.
_TRANSACTIONS_MAX = 100_000
_RETRY_DELAY_MS = 5


class KnownTransactions:
    """The open transactions of one database, and those that ended a short time ago."""

    def __init__(self, chance: Rng) -> None:
        self._chance = chance
        # Ordered, because an ordinary dictionary does not find its oldest entry fast.
        self._by_id: OrderedDict[bytes, Transaction] = OrderedDict()
        self._finished: OrderedDict[bytes, None] = OrderedDict()
        self._last_number = 0

    def begin(self, *, begun_at: int, read_us: int | None, tag: str) -> Transaction:
        """A new transaction after `begun_at` commits: read-write, or read-only at `read_us`."""
        self._last_number += 1
        transaction_id = b"%d-%08x" % (self._last_number, self._chance.getrandbits(32))
        transaction = Transaction(transaction_id, begun_at, read_us, tag)
        self._by_id[transaction_id] = transaction
        if len(self._by_id) > _TRANSACTIONS_MAX:
            oldest, _ = self._by_id.popitem(last=False)
            self._finished.pop(oldest, None)
        return transaction

    def find(self, transaction_id: bytes) -> Transaction:
        """A transaction that may go on, or has committed; otherwise NOT_FOUND or ABORTED."""
        transaction = self._by_id.get(transaction_id)
        if transaction is None:
            raise not_found(
                f"Transaction was not found: {transaction_id.decode(errors='replace')}",
            )
        if transaction.state == "ABORTED":
            raise _aborted("Transaction was aborted")
        return transaction

    def check_writable(self, transaction: Transaction, verb: str) -> None:
        """Reject writes and commits of a transaction that has ended or is read-only."""
        if transaction.is_read_only:
            raise failed_precondition(f"Cannot {verb} a read-only transaction.")
        if transaction.state == "ABORTED":
            raise _aborted("Transaction was aborted")
        if transaction.state != "ACTIVE":
            raise failed_precondition(
                f"Cannot {verb} a transaction that was rolled back or committed.",
            )

    def commit(self, transaction: Transaction, commit_us: int) -> None:
        """End a transaction at its commit timestamp."""
        transaction.state, transaction.commit_us = "COMMITTED", commit_us
        self._finish(transaction)

    def roll_back(self, transaction_id: bytes) -> None:
        """End a transaction without effect; unknown ones are ignored, as clients expect."""
        transaction = self._by_id.get(transaction_id)
        if transaction is not None and transaction.state == "ACTIVE":
            transaction.state = "ROLLED_BACK"
            self._finish(transaction)

    def abort(self, transaction: Transaction, reason: str) -> SpannerError:
        """End a transaction that its client has to retry; return the error for that."""
        transaction.state = "ABORTED"
        self._finish(transaction)
        return _aborted(f"Transaction was aborted: {reason}")

    def _finish(self, transaction: Transaction) -> None:
        transaction.key_reads.clear()
        transaction.range_reads.clear()
        transaction.writes = None
        self._finished[transaction.transaction_id] = None
        if len(self._finished) > _FINISHED_TRANSACTIONS_MAX:
            oldest, _ = self._finished.popitem(last=False)
            self._by_id.pop(oldest, None)


def _aborted(message: str) -> SpannerError:
    return SpannerError(Code.ABORTED, message, retry_delay_ms=_RETRY_DELAY_MS)
