"""The transaction of a read or query, by its selector; waits for future times."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from google.cloud.spanner_v1 import types as spanner

from spanner_simulator.core.database import Database
from spanner_simulator.core.rows.transactions import Transaction
from spanner_simulator.core.timestamps import MAX_NS, MIN_NS
from spanner_simulator.errors import invalid_argument
from spanner_simulator.server.host import Host, Session
from spanner_simulator.server.messages import Message, timestamp_message, timestamp_us_of
from spanner_simulator.server.open_transactions import OpenTransaction
from spanner_simulator.server.results import ResumePoint


@dataclass(frozen=True, slots=True)
class Selected:
    """How to read: at `read_us`, or (None) at the newest state inside the open transaction.

    `begun` is the message for the result's metadata if the client asked for it; `has_begun` says
    that this request began the transaction.
    """

    open: OpenTransaction | None
    read_us: int | None
    begun: Message | None = None
    has_begun: bool = False

    @property
    def transaction(self) -> Transaction | None:
        """The core's transaction, or None for a single-use read."""
        return None if self.open is None else self.open.core

    def precommit_token(self) -> Message | None:
        """The token that the reply must carry, if any."""
        return None if self.open is None else self.open.next_precommit_token()

    def resumed(self, point: ResumePoint, database: Database, *, now_us: int) -> Selected:
        """The same, but reading at the time of the message after which the client continues.

        FAILED_PRECONDITION if that is too long ago.
        """
        if self.open is not None:
            return self
        database.check_versions(point.read_us, now_us=now_us)
        begun = self.begun and _read_at(point.read_us)
        return replace(self, read_us=point.read_us, begun=begun)

    def check_reading(self) -> None:
        """Partitioned DML transactions read nothing for clients."""
        if self.open is not None and self.open.mode == "partitioned_dml":
            raise invalid_argument(
                "PartitionedDml Transactions may only be used to execute DML statements"
            )

    def writing(self) -> OpenTransaction:
        """The open transaction in which DML may run."""
        if self.open is None:
            raise invalid_argument(
                "DML statements may not be performed in single-use transactions, to avoid replay."
            )
        if self.open.mode == "read_only":
            raise invalid_argument(
                "DML statements can only be performed in a read-write or partitioned-dml "
                "transaction. Current transaction type is ReadOnly."
            )
        return self.open

    def read_only_transaction(self) -> OpenTransaction:
        """The open read-only transaction that partitioned reads need."""
        if self.open is None or self.open.mode != "read_only":
            raise invalid_argument(
                "Partitioned reads can only be performed in a read-only transaction."
            )
        return self.open


@asynccontextmanager
async def selected_transaction(
    host: Host, session: Session, selector: Message, *, tag: str = ""
) -> AsyncIterator[Selected]:
    """The transaction of a request, by its selector; a transaction that it begins ends if it fails.

    The client never gets the id of such a transaction, so it could not end it.
    """
    selected = await select_transaction(host, session, selector, tag=tag)
    try:
        yield selected
    except BaseException:
        if selected.has_begun and selected.open is not None:
            session.database.database.rollback(selected.open.transaction_id)
        raise


async def select_transaction(
    host: Host, session: Session, selector: Message, *, tag: str = ""
) -> Selected:
    """Resolve a TransactionSelector; absent means single-use and strong."""
    match selector.WhichOneof("selector"):
        case "id":
            transaction = find_transaction(session, selector.id)
            if transaction.mode != "partitioned_dml":
                # Partitioned DML is over once it has run, and its one statement may be repeated.
                transaction.check_active()
            if transaction.core.read_us is not None:
                session.database.database.check_versions(
                    transaction.core.read_us, now_us=host.now_us()
                )
            return Selected(transaction, transaction.core.read_us)
        case "begin":
            opened, message = await begin_transaction(host, session, selector.begin, tag=tag)
            return Selected(opened, opened.core.read_us, message, has_begun=True)
        case "single_use":
            options = selector.single_use
            if options.WhichOneof("mode") not in (None, "read_only"):
                raise invalid_argument(
                    "Transaction mode for read only single use transaction should be read_only."
                )
            _check_exclusion(options)
            read_us = await _read_time_us(host, session, options.read_only, is_single_use=True)
            has_time = options.read_only.return_read_timestamp
            return Selected(None, read_us, _read_at(read_us) if has_time else None)
        case _:
            return Selected(None, session.database.database.clock.read_now_us(host.now_us()))


