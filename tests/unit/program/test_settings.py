"""Settings: where they come from, which wins, their flags; all faults are reported together."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import pytest
import typer
from pydantic import Field, SecretStr
from pydantic_settings import SettingsConfigDict
from typer.testing import CliRunner

from tidegate.producer.config import DiscoverConfig, ProducerConfig
from tidegate.program.settings import Settings, has_flag, variable_of
from tidegate.program.settings_flags import ConfigFile, with_flags, with_settings
from tidegate.program.settings_stream import StreamSettings
from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.config import ConsumerConfig


class Kettle(Settings):
    model_config = SettingsConfigDict(env_prefix="KETTLE_")
    help_command: ClassVar[str] = "kettle --help"
    list_separators: ClassVar[dict[str, str]] = {"cups": ",", "spices": ";", "shelves": ","}
    panels: ClassVar[dict[str, str]] = {"Places": "shelf", "Looks": "colour litres"}

    owner: str = Field(description="Whose it is")
    code: SecretStr
    litres: int = Field(default=1, ge=1, description="How much it holds")
    colour: Literal["red", "blue"] = Field(default="red", description="Its colour")
    whistles: bool = Field(default=False, description="Whether it whistles")
    shelf: Path = Field(default=Path("here"), description="Where it is")
    options: dict[str, SecretStr] = Field(default={}, description="More")
    cups: str = Field(default="", description="Cups, comma-separated")
    spices: str = Field(default="", description="Spices, semicolon-separated")
    shelves: dict[str, str] = Field(default={}, description="Cups, comma-separated, by shelf")


NEEDED = {"owner": "me", "code": "hush"}


@pytest.fixture
def file(tmp_path):
    def write(text):
        path = tmp_path / "kettle.toml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def faults(file=None, **flags):
    with pytest.raises(ConfigError) as caught:
        Kettle.load(file, **flags)
    assert caught.value.exit_code == 2
    assert "hush" not in str(caught.value)
    assert "Traceback" not in str(caught.value)
    return str(caught.value)


def test_flags_win_over_the_environment_and_that_over_the_file(file, monkeypatch):
    path = file('owner = "file"\nlitres = 2\ncolour = "blue"\ncode = "hush"\n')
    monkeypatch.setenv("KETTLE_LITRES", "3")
    monkeypatch.setenv("kettle_owner", "environment")
    kettle = Kettle.load(path, owner="flag", litres=None)
    assert (kettle.owner, kettle.litres, kettle.colour) == ("flag", 3, "blue")
    assert type(kettle) is Kettle
    # The environment is read by `load` only, and a file is forgotten once read.
    assert Kettle(**NEEDED).litres == 1
    monkeypatch.delenv("KETTLE_LITRES")
    assert Kettle.load(**NEEDED).litres == 1


def test_a_table_is_merged_name_by_name(file, monkeypatch):
    path = file('[options]\n"a" = "file"\n"b" = "file"\n')
    monkeypatch.setenv("KETTLE_OPTIONS", '{"b": "environment"}')
    options = Kettle.load(path, **NEEDED).options
    assert {name: value.get_secret_value() for name, value in options.items()} == {
        "a": "file",
        "b": "environment",
    }


def test_all_faults_are_reported_together_a_line_each_with_its_fix(file, monkeypatch):
    monkeypatch.setenv("KETTLE_LITERS", "2")
    monkeypatch.setenv("KETTLE_OPTIONS", "hush")
    path = file('litres = 0\ncolor = "hush"\ncolour = "hush"\n')
    text = faults(path)
    assert text.startswith("Invalid settings:\n")
    assert text.splitlines()[1:-1] == [
        "  KETTLE_LITERS: unknown setting; did you mean KETTLE_LITRES? (in the environment)",
        "  color: unknown setting; did you mean colour?",
        "  owner: is not set (flag --owner, variable KETTLE_OWNER, or the file)",
        "  code: is not set (variable KETTLE_CODE, or the file)",
        "  litres: Input should be greater than or equal to 1",
        "  colour: must be one of 'red', 'blue'",
        "  options: must be a table in the file, a JSON object in the environment",
    ]
    assert text.endswith("`kettle --help` lists the settings")


LONG_S = "KETTLE_LITRE\N{LATIN SMALL LETTER LONG S}"
"""Its capitals are the setting's; its small letters, which are compared, are not."""


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("KETTLE_SPOUTS", "hush", "KETTLE_SPOUTS: unknown setting (in the environment)"),
        ("KETTLE_OPTIONS", "[" * 100_000, "options: must be a table"),
        (LONG_S, "3", f"{LONG_S}: unknown setting"),
    ],
    ids=["unknown", "nested without end", "looks like a setting"],
)
def test_a_variable_that_is_not_a_setting_is_a_fault(monkeypatch, name, value, text):
    monkeypatch.setenv(name, value)
    assert text in faults(**NEEDED)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("a = " + "[" * 5_000 + "]" * 5_000, "nested too deeply"),
        # It cannot reach the constructor's own arguments.
        ('_env_prefix = "hush"\n', "_env_prefix: unknown setting"),
        ("litres = ", "kettle.toml' cannot be read"),
        ("litres = 1\nlitres = 2", "kettle.toml' cannot be read"),
        (b'owner = "hush\xff"', "kettle.toml' cannot be read"),
        ("a = hush", "kettle.toml' cannot be read"),
    ],
    ids=["nested", "argument", "half", "twice", "not UTF-8", "not TOML"],
)
def test_a_file_that_cannot_be_read_is_named(file, content, text):
    assert text in faults(file(content), **NEEDED)


