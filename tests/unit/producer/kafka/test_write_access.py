"""Which topics a principal may not write to or read; what is not known is left out."""

from types import SimpleNamespace

from confluent_kafka import KafkaError
from confluent_kafka.admin import AclOperation

from tests.unit.producer.kafka.test_topics import promise
from tidegate.producer.kafka import write_access

ANSWERS = {
    "open": SimpleNamespace(authorized_operations=[AclOperation.WRITE, AclOperation.DESCRIBE]),
    "closed": SimpleNamespace(authorized_operations=[AclOperation.DESCRIBE]),
    "no authorizer": SimpleNamespace(authorized_operations=None),
    "silent": KafkaError(KafkaError._TIMED_OUT),
}


class Admin:
    """Answers what `ANSWERS` holds."""

    def __init__(self, config):
        assert config["bootstrap.servers"] == "x"

    def describe_topics(self, collection, **options):
        assert options["include_authorized_operations"]
        return {name: promise(ANSWERS[name]) for name in collection.topic_names}


def test_topics_without_the_right_to_write_are_named(monkeypatch):
    monkeypatch.setattr(write_access, "AdminClient", Admin)

    assert write_access.denied_topics(ANSWERS, bootstrap_servers="x", options={}) == ["closed"]


def test_topics_without_the_right_to_read_are_named(monkeypatch):
    monkeypatch.setattr(write_access, "AdminClient", Admin)
    denied = write_access.denied_topics(ANSWERS, bootstrap_servers="x", options={}, right="READ")

    assert denied == ["open", "closed"]
