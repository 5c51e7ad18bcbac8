"""What is compared with Kafka and the registry before anything starts."""

from __future__ import annotations

import pytest

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.commands import stream_check
from tidegate.spark_consumer.config import ConsumerConfig

SETTINGS = {
    "bootstrap_servers": "127.0.0.1:1",
    "registry_url": "http://127.0.0.1:1",
    "prefix": "bank",
    "output": "out",
    "checkpoint": "check",
}


@pytest.fixture
def missing(monkeypatch):
    """What Kafka lacks; the stream was begun with another template of names."""

    class Registry:
        schema = None

        def __init__(self, *_, **__):
            """Answer everything."""

        def require_reachable(self):
            """Answer."""

    topics = []
    monkeypatch.setattr(stream_check, "HttpSchemaRegistry", Registry)
    monkeypatch.setattr(stream_check, "find_missing_topics", lambda *_, **__: topics)
    monkeypatch.setattr(
        stream_check, "require_topic_names",
        lambda config, _: config.topic_names.require_recorded(
            ["producer.topic_template={prefix}-{table}"]
        ),
    )  # fmt: skip
    return topics


def require(**settings):
    return stream_check.require_stream(ConsumerConfig.load(None, **{**SETTINGS, **settings}))


def test_a_stream_without_progress_topic_is_refused_by_name(missing):
    missing.append("bank-progress")
    with pytest.raises(ConfigError, match=r"no progress topic .*bank-progress.*prefix"):
        require(topic_template="{prefix}-{table}")


def test_a_stream_with_other_names_is_refused(missing):
    with pytest.raises(ConfigError, match="topic_template: the stream was begun with"):
        require()


def test_the_registry_of_a_stream_that_exists_is_returned(missing):
    assert require(topic_template="{prefix}-{table}").schema is None


def test_options_that_sparks_client_cannot_take_are_refused_before_anything_is_asked(monkeypatch):
    def refuse(_options):
        raise ConfigError("kafka_options: not for Java")

    monkeypatch.setattr(stream_check, "java_options", refuse)
    monkeypatch.setattr(stream_check, "HttpSchemaRegistry", None)
    with pytest.raises(ConfigError, match="not for Java"):
        require()