def _read_at(read_us: int) -> Message:
    """The metadata of a single-use read, for a client that asks for the read timestamp."""
    return spanner.Transaction.pb()(read_timestamp=timestamp_message(read_us))


def find_transaction(session: Session, transaction_id: bytes) -> OpenTransaction:
    """A transaction that this session began, in any state; NOT_FOUND otherwise."""
    return session.database.transactions.find(transaction_id, session=session.name)


async def begin_transaction(
    host: Host, session: Session, options: Message, *, tag: str = ""
) -> tuple[OpenTransaction, Message]:
    """Start a transaction and describe it."""
    database = session.database.database
    message = spanner.Transaction.pb()()
    match options.WhichOneof("mode"):
        case "read_write" | "partitioned_dml" as mode:
            core = database.begin(tag=tag)
            core.exclude_from_streams = options.exclude_txn_from_change_streams
            opened = OpenTransaction(core, session.name, mode, session.is_multiplexed)
            if (token := opened.next_precommit_token()) is not None:
                message.precommit_token.CopyFrom(token)
        case "read_only":
            _check_exclusion(options)
            bound = options.read_only
            read_us = await _read_time_us(host, session, bound, is_single_use=False)
            opened = OpenTransaction(database.begin(read_us=read_us), session.name, "read_only")
            if bound.return_read_timestamp:
                message.read_timestamp.CopyFrom(timestamp_message(read_us))
        case _:
            raise invalid_argument("No value provided for required field: TransactionOptions.mode")
    message.id = opened.transaction_id
    session.database.transactions.add(opened)
    return opened, message


def _check_exclusion(options: Message) -> None:
    if options.exclude_txn_from_change_streams:
        raise invalid_argument(
            "The option exclude_txn_from_change_streams is only for read-write and partitioned "
            "DML transactions."
        )


async def _read_time_us(
    host: Host, session: Session, bound: Message, *, is_single_use: bool
) -> int:
    database = session.database.database
    kind = bound.WhichOneof("timestamp_bound")
    match kind:
        case "read_timestamp":
            read_us = timestamp_us_of(bound.read_timestamp)
        case "exact_staleness":
            read_us = host.now_us() - _staleness_us(bound.exact_staleness)
        case "min_read_timestamp" | "max_staleness":
            if not is_single_use:
                raise invalid_argument(
                    f"Timestamp bound: {kind} for read can be only be used for a single use "
                    "transaction."
                )
            # The newest state is recent enough for any bound that is not ahead of now.
            now_us = max(host.now_us(), database.clock.newest_us)
            if kind == "max_staleness":
                _staleness_us(bound.max_staleness)
                read_us = now_us
            else:
                read_us = max(timestamp_us_of(bound.min_read_timestamp), now_us)
        case _:
            return database.clock.read_now_us(host.now_us())
    if not MIN_NS <= read_us * 1000 <= MAX_NS:
        raise invalid_argument(f"Timestamp out of range: {kind}")
    # A future time is awaited, so that nothing can commit before it after the read.
    await host.clock.sleep_until(read_us)
    # The session may have been deleted meanwhile.
    host.session(session.name)
    database.close_read(read_us, now_us=host.now_us())
    return read_us


def _staleness_us(duration: Message) -> int:
    staleness_us = timestamp_us_of(duration)
    if staleness_us < 0:
        raise invalid_argument("Staleness must be non-negative.")
    return staleness_us
