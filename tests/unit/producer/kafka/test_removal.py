"""What bears the prefix is found, removed, and waited for until it is gone."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from tidegate.producer.kafka import removal as module
from tidegate.producer.kafka.removal import StreamRemoval
from tidegate.schemas.errors import ConfigError, UnreachableError
from tidegate.schemas.topics import TopicNames

TOPICS = {
    "bank-progress", "bank-dead-letter", "bank-backfill-requests", "bank.Users", "bank.shop.Items",
    "bank2.Users", "bank-other", "bank.a.b.c", "other.Users", "bank",
}  # fmt: skip
OF_THE_STREAM = [
    "bank-backfill-requests",
    "bank-dead-letter",
    "bank-progress",
    "bank.Users",
    "bank.shop.Items",
]


class Answer:
    def __init__(self, value=None, *, code=None):
        self._value, self._code = value, code

    def result(self):
        if self._code is not None:
            raise KafkaException(KafkaError(self._code))
        return self._value


class Admin:
    """Deletes at once, unless it is to fail or to leave topics behind."""

    def __init__(self, visible):
        self.visible, self.codes, self.stay, self.deleted = visible, {}, set(), []

    def list_consumer_groups(self, **_):
        names = ("bank-fleet", "bank-fleet-w1", "bank-fleets", "readers")
        return Answer(SimpleNamespace(valid=[SimpleNamespace(group_id=name) for name in names]))

    def delete_topics(self, topics, **_):
        self.visible -= set(topics) - self.stay
        return self._answers(topics)

    def delete_consumer_groups(self, groups, **_):
        return self._answers(groups)

    def _answers(self, names):
        self.deleted += names
        return {name: Answer(code=self.codes.get(name)) for name in names}


@pytest.fixture
def admin():
    return Admin(set(TOPICS))


@pytest.fixture
def removal(admin, monkeypatch):
    monkeypatch.setattr(module, "make_client", lambda *_: admin)
    monkeypatch.setattr(module, "list_topics", lambda *_: frozenset(admin.visible))
    monkeypatch.setattr(module, "_LOOK_S", 0.001)
    monkeypatch.setattr(module, "_GONE_S", 0.05)
    return StreamRemoval(TopicNames("bank"), "b:1", {})


def test_topics_that_may_be_of_another_stream_stay(removal, admin):
    admin.visible |= {"bank.eu-progress", "bank.eu.Items"}
    with pytest.raises(ConfigError, match="prefix of another stream"):
        removal.topics()


def test_only_what_bears_the_prefix_is_found(removal):
    assert removal.topics() == OF_THE_STREAM
    assert removal.groups() == ["bank-fleet", "bank-fleet-w1"]


def test_what_a_template_names_is_found(removal):
    other = StreamRemoval(TopicNames("bank", "{prefix}-{table}"), "b:1", {})
    assert other.topics() == [
        "bank-backfill-requests", "bank-dead-letter", "bank-other", "bank-progress",
    ]  # fmt: skip


def test_topics_that_a_template_makes_unclear_stay(removal, admin):
    admin.visible |= {"bank-eu-progress", "bank-eu.Items"}
    assert removal.topics() == OF_THE_STREAM
    other = StreamRemoval(TopicNames("bank", "{prefix}-{table}"), "b:1", {})
    with pytest.raises(ConfigError, match="prefix of another stream") as caught:
        other.topics()
    assert "another topic_template than {prefix}-{table}" in caught.value.hint


def test_topics_and_groups_are_removed(removal, admin):
    removal.remove(removal.topics(), removal.groups())
    assert admin.deleted == [*OF_THE_STREAM, "bank-fleet", "bank-fleet-w1"]
    assert removal.topics() == []


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("bank.Users", KafkaError.UNKNOWN_TOPIC_OR_PART),
        ("bank-fleet", KafkaError.GROUP_ID_NOT_FOUND),
    ],
)
def test_what_is_gone_already_is_no_error(removal, admin, name, code):
    admin.codes[name] = code
    removal.remove(removal.topics(), removal.groups())


def test_a_missing_right_is_named(removal, admin):
    admin.codes["bank.Users"] = KafkaError.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(ConfigError, match=r"cannot delete topic bank\.Users"):
        removal.remove(removal.topics(), [])


def test_topics_that_stay_are_named(removal, admin):
    admin.stay = {"bank.Users"}
    with pytest.raises(UnreachableError, match=r"still there.*bank\.Users"):
        removal.remove(removal.topics(), [])
