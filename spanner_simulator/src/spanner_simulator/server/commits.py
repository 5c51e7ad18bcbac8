"""Transactions from their beginning to their end: BeginTransaction, Commit, Rollback, BatchWrite.

The most frequent call is a commit of a few mutations in a single-use transaction: it goes from the
request to the core without intermediate steps.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable

from google.cloud.spanner_v1 import types as spanner
from google.protobuf import empty_pb2

from spanner_simulator.core.rows.mutations import Delete, Mutation
from spanner_simulator.core.rows.transactions import Transaction
from spanner_simulator.errors import (
    SpannerError,
    failed_precondition,
    invalid_argument,
    unsupported,
)
from spanner_simulator.server.host import Host, Session
from spanner_simulator.server.messages import Message, timestamp_message
from spanner_simulator.server.mutation_messages import mutation
from spanner_simulator.server.open_transactions import OpenTransaction
from spanner_simulator.server.statuses import status_message
from spanner_simulator.server.transaction_selection import begin_transaction, find_transaction

# The raw class, because creating it through the wrapper takes longer than using it.
_COMMIT_RESPONSE = spanner.CommitResponse.pb()
_WRITE_PRIVILEGES = {
    "insert": ("INSERT",),
    "update": ("UPDATE",),
    "insert_or_update": ("INSERT", "UPDATE"),
    "replace": ("INSERT", "DELETE"),
}


class TransactionMethods:
    """The methods by their API names, in snake case."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def begin_transaction(self, request: Message) -> Message:
        """Start a transaction."""
        session = self._host.session(request.session)
        if request.HasField("mutation_key"):
            # It only tells a real server where the transaction will write, but it must be a key.
            mutation(request.mutation_key)
        _, message = await begin_transaction(
            self._host, session, request.options, tag=request.request_options.transaction_tag
        )
        return message

    async def commit(self, request: Message) -> Message:
        """Apply mutations, atomically, at one new commit timestamp."""
        session = self._host.session(request.session)
        if request.return_commit_stats:
            raise unsupported("commit statistics")
        database = session.database.database
        opened: OpenTransaction | None = None
        match request.WhichOneof("transaction"):
            case "transaction_id":
                opened = find_transaction(session, request.transaction_id)
                _check_commit(opened, request)
                transaction = opened.core
            case "single_use_transaction":
                transaction = _single_use(session, request.single_use_transaction)
            case _:
                raise invalid_argument(
                    "No value provided for required field: CommitRequest.transaction"
                )
        transaction.tag = request.request_options.transaction_tag or transaction.tag
        try:
            mutations = _mutations(session, request.mutations)
            commit_us = database.commit(transaction, mutations, now_us=self._host.now_us())
        except SpannerError:
            if opened is None:
                # No client knows this transaction.
                database.rollback(transaction.transaction_id)
            raise
        finally:
            if opened is not None:
                opened.settle()
        return _COMMIT_RESPONSE(commit_timestamp=timestamp_message(commit_us))

    async def rollback(self, request: Message) -> Message:
        """End a transaction without effect; may be repeated."""
        session = self._host.session(request.session)
        opened = find_transaction(session, request.transaction_id)
        opened.check_ending()
        if opened.core.state == "COMMITTED":
            raise failed_precondition("Cannot rollback a transaction after it has been committed.")
        session.database.database.rollback(request.transaction_id)
        opened.settle()
        return empty_pb2.Empty()

    async def batch_write(self, request: Message) -> AsyncGenerator[bytes, None]:
        """Apply each group as a separate transaction, with a separate answer."""
        self._host.session(request.session)
        if not request.mutation_groups:
            raise invalid_argument(
                "No value provided for required field: BatchWriteRequest.mutation_groups"
            )
        for index, group in enumerate(request.mutation_groups):
            # Other calls may have run meanwhile, and dropped the database.
            session = self._host.session(request.session)
            database = session.database.database
            reply = spanner.BatchWriteResponse.pb()(indexes=[index])
            transaction = database.begin(tag=request.request_options.transaction_tag)
            transaction.exclude_from_streams = request.exclude_txn_from_change_streams
            try:
                mutations = _mutations(session, group.mutations)
                commit_us = database.commit(transaction, mutations, now_us=self._host.now_us())
                reply.status.SetInParent()
                reply.commit_timestamp.CopyFrom(timestamp_message(commit_us))
            except SpannerError as error:
                database.rollback(transaction.transaction_id)
                reply.status.CopyFrom(status_message(error))
            yield reply.SerializeToString()


def _single_use(session: Session, options: Message) -> Transaction:
    if options.WhichOneof("mode") != "read_write":
        raise invalid_argument("A single-use commit needs a read-write transaction.")
    transaction = session.database.database.begin()
    transaction.exclude_from_streams = options.exclude_txn_from_change_streams
    return transaction


def _check_commit(opened: OpenTransaction, request: Message) -> None:
    opened.check_ending()
    if request.HasField("precommit_token"):
        opened.check_precommit_token(request.precommit_token)
    if opened.core.state == "ROLLED_BACK":
        raise failed_precondition("Cannot commit a transaction after it has been rolled back.")
    if opened.core.state == "ABORTED":
        opened.check_active()


def _mutations(session: Session, messages: Iterable[Message]) -> list[Mutation]:
    """The mutations of a request, which the session's role may all do."""
    mutations = [mutation(message) for message in messages]
    if session.role:
        for change in mutations:
            kinds = ("DELETE",) if isinstance(change, Delete) else _WRITE_PRIVILEGES[change.kind]
            for privilege in kinds:
                session.check_privilege(change.table, privilege)
    return mutations
