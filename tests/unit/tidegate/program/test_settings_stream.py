"""The settings that producer and consumer share: what is refused, and that secrets stay secret."""

from __future__ import annotations

from typing import ClassVar

import pytest
from pydantic_settings import SettingsConfigDict

from tidegate.program.settings_stream import StreamSettings
from tidegate.schemas.errors import ConfigError


class Reader(StreamSettings):
    model_config = SettingsConfigDict(env_prefix="TEST_READER_")
    help_command: ClassVar[str] = "reader --help"
    owned_kafka_options: ClassVar[frozenset[str]] = frozenset({"acks", "group.*"})


NEEDED = {
    "bootstrap_servers": "127.0.0.1:9092",
    "registry_url": "http://127.0.0.1:8081/apis/ccompat/v7",
    "prefix": "bank",
}


def load(file=None, **changes):
    return Reader.load(file, **{**NEEDED, **changes})


@pytest.mark.parametrize(
    ("changes", "error_text"),
    [
        ({"bootstrap_servers": ""}, "bootstrap_servers: "),
        ({"prefix": "-x"}, "prefix: "),
        ({"topic_template": "{table}"}, "topic_template: '{table}' must begin with {prefix}"),
        ({"topic_template": ""}, "topic_template: '' must begin with {prefix}"),
        ({"topic_template": "{prefix}.{tabel}"}, "topic_template: '{tabel}' is not one of"),
        ({"topic_template": "{prefix}.all"}, "must have {table} once"),
        ({"topic_template": "{prefix}.{database}.{table}"}, "known to the producer only"),
        ({"topic_template": "{prefix}." + "x" * 249 + "{table}"}, "leaves no room for a table"),
        ({"topic_template": "{prefix}.{table}-progress"}, "ends like the name of another topic"),
        ({"registry_url": "localhost:8081"}, "registry_url: must be a URL"),
        ({"registry_url": "http://"}, "registry_url: must be a URL"),
        ({"registry_url": "http://[oops"}, "registry_url: must be a URL"),
        ({"registry_url": "http://host:70000"}, "registry_url: must be a URL"),
        ({"registry_url": "http://host:hush"}, "registry_url: must be a URL"),
        ({"registry_url": "https://me:hush@host"}, "registry_url: must not hold a user"),
        ({"log_level": "loud"}, "log_level: must be one of 'debug', "),
        ({"metrics_port": 70_000}, "metrics_port: "),
        ({"kafka_options": {"group.id": "hush", "a": "hush"}}, "kafka_options: group.id: "),
        (
            {"kafka_options": {"group.protocol": "hush", "acks": "hush", "ack": "hush"}},
            "kafka_options: acks, group.protocol: ",
        ),
    ],
)
def test_a_fault_names_its_setting_and_no_secret(changes, error_text):
    with pytest.raises(ConfigError) as caught:
        load(**changes)
    assert error_text in str(caught.value)
    assert "hush" not in str(caught.value)


def test_the_names_of_topics_follow_from_prefix_and_template():
    assert load().topic_names.data("t") == "bank.t"
    assert load(topic_template="{prefix}-{table}").topic_names.data("s.t") == "bank-s.t"


def test_options_may_be_written_as_toml_likes_them(tmp_path):
    file = tmp_path / "reader.toml"
    file.write_text(
        '[kafka_options]\nsasl.password = "hush"\n"sasl.username" = "me"\n'
        "socket.timeout.ms = 5000\nenable.ssl.certificate.verification = true\n"
    )
    assert load(file).kafka_client_options() == {
        "sasl.password": "hush",
        "sasl.username": "me",
        "socket.timeout.ms": "5000",
        "enable.ssl.certificate.verification": "true",
    }


def test_an_owned_option_is_refused_however_it_is_written(tmp_path):
    file = tmp_path / "reader.toml"
    file.write_text('[kafka_options]\ngroup.id = "x"\n')
    with pytest.raises(ConfigError, match=r"group\.id"):
        load(file)


def test_secrets_are_never_printed():
    settings = load(registry_user_info="me:hush", kafka_options={"sasl.password": "hush"})
    for shown in (repr(settings), str(settings), settings.model_dump_json()):
        assert "hush" not in shown
    assert settings.registry_client_options() == {"basic.auth.user.info": "me:hush"}


def test_options_of_the_registrys_client_are_passed_on_and_never_printed(tmp_path):
    file = tmp_path / "reader.toml"
    file.write_text('[registry_options]\nbearer.auth.token = "hush"\ntimeout = 5\n')
    settings = load(file)
    assert settings.registry_client_options() == {"bearer.auth.token": "hush", "timeout": "5"}
    for shown in (repr(settings), str(settings), settings.model_dump_json()):
        assert "hush" not in shown


def test_an_option_with_a_setting_of_its_own_names_the_setting():
    with pytest.raises(ConfigError, match="url: set registry_url") as caught:
        load(registry_options={"url": "x", "basic.auth.user.info": "me:hush"})
    assert "basic.auth.user.info: set registry_user_info" in str(caught.value)
    assert "hush" not in str(caught.value)


def test_without_credentials_the_registry_gets_none():
    assert load().registry_client_options() == {}


def test_tables_nested_without_end_are_reported(tmp_path):
    file = tmp_path / "reader.toml"
    file.write_text("kafka_options" + ".a" * 5_000 + " = 1")
    with pytest.raises(ConfigError, match="nested too deeply"):
        load(file)
