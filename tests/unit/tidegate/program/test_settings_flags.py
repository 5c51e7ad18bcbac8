"""Options made from settings: all but secrets and tables, each as the setting describes it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import pytest
import typer
from pydantic import Field, SecretStr
from pydantic_settings import SettingsConfigDict
from typer.testing import CliRunner

from tidegate.program.settings import Settings
from tidegate.program.settings_flags import ConfigFile, with_flags


class Kettle(Settings):
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
    @with_flags(Kettle)
    def boil(
        loud: Annotated[bool, typer.Option("--loud")] = False,
        config: ConfigFile = None,
        **flags: Any,
    ) -> None:
        given.append({"loud": loud, "config": config, **flags})

    @app.command()
    @with_flags(Kettle, only=("shelf",))
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