def test_a_file_that_is_not_there_and_a_folder_are_named(tmp_path):
    assert "does not exist" in faults(tmp_path / "none.toml", **NEEDED)
    assert "cannot be read" in faults(tmp_path, **NEEDED)


def test_secrets_and_tables_have_no_flag():
    fields = Kettle.model_fields
    names = [name for name in fields if has_flag(fields[name])]
    assert names == ["owner", "litres", "colour", "whistles", "shelf", "cups", "spices"]
    assert variable_of(Kettle, "litres") == "KETTLE_LITRES"


def test_a_list_may_be_an_array_in_the_file(file):
    arrays = file('cups = ["a", "b"]\nspices = ["salt, fine"]\n[shelves]\nlow = ["a", "b"]\n')
    texts = file('cups = "a,b"\nspices = "salt, fine"\n[shelves]\nlow = "a,b"\n')
    assert Kettle.load(arrays, **NEEDED) == Kettle.load(texts, **NEEDED)
    assert Kettle.load(file("cups = []\n"), **NEEDED).cups == ""


def test_what_is_no_text_is_refused_with_the_form_that_is_wanted(file):
    lines = 'owner = ["hush"]\ncups = ["a,hush"]\nspices = ["a", 1]\n[shelves]\nlow = 3\n'
    assert faults(file(lines), code="hush").splitlines()[1:-1] == [
        "  owner: must be text, in quotes",
        '  cups: must be text, such as "a,b", or an array, as ["a", "b"]',
        '  spices: must be text, such as "a;b", or an array, as ["a", "b"]',
        '  shelves.low: must be text, such as "a,b", or an array, as ["a", "b"]',
    ]


@pytest.mark.parametrize("settings", [ProducerConfig, DiscoverConfig, ConsumerConfig])
def test_each_list_of_the_programs_has_its_separator(settings):
    words = {"comma-separated": ",", "semicolon-separated": ";"}
    described = {
        name: separator
        for name, field in settings.model_fields.items()
        for word, separator in words.items()
        if word in str(field.description)
    }
    own = dict(settings.list_separators)
    assert own.pop("mirror_cluster_by", ",") == ","  # described as mirror_partition_by is
    if settings is DiscoverConfig:
        assert own.pop("bootstrap_servers") == ","  # not used there
    assert own == described


@pytest.mark.parametrize("settings", [ProducerConfig, DiscoverConfig, ConsumerConfig])
def test_each_flag_of_the_programs_is_under_one_heading(settings):
    flags = [name for name, field in settings.model_fields.items() if has_flag(field)]
    listed = [name for names in settings.panels.values() for name in names.split()]
    assert sorted(listed) == sorted(flags)


@pytest.fixture
def invoke():
    app = typer.Typer()
    given: list[dict[str, Any]] = []

    @app.command()
    @with_flags(Kettle)
    def boil(
        loud: Annotated[bool, typer.Option("--loud")] = False,
        config: ConfigFile = None,
        **flags: Any,
    ) -> None:
        given.append({"loud": loud, "config": config, **flags})

    @app.command()
    @with_settings(Kettle, log=lambda settings: given.append({"log": settings.owner}))
    def pour(settings: Kettle, cup: Annotated[str, typer.Argument()]) -> None:
        given.append({"settings": settings, "cup": cup})

    @app.command()
    @with_flags(Kettle, only=("shelf",))
    def show(**flags: Any) -> None:
        given.append(flags)

    def run(*arguments):
        result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})
        return result, given

    return run


