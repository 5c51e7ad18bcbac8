"""Settings: where they come from, which wins; all faults are reported together."""

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
