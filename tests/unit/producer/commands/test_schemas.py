"""`schemas` works on the registry alone: no topic is created, nothing is registered by looking."""

from __future__ import annotations

import pytest

from tidegate.producer.commands import environment
from tidegate.producer.commands import schemas as command
from tidegate.producer.commands.schemas import Subject
from tidegate.producer.kafka.topics import KafkaTopics, TopicDescription
from tidegate.schemas.errors import ConfigError
from tidegate.schemas.registry import InMemorySchemaRegistry

TABLE = ["bank.Users-key", "bank.Users-value"]
PROGRESS = ["bank-progress-key", "bank-progress-value"]


class Registry(InMemorySchemaRegistry):
    def require_reachable(self):
        """It is."""


@pytest.fixture
def registry_of(place, monkeypatch):
    """The registry that the commands find."""
    registry = Registry()
    for module in (command, environment):
        monkeypatch.setattr(module, "HttpSchemaRegistry", lambda _url, options: registry)
    return registry


def test_what_is_missing_is_registered_once_and_no_topic_is_created(place, registry_of):
    before = place.topics()
    assert command.missing(place.config()) == TABLE + PROGRESS
    assert not registry_of.subjects

    assert command.register(place.config()) == TABLE + PROGRESS
    assert set(registry_of.levels.values()) == {"BACKWARD"}
    assert command.missing(place.config()) == command.register(place.config()) == []
    assert place.topics() == before


def test_subjects_are_those_of_topics_that_exist(place, registry_of):
    config = place.config(spanner_emulator_host="127.0.0.1:1")
    command.register(place.config())
    assert command.subjects(config) == []

    for topic in ("bank.Users", "bank-progress", "other.Users"):
        place.create_topic(topic)
    found = command.subjects(config)
    assert [one.subject for one in found] == sorted(TABLE + PROGRESS)
    newest = registry_of.versions("bank-progress-value")
    assert Subject("bank-progress-value", len(newest), newest[-1].schema_id, "BACKWARD") in found


def test_subjects_of_a_stream_with_other_names_are_not_looked_for(place, registry_of, monkeypatch):
    def refuse(config, _schema_of):
        config.topic_names.require_recorded(["producer.topic_template={prefix}-{table}"])

    monkeypatch.setattr(command, "require_topic_names", refuse)
    place.create_topic("bank-progress")
    config = place.config(spanner_emulator_host="127.0.0.1:1")
    for look in (command.subjects, command.stream_topics):
        with pytest.raises(ConfigError, match="topic_template"):
            look(config)


def test_subjects_follow_the_template(place, registry_of):
    config = place.config(topic_template="{prefix}-{table}")
    assert command.register(config) == [
        "bank-Users-key", "bank-Users-value", *PROGRESS,
    ]  # fmt: skip
    place.create_topic("bank-Users")
    assert [one.subject for one in command.subjects(config)] == [
        "bank-Users-key", "bank-Users-value",
    ]  # fmt: skip
    assert command.shown(config, "Users", is_key=True)["namespace"] == "bank_Users"


def test_a_schema_is_shown_as_it_is_registered(place, registry_of):
    config = place.config(spanner_emulator_host="127.0.0.1:1")
    command.register(place.config())
    place.create_topic("bank.Users")

    assert command.shown(config, "Users", is_key=True)["name"] == "Key"
    assert command.shown(config, "Users", is_key=False)["name"] == "Change"
    with pytest.raises(ConfigError, match=r"bank\.Missing-value.*Tables that have a topic: Users"):
        command.shown(config, "Missing", is_key=False)


def test_topics_have_their_schemas_and_the_progress_topic_comes_last(
    place, registry_of, monkeypatch
):
    config = place.config(spanner_emulator_host="127.0.0.1:1")
    command.register(place.config())
    monkeypatch.setattr(
        KafkaTopics, "describe",
        lambda _topics, names: {name: TopicDescription(name, "id", 6) for name in names},
    )  # fmt: skip
    for topic in ("bank.Users", "bank.unregistered", "bank-progress"):
        place.create_topic(topic)
    users, progress = command.stream_topics(config)

    assert (users.topic, users.table, users.topic_partitions) == ("bank.Users", "Users", 6)
    assert users.key.schema["fields"][0]["name"] == "Id"
    assert (progress.topic, progress.table) == ("bank-progress", None)
    assert progress.value == registry_of.versions("bank-progress-value")[-1]
