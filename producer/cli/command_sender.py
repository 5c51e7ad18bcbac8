"""Writes operators' commands to a fleet into the root's slot, in a transaction.

It owns no slot, so its transaction has no fence: the last record in the slot applies for workers.
All commands of a stream share a transactional id, so only the process that was started last can
commit, and it has read all earlier records.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.errors import CommandNotWritten
from tidegate.producer.ports import Publisher
from tidegate.schemas.progress import ProgressRecord
from tidegate.schemas.topics import ROOT_TOKEN, slot_of

_ATTEMPTS = 3
_COMMITS = 3
_NO_FENCE = b""
_ROOT_SLOT = slot_of(ROOT_TOKEN, slots=1)
"""The slot of the root with any number of slots: the checksum of an empty token is 0."""


def send_commands(
    publisher: Publisher, prepare: Callable[[], Sequence[ProgressRecord]]
) -> Sequence[ProgressRecord]:
    """Commit the records that `prepare` returns, in one transaction; return them.

    `prepare` is called once no other command can commit any more; without a record nothing is
    committed.  Starts the publisher, and closes it; blocks for at most some minutes.  Raises
    CommandNotWritten, and the errors of `Publisher.start`.
    """
    try:
        publisher.start()
        records = prepare()
        if not records:
            return records
        attempts = 0
        while True:
            outcome = _send(publisher, records)
            if isinstance(outcome, on.TransactionCommitted):
                return records
            attempts += 1
            may_pass = isinstance(outcome, on.TransactionAborted) and outcome.failure is None
            if not may_pass or attempts == _ATTEMPTS:
                raise CommandNotWritten(_reason(outcome))
    finally:
        publisher.close()


def _send(
    publisher: Publisher, records: Sequence[ProgressRecord]
) -> on.TransactionCommitted | on.CommitUnanswered | on.TransactionFailure:
    failed = publisher.begin(_NO_FENCE)
    for record in records:
        effect = do.PublishProgress(_ROOT_SLOT, _ROOT_SLOT, record)
        failed = failed or publisher.publish_progress(effect)
    if failed is not None:
        return failed
    delivered = publisher.await_delivery()
    if not isinstance(delivered, on.Delivered):
        return delivered
    outcome = publisher.commit()
    for _ in range(_COMMITS - 1):
        if not isinstance(outcome, on.CommitUnanswered):
            break
        outcome = publisher.commit()
    return outcome


def _reason(outcome: on.CommitUnanswered | on.TransactionFailure) -> str:
    if isinstance(outcome, on.ProducerFenced):
        return "another such command was started meanwhile"
    return outcome.reason
