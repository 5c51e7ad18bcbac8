"""Settings: where they come from, which wins, their flags; all faults are reported together."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal
import pytest
from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import SettingsConfigDict
from tidegate.producer.config import ProducerConfig
from tidegate.producer.discover_config import DiscoverConfig
from tidegate.program.settings import Settings, has_flag, variable_of
from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.config import ConsumerConfig
import re
from typing import Annotated, Any, ClassVar, Literal
import typer
from pydantic import Field, SecretStr
from typer.testing import CliRunner
from tidegate.program.settings import Settings
from tidegate.program.settings_flags import ConfigFile, with_flags
from typing import ClassVar
from tidegate.program.settings_stream import StreamSettings


# settings


class Kettle(Settings):
    model_config = SettingsConfigDict(env_prefix="KETTLE_")
    help_command: ClassVar[str] = "kettle --help"
    list_separators: ClassVar[dict[str, str]] = {"cups": ",", "spices": ";", "shelves": ","}

    owner: str
    code: SecretStr
    litres: int = Field(default=1, ge=1)
    colour: Literal["red", "blue"] = "red"
    options: dict[str, SecretStr] = Field(default={})
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


def test_a_file_is_forgotten_once_read(file):
    Kettle.load(file("litres = 2\n"), **NEEDED)
    assert Kettle.load(**NEEDED).litres == 1


def test_what_is_read_is_of_the_class_itself_and_frozen():
    kettle = Kettle.load(**NEEDED)
    assert type(kettle) is Kettle
    with pytest.raises(ValidationError, match="frozen"):
        kettle.litres = 4


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


def test_a_name_in_a_file_cannot_reach_the_constructors_own_arguments(file):
    assert "_env_prefix: unknown setting" in faults(file('_env_prefix = "hush"\n'), **NEEDED)


def test_an_environment_is_read_by_load_only(monkeypatch):
    monkeypatch.setenv("KETTLE_LITRES", "3")
    assert Kettle(**NEEDED).litres == 1


def test_unknown_variables_alone_are_a_fault(monkeypatch):
    monkeypatch.setenv("KETTLE_SPOUTS", "hush")
    assert "KETTLE_SPOUTS: unknown setting (in the environment)" in faults(**NEEDED)


def test_a_file_that_is_nested_without_end_is_reported(file):
    assert "nested too deeply" in faults(file("a = " + "[" * 5_000 + "]" * 5_000), **NEEDED)


def test_a_variable_that_is_nested_without_end_is_reported(monkeypatch):
    monkeypatch.setenv("KETTLE_OPTIONS", "[" * 100_000)
    assert "options: must be a table" in faults(**NEEDED)


def test_a_variable_that_only_looks_like_a_setting_is_a_fault(monkeypatch):
    """Its capitals are the setting's, its small letters, which are what is compared, are not."""
    name = "KETTLE_LITRE\N{LATIN SMALL LETTER LONG S}"
    assert name.upper() == "KETTLE_LITRES"
    monkeypatch.setenv(name, "3")
    assert f"{name}: unknown setting" in faults(**NEEDED)


@pytest.mark.parametrize(
    "content", ["litres = ", "litres = 1\nlitres = 2", b'owner = "hush\xff"', "a = hush"]
)
def test_a_file_that_is_no_toml_is_named(file, content):
    assert "kettle.toml' cannot be read" in faults(file(content), **NEEDED)


def test_a_file_that_is_not_there_is_named(tmp_path):
    assert "does not exist" in faults(tmp_path / "none.toml", **NEEDED)


def test_a_folder_is_no_file(tmp_path):
    assert "cannot be read" in faults(tmp_path, **NEEDED)


def test_secrets_and_tables_have_no_flag():
    fields = Kettle.model_fields
    assert [name for name in fields if has_flag(fields[name])] == [
        *("owner", "litres", "colour", "cups", "spices")
    ]


def test_a_variable_bears_the_programs_prefix():
    assert variable_of(Kettle, "litres") == "KETTLE_LITRES"


def test_paths_are_made_of_text():
    class Place(Settings):
        model_config = SettingsConfigDict(env_prefix="PLACE_")
        help_command: ClassVar[str] = "place"
        folder: Path

    assert Place.load(folder="a/b").folder == Path("a/b")


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


# settings_flags


class Kettle_of_settings_flags(Settings):
    model_config = SettingsConfigDict(env_prefix="KETTLE_")
    help_command: ClassVar[str] = "kettle --help"

    owner_name: str = Field(description="Whose it is")
    litres: int = Field(default=3, description="How much it holds")
    heat: float = Field(default=0.5, description="How warm")
    shelf: Path = Field(default=Path("here"), description="Where it stands")
    code: SecretStr = Field(default=SecretStr(""), description="Opens it")
    options: dict[str, str] = Field(default={}, description="More")
    colour: Literal["", "red", "blue"] = Field(default="", description="Its colour")


@pytest.fixture
def invoke():
    app = typer.Typer()
    given: list[dict[str, Any]] = []

    @app.command()
    @with_flags(Kettle_of_settings_flags)
    def boil(
        loud: Annotated[bool, typer.Option("--loud")] = False,
        config: ConfigFile = None,
        **flags: Any,
    ) -> None:
        given.append({"loud": loud, "config": config, **flags})

    @app.command()
    @with_flags(Kettle_of_settings_flags, only=("shelf",))
    def show(**flags: Any) -> None:
        given.append(flags)

    def run(*arguments):
        result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})
        return result, given

    return run


def test_what_is_given_arrives_in_its_type_and_the_rest_as_none(invoke):
    result, given = invoke("boil", "--owner-name", "me", "--litres", "2", "--loud", "--shelf", "a")
    assert result.exit_code == 0, result.output
    assert given == [
        {
            "loud": True,
            "config": None,
            "owner_name": "me",
            "litres": 2,
            "heat": None,
            "shelf": Path("a"),
            "colour": None,
        }
    ]


def test_help_describes_every_setting_but_no_secret_and_no_table(invoke):
    text = invoke("boil", "--help")[0].output
    assert "--owner-name" in text
    assert "How much it holds. Default: 3." in text
    assert "Where it stands. Default: here." in text
    assert "Whose it is." in text
    assert re.search(r"--colour +red\|blue", text)
    assert "--code" not in text
    assert "--options" not in text


def test_only_some(invoke):
    assert invoke("show", "--shelf", "b")[1] == [{"shelf": Path("b")}]
    assert invoke("show", "--litres", "1")[0].exit_code == 2


# settings_stream


class Reader(StreamSettings):
    model_config = SettingsConfigDict(env_prefix="TEST_READER_")
    help_command: ClassVar[str] = "reader --help"
    owned_kafka_options: ClassVar[frozenset[str]] = frozenset({"acks", "group.*"})


NEEDED_OF_SETTINGS_STREAM = {
    "bootstrap_servers": "127.0.0.1:9092",
    "registry_url": "http://127.0.0.1:8081/apis/ccompat/v7",
    "prefix": "bank",
}


def load(file=None, **changes):
    return Reader.load(file, **{**NEEDED_OF_SETTINGS_STREAM, **changes})


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
