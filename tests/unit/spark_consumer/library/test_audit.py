"""What an audit of a program hands over; no Spark is started."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.library import audit as module
from tidegate.spark_consumer.library.audit import audit

STREAM = {
    "bootstrap_servers": "127.0.0.1:1",
    "registry_url": "http://127.0.0.1:1",
    "prefix": "bank",
}


@pytest.fixture
def steps(monkeypatch):
    found, places = [], {"lake.bank": "file:/lake"}
    monkeypatch.setattr(module, "require_session", lambda _: found.append("session"))
    monkeypatch.setattr(module, "output_of", lambda _, place: places.get(place, place))
    monkeypatch.setattr(
        module, "require_stream",
        lambda _: found.append("stream") or SimpleNamespace(schema="schema of an id"),
    )  # fmt: skip

    def compare(_spark, config, *, schema_of, step):
        step("Spark")
        found.append((config.output, config.checkpoint, config.kafka_options, schema_of))
        return "a report"

    monkeypatch.setattr(module, "audit_stream", compare)
    return found


@pytest.mark.parametrize(
    ("output", "checkpoint", "expected"),
    [
        ("/lake", None, ("/lake", "/lake/_checkpoint")),
        ("s3a://lake/", None, ("s3a://lake/", "s3a://lake/_checkpoint")),
        (Path("/lake"), Path("/check"), ("/lake", "/check")),
        ("lake.bank", None, ("file:/lake", "file:/lake/_checkpoint")),
    ],
)
def test_the_session_is_checked_then_the_stream_then_they_are_compared(
    steps, output, checkpoint, expected
):
    assert audit(None, output, checkpoint=checkpoint, **STREAM) == "a report"
    assert steps == ["session", "stream", (*expected, {}, "schema of an id")]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"colour": 1}, "option colour: unknown setting"),
        ({"kafka_options": {"group.id": "x"}}, "kafka_options: group.id"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_asked(steps, options, text):
    with pytest.raises(ConfigError, match=text):
        audit(None, "/lake", **STREAM, **options)
    assert steps == []
