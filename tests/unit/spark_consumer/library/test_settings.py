"""Options of a builder: which names there are, and how wrong values are reported."""

from __future__ import annotations

import pytest

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.config import ConsumerConfig
from tidegate.spark_consumer.library import settings
from tidegate.spark_consumer.library.settings import load_settings, require_option

GIVEN = {
    "bootstrap_servers": "127.0.0.1:1",
    "registry_url": "http://127.0.0.1:1",
    "prefix": "bank",
    "output": "out",
    "checkpoint": "check",
}


def refused(name):
    with pytest.raises(ConfigError, match=f"option {name}: ") as caught:
        require_option(name)
    return str(caught.value)


def test_every_setting_is_an_option_or_is_refused_with_what_to_do():
    refusals = {}
    for name in ConsumerConfig.model_fields:
        if name in settings._WITHOUT_EFFECT:
            refusals[name] = refused(name)
        else:
            require_option(name)
    assert refusals.keys() == settings._WITHOUT_EFFECT.keys()
    assert "tidegate.session()" in refusals["packages"]
    assert "lastProgress" in refusals["metrics_port"]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("mirror_interval", "mirror_interval_ms"),
        ("mirrorIntervalMs", "mirror_interval_ms"),
        ("bootstrap.servers", "bootstrap_servers"),
    ],
)
def test_an_unknown_name_is_reported_with_the_one_that_was_meant(name, meant):
    assert f"Did you mean {meant}?" in refused(name)


def test_an_unknown_name_without_a_likeness_names_the_list():
    assert "docs/reference/settings.md" in refused("colour")


def test_options_of_kafka_in_sparks_form_are_reported_with_ours():
    assert 'kafka_options={"sasl.mechanism": …}' in refused("kafka.sasl.mechanism")


def test_every_wrong_value_is_reported_with_its_name_and_never_shown():
    with pytest.raises(ConfigError) as caught:
        load_settings(
            {**GIVEN, "mirror_interval_ms": "s3cret", "kafka_options": {"group.id": "s3cret"}}
        )
    text = str(caught.value)
    assert "mirror_interval_ms: " in text
    assert "kafka_options: group.id" in text
    assert "docs/reference/settings.md" in text
    assert "s3cret" not in text
    assert caught.value.__cause__ is None


def test_settings_of_the_environment_apply_unless_the_query_cannot_use_them(monkeypatch):
    monkeypatch.setenv("TIDEGATE_CONSUMER_RELEASES_KEPT", "7")
    monkeypatch.setenv("TIDEGATE_CONSUMER_UNTIL", "caught-up")
    monkeypatch.setenv("TIDEGATE_CONSUMER_METRICS_PORT", "9464")
    config = load_settings(GIVEN)
    assert (config.releases_kept, config.until, config.metrics_port) == (7, "", 0)
    assert load_settings({**GIVEN, "releases_kept": 8}).releases_kept == 8


def test_only_warnings_are_logged_unless_more_is_asked_for():
    assert load_settings(GIVEN).log_level == "warning"
    assert load_settings({**GIVEN, "log_level": "info"}).log_level == "info"
