"""Commands are committed in one transaction, or it is said that they may not be."""

from __future__ import annotations

import pytest

from tidegate.producer.core import events as on
from tidegate.producer.driver.command_sender import send_commands
from tidegate.producer.errors import CommandNotWritten
from tidegate.producer.memory.broker import MemoryBroker
from tidegate.producer.memory.group import Group
from tidegate.producer.memory.publisher import MemoryPublisher
from tidegate.schemas.progress import ProgressRecord, WorkerDrain

RECORDS = [ProgressRecord("e", "_control", WorkerDrain(name, "me", 0)) for name in ("w1", "w2")]
FAILURE = on.DeliveryFailure(on.DeliveryFault.DENIED, "DENIED", 0, "p", "k", 1)


class Publisher(MemoryPublisher):
    """Answers its next commits as the test says."""

    def __init__(self, broker, *answers):
        super().__init__(broker, transactional_id="c", progress_topic="p")
        self.answers = list(answers)
        self.is_closed = False

    def commit(self):
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, on.TransactionAborted):
            super().abort("the test says so")
        return answer or super().commit()

    def close(self):
        self.is_closed = True
        super().close()


@pytest.fixture
def broker():
    return MemoryBroker({"p": 2}, group=Group(2))


def written(broker):
    return [entry.value for entry in broker.logs["p", 0].read()]


@pytest.mark.parametrize(
    "answers",
    [(), (on.TransactionAborted("a"), on.TransactionAborted("b")), (on.CommitUnanswered("c"),) * 2],
    ids=["at once", "aborted before", "asked again"],
)
def test_all_are_committed_together(broker, answers):
    publisher = Publisher(broker, *answers)
    assert send_commands(publisher, lambda: RECORDS) == RECORDS
    assert written(broker) == RECORDS
    assert publisher.is_closed


def test_without_a_record_nothing_follows(broker):
    assert send_commands(Publisher(broker), list) == []
    assert broker.open_transactions == []


@pytest.mark.parametrize(
    ("answers", "text"),
    [
        ((on.TransactionAborted("no", FAILURE),), "no"),
        ((on.TransactionAborted("no"),) * 3, "no"),
        ((on.CommitUnanswered("silent"),) * 3, "silent"),
        ((on.CommitOutcomeUnknown("lost"),), "lost"),
        ((on.ProducerFenced(),), "another such command"),
    ],
)
def test_what_is_not_known_to_be_written_is_said(broker, answers, text):
    publisher = Publisher(broker, *answers)
    with pytest.raises(CommandNotWritten, match=text):
        send_commands(publisher, lambda: RECORDS)
    assert publisher.is_closed


def test_what_another_command_has_begun_cannot_be_committed_any_more(broker):
    def prepare():
        send_commands(Publisher(broker), lambda: RECORDS[:1])
        return RECORDS

    with pytest.raises(CommandNotWritten, match="another such command"):
        send_commands(Publisher(broker), prepare)
    assert written(broker) == RECORDS[:1]
