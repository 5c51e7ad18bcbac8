"""Settings: where they come from, what wins, and that every fault is told."""

import pytest

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.config import load_config

NEEDED = {
    "bootstrap_servers": "127.0.0.1:9092",
    "registry_url": "http://127.0.0.1:8081/apis/ccompat/v7",
    "prefix": "bank",
    "output": "out",
    "checkpoint": "check",
}


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    import os

    for name in os.environ:
        if name.startswith("TIDEGATE_CONSUMER_"):
            monkeypatch.delenv(name)
    return monkeypatch


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "consumer.toml"

    def write(text):
        path.write_text(text)
        return path

    return write


def test_defaults_do_for_what_is_not_needed():
    config = load_config(None, NEEDED)
    assert config.prefix == "bank"
    assert config.until == ""
    assert config.metrics_port == 0


def test_flags_win_over_environment_and_environment_over_file(file, environment):
    path = file('prefix = "file"\noutput = "file"\ncheckpoint = "file"\n')
    environment.setenv("TIDEGATE_CONSUMER_OUTPUT", "environment")
    environment.setenv("TIDEGATE_CONSUMER_CHECKPOINT", "environment")
    rest = {name: NEEDED[name] for name in ("bootstrap_servers", "registry_url")}
    config = load_config(path, {**rest, "checkpoint": "flag", "prefix": None})
    assert (config.prefix, config.output, config.checkpoint) == ("file", "environment", "flag")


def test_every_fault_is_told_at_once(file, environment):
    environment.setenv("TIDEGATE_CONSUMER_SPEED", "high")
    path = file('colour = "red"\n')
    flags = {"prefix": "no spaces", "registry_url": "ftp://x", "metrics_port": 99999}
    with pytest.raises(ConfigError) as caught:
        load_config(path, {**flags, "until": "noon"})
    text = str(caught.value)
    for name in ("TIDEGATE_CONSUMER_SPEED", "colour", "prefix", "registry_url", "metrics_port"):
        assert f"{name}: " in text
    for name in ("bootstrap_servers", "output", "checkpoint"):
        assert f"{name}: missing" in text
    assert "until: " in text
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("text", ["prefix = ", "prefix = 'a'\nprefix = 'b'"])
def test_a_file_that_is_no_toml_is_named(file, text):
    with pytest.raises(ConfigError, match=r"consumer\.toml"):
        load_config(file(text), NEEDED)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.toml"):
        load_config(tmp_path / "none.toml", NEEDED)


def test_a_password_in_a_url_is_not_shown():
    with pytest.raises(ConfigError) as caught:
        load_config(None, {**NEEDED, "registry_url": "ftp://user:secret@host"})
    assert "secret" not in str(caught.value)
