"""Settings: from where, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.local_stack.config import LocalStackConfig, load_config
from tidegate.schemas.errors import ConfigError


def test_defaults_are_free_ports_in_a_folder_here():
    config = load_config()

    assert Path(".tidegate") == config.data_dir
    assert 0 == config.kafka_port == config.registry_port == config.spanner_port


def test_a_flag_beats_the_environment(monkeypatch):
    monkeypatch.setenv("TIDEGATE_LOCAL_KAFKA_PORT", "9092")
    monkeypatch.setenv("TIDEGATE_LOCAL_SEED", "5")
    config = load_config(kafka_port=9093, seed=None)

    assert (9093, 5) == (config.kafka_port, config.seed)


def test_an_unknown_variable_is_named(monkeypatch):
    monkeypatch.setenv("TIDEGATE_LOCAL_KAFKA_PROT", "9092")

    with pytest.raises(ConfigError, match="TIDEGATE_LOCAL_KAFKA_PROT: unknown setting") as caught:
        load_config()
    assert 2 == caught.value.exit_code


def test_all_faults_are_reported_together(monkeypatch):
    monkeypatch.setenv("TIDEGATE_LOCAL_KAFKA_PORT", "many")
    monkeypatch.setenv("TIDEGATE_LOCAL_NONSENSE", "1")

    with pytest.raises(ConfigError) as caught:
        load_config(registry_port=70_000)
    for name in ("kafka_port", "NONSENSE", "registry_port"):
        assert name in str(caught.value)


def test_an_unknown_flag_is_refused():
    with pytest.raises(ConfigError, match="colour"):
        load_config(colour="red")


def test_settings_do_not_change():
    with pytest.raises(ValueError, match="frozen"):
        LocalStackConfig().seed = 3


def test_every_setting_is_explained():
    for name, field in LocalStackConfig.model_fields.items():
        assert field.description, name
