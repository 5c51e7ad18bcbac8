"""`run`: what is compared with the stream before Spark starts."""

from __future__ import annotations

import threading

import pytest

from tidegate.program.health import Health
from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.commands import run as command
from tidegate.spark_consumer.config import ConsumerConfig

SETTINGS = {
    "bootstrap_servers": "127.0.0.1:1",
    "registry_url": "http://127.0.0.1:1",
    "prefix": "bank",
    "output": "out",
    "checkpoint": "check",
}


class Registry:
    schema = None

    def __init__(self, *_, **__):
        """Answer to anything."""

    def require_reachable(self):
        """Answer."""


@pytest.fixture
def prepare(monkeypatch, tmp_path):
    """Prepare a run; `compared` has the streams whose names were compared."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "require_spark", lambda **_: None)
    monkeypatch.setattr(command, "HttpSchemaRegistry", Registry)
    compared = []

    def compare(config, _schema_of):
        compared.append(config.prefix)
        config.topic_names.require_recorded(["producer.topic_template={prefix}-{table}"])

    def prepare(*, has_topics, **settings):
        monkeypatch.setattr(command, "wait_for_topics", lambda *_, **__: has_topics)
        monkeypatch.setattr(command, "require_topic_names", compare)
        config = ConsumerConfig.load(None, **{**SETTINGS, **settings})
        return command.prepare(config, stop=threading.Event(), health=Health())

    prepare.compared = compared
    return prepare


def test_a_stream_with_other_names_is_refused_before_spark_starts(prepare):
    with pytest.raises(ConfigError, match="topic_template"):
        prepare(has_topics=True)
    assert prepare(has_topics=True, topic_template="{prefix}-{table}")


def test_a_run_that_was_stopped_while_it_waited_compares_nothing(prepare):
    assert not prepare(has_topics=False)
    assert prepare.compared == []


def test_folders_are_checked_before_registry_broker_and_spark(prepare, monkeypatch):
    monkeypatch.setattr(command, "HttpSchemaRegistry", None)
    with pytest.raises(ConfigError, match="output: the folder cannot be written to"):
        prepare(has_topics=True, output="/dev/null/out")


def test_a_run_whose_spark_submit_has_ended_ends_too(monkeypatch):
    parents = iter([7, 7, 1])
    monkeypatch.setattr(command.os, "getppid", lambda: next(parents))
    stop = threading.Event()
    command._stop_with_parent(stop, 7, wait_s=0)
    assert stop.is_set()
    assert list(parents) == []