def test_flags_arrive_in_their_type_and_those_that_are_not_given_as_none(invoke):
    result, given = invoke("boil", "--owner", "me", "--litres", "2", "--loud", "--shelf", "a")
    assert result.exit_code == 0, result.output
    wanted = {"loud": True, "config": None, "owner": "me", "litres": 2, "shelf": Path("a")}
    assert given == [{**wanted, **dict.fromkeys(("colour", "whistles", "cups", "spices"))}]
    assert invoke("show", "--shelf", "b")[1][-1] == {"shelf": Path("b")}
    assert invoke("show", "--litres", "1")[0].exit_code == 2


def test_a_command_gets_its_settings_after_their_log_was_started(invoke, file, monkeypatch):
    monkeypatch.setenv("KETTLE_CODE", "hush")
    config = str(file('owner = "file"\nlitres = 3\n'))
    result, given = invoke("pour", "mug", "--config", config, "--owner", "me")
    assert result.exit_code == 0, result.output
    settings = Kettle.load(owner="me", litres=3)
    assert given == [{"log": "me"}, {"settings": settings, "cup": "mug"}]


def test_help_describes_every_setting_but_no_secret_and_no_table(invoke):
    text = invoke("boil", "--help")[0].output
    for line in ("How much it holds. Default: 1.", "Where it is. Default: here.", "Whose it is."):
        assert line in text
    assert re.search(r"--colour +red\|blue", text)
    assert re.search(r"--whistles +true\|false", text)
    # Headings are in their order, each with its settings; the others are with the command's own.
    places = [text.index(part) for part in ("─ Options", "--owner", "─ Places", "--shelf")]
    assert places == sorted(places)
    assert text.index("--shelf") < text.index("─ Looks") < text.index("--colour")
    assert "--code" not in text
    assert "--options" not in text


class Reader(StreamSettings):
    model_config = SettingsConfigDict(env_prefix="TEST_READER_")
    help_command: ClassVar[str] = "reader --help"
    owned_kafka_options: ClassVar[frozenset[str]] = frozenset({"acks", "group.*"})


READER_NEEDED = {
    "bootstrap_servers": "127.0.0.1:9092",
    "registry_url": "http://127.0.0.1:8081/apis/ccompat/v7",
    "prefix": "bank",
}


def load(file=None, **changes):
    return Reader.load(file, **{**READER_NEEDED, **changes})


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


def test_options_may_be_written_as_toml_likes_them_and_are_never_printed(file):
    settings = load(
        file(
            '[kafka_options]\nsasl.password = "hush"\n"sasl.username" = "me"\n'
            "socket.timeout.ms = 5000\nenable.ssl.certificate.verification = true\n"
            '[registry_options]\nbearer.auth.token = "hush"\ntimeout = 5\n'
        )
    )
    assert settings.kafka_client_options() == {
        "sasl.password": "hush",
        "sasl.username": "me",
        "socket.timeout.ms": "5000",
        "enable.ssl.certificate.verification": "true",
    }
    assert settings.registry_client_options() == {"bearer.auth.token": "hush", "timeout": "5"}
    with_login = load(registry_user_info="me:hush")
    assert with_login.registry_client_options() == {"basic.auth.user.info": "me:hush"}
    for one in (settings, with_login):
        for shown in (repr(one), str(one), one.model_dump_json()):
            assert "hush" not in shown
    assert load().registry_client_options() == {}


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ('[kafka_options]\ngroup.id = "hush"\n', r"group\.id"),
        ("kafka_options" + ".a" * 5_000 + " = 1", "nested too deeply"),
        ('[registry_options]\nurl = "hush"\n', "url: set registry_url"),
        (
            '[registry_options]\nbasic.auth.user.info = "me:hush"\n',
            "basic.auth.user.info: set registry_user_info",
        ),
    ],
    ids=["owned", "nested", "url", "login"],
)
def test_an_option_in_a_file_that_has_another_place_is_refused(file, content, text):
    with pytest.raises(ConfigError, match=text) as caught:
        load(file(content))
    assert "hush" not in str(caught.value)
