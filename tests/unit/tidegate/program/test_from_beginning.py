"""A reader beside any group joins nothing, commits nothing, and begins at the beginning."""

from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from tidegate.program import from_beginning
from tidegate.program.from_beginning import consume_from_beginning
from tidegate.schemas.errors import ConfigError, UnreachableError

NOT_YET_KNOWN = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
DENIED = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
GROUP_DENIED = KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)
WRONG_LOGIN = KafkaError(KafkaError._AUTHENTICATION, "wrong password")


class Consumer:
    """Begins at what `answers` say, one after the other, and then at 0."""

    answers: list[object]
    reports: list[KafkaError]
    made: list["Consumer"]

    def __init__(self, config):
        self.config = config
        self.is_closed = False
        self.made.append(self)

    def get_watermark_offsets(self, place, timeout):
        assert 0 < timeout < 60
        answer = self.answers.pop(0) if self.answers else (0, place.partition)
        if isinstance(answer, KafkaError):
            raise KafkaException(answer)
        return answer

    def consume(self, _count, timeout):
        assert timeout == 0
        return [SimpleNamespace(error=lambda error=error: error) for error in self.reports]

    def assign(self, places):
        self.assigned = [(place.topic, place.partition, place.offset) for place in places]

    def close(self):
        self.is_closed = True


@pytest.fixture(autouse=True)
def kafka(monkeypatch):
    Consumer.answers, Consumer.reports, Consumer.made = [], [], []
    monkeypatch.setattr(from_beginning, "Consumer", Consumer)
    monkeypatch.setattr(from_beginning.time, "sleep", lambda _seconds: None)
    return Consumer


def opened(*numbers, **more):
    return consume_from_beginning("p", numbers, bootstrap_servers="x", client_group="g", **more)


def test_it_reads_committed_records_from_the_beginning_and_joins_nothing(kafka):
    kafka.answers = [(0, 9), (7, 9)]
    consumer = opened(
        2, 3, options={"group.id": "others", "client.rack": "r"}, sizes={"fetch.max.bytes": 7}
    )

    assert consumer.assigned == [("p", 2, 0), ("p", 3, 7)]
    assert consumer.config["isolation.level"] == "read_committed"
    assert consumer.config["enable.auto.commit"] is False
    assert consumer.config["enable.partition.eof"] is True
    assert consumer.config["group.id"] == "g"
    assert consumer.config["client.rack"] == "r"
    assert consumer.config["fetch.max.bytes"] == 7


def test_an_offset_that_is_gone_is_an_error_and_never_a_new_beginning():
    consumer = opened(0, options={"auto.offset.reset": "earliest"})

    assert consumer.config["auto.offset.reset"] == "error"


def test_a_leader_that_does_not_know_a_new_topic_yet_is_asked_again(kafka):
    kafka.answers = [NOT_YET_KNOWN, None, KafkaError(KafkaError.UNKNOWN), (4, 9)]
    kafka.reports = [GROUP_DENIED]  # the client looks for the group's coordinator

    assert opened(0).assigned == [("p", 0, 4)]


@pytest.mark.parametrize(
    ("answer", "report", "text"),
    [(DENIED, None, "denies access to topics"), (None, WRONG_LOGIN, "rejected the login")],
)
def test_what_does_not_pass_is_raised_at_once(kafka, answer, report, text):
    kafka.answers = [answer, (4, 9)]
    kafka.reports = [] if report is None else [report]

    with pytest.raises(ConfigError, match=text):
        opened(0)
    assert kafka.made[0].is_closed


def test_a_leader_that_never_answers_is_named(kafka, monkeypatch):
    monkeypatch.setattr(from_beginning, "_PATIENCE_S", 0.0)
    kafka.answers = [NOT_YET_KNOWN, (4, 9)]

    with pytest.raises(UnreachableError, match="cannot read topic p"):
        opened(0)
    assert kafka.made[0].is_closed
