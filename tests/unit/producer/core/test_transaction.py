"""When nothing but the outcome of a transaction is missing."""

import pytest

from tidegate.producer.core.transaction import OpenTransaction, TransactionPhase


@pytest.mark.parametrize(
    ("phase", "expected"),
    [
        (TransactionPhase.PUBLISHING, False),
        (TransactionPhase.SNAPSHOTTING, False),
        (TransactionPhase.COMMITTING, True),
        (TransactionPhase.ABORTING, True),
    ],
)
def test_it_is_decided_once_commit_or_abort_was_requested(phase, expected):
    transaction = OpenTransaction({0: 1}, {0: {}})
    assert transaction.phase is TransactionPhase.PUBLISHING
    transaction.phase = phase

    assert transaction.is_decided is expected
