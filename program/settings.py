"""How programs read settings: a TOML file, overridden by the environment, overridden by flags.

Settings are frozen once read.  All faults are reported together, in one error with a line for each
that names the setting and the fix; a name that is not a setting is a fault, in the file and in the
environment.  A value appears in an error only where a setting's own check puts it, because any
value may be a secret in the wrong place.  Tables (`kafka_options`) are merged name by name: the
file can hold the plain options, the environment the password.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self, get_args, get_origin

from pydantic import SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from tidegate.schemas.errors import ConfigError


class InvalidSettings(ConfigError):  # noqa: N818 - named for what was found
    """One or more settings cannot be used; `faults` holds a line for each."""

    def __init__(self, faults: Sequence[str], *, hint: str) -> None:
        lines = "".join(f"\n  {fault}" for fault in faults)
        super().__init__(f"Invalid settings:{lines}", hint=hint)
        self.faults = tuple(faults)

    def __str__(self) -> str:
        """The head, one line for each fault, and the hint."""
        return f"{self.message}\n{self.hint}"


class _Environment(EnvSettingsSource):
    """Environment variables; text that is not JSON is passed on to validation, which reports it."""

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        try:
            return super().decode_complex_value(field_name, field, value)
        except (ValueError, RecursionError):
            return value


class Settings(BaseSettings):
    """Base of every program's settings; a subclass gives `env_prefix` and `help_command`."""

    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, validate_default=True
    )
    help_command: ClassVar[str]
    """The command that lists every setting."""
    list_separators: ClassVar[Mapping[str, str]] = {}
    """The separators of settings that are lists; in a file they may be arrays."""
    panels: ClassVar[Mapping[str, str]] = {}
    """The headings of `--help`, in their order, each with the names of its settings."""

    @classmethod
    def load(cls, file: Path | None = None, **flags: Any) -> Self:
        """Read the settings; a flag that is None was not given.

        Raises InvalidSettings with every fault, or ConfigError for a file that cannot be read.
        """
        given_flags = {name: value for name, value in flags.items() if value is not None}
        faults = _unknown_variables(cls)
        try:
            # pydantic-settings' own TOML source treats a missing file as an empty one, and does not
            # translate syntax errors.
            in_file = {} if file is None else _read(file)
            values = _merged(in_file, _Environment(cls)(), given_flags)
            accepted = {
                name: _as_text(value, cls.list_separators[name])
                if name in cls.list_separators
                else value
                for name, value in values.items()
                if name in cls.model_fields
            }
            # Checked before pydantic: the constructor has further parameters, such as `_env_file`.
            faults += [
                f"{name}: unknown setting{_suggestion(name, cls.model_fields)}"
                for name in values
                if name not in accepted
            ]
            settings = cls(**accepted)
        except ValidationError as error:
            faults += [_fault(cls, entry) for entry in error.errors(include_input=False)]
        except UnicodeEncodeError:  # a validator's text has quoted it
            faults += [
                f"{name}: is not UTF-8" for name, value in accepted.items() if not _is_text(value)
            ]
        except RecursionError:
            faults.append("config: tables are nested too deeply")
        else:
            if not faults:
                return settings
        raise InvalidSettings(faults, hint=f"`{cls.help_command}` lists the settings")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - the signature is pydantic's
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Construct from arguments alone: `load` reads the file and the environment."""
        return (init_settings,)


def variable_of(settings: type[Settings], name: str) -> str:
    """Return the environment variable of a setting."""
    return f"{settings.model_config['env_prefix']}{name}".upper()


def has_flag(field: FieldInfo) -> bool:
    """Return whether a setting has a flag: all but tables and secrets have one.

    Other users of a machine can read command lines.
    """
    return field.annotation is not SecretStr and get_origin(field.annotation) is not dict


def _merged(*tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return one table in which later tables override earlier ones, nested tables included."""
    merged: dict[str, Any] = {}
    for table in tables:
        for name, value in table.items():
            below = merged.get(name)
            if isinstance(below, dict) and isinstance(value, dict):
                merged[name] = _merged(below, value)
            else:
                merged[name] = value
    return merged


def _as_text(value: object, separator: str) -> object:
    """Return an array of texts as one text, also in tables; validation reports other values."""
    match value:
        case Mapping():
            return {name: _as_text(item, separator) for name, item in value.items()}
        case list() if all(isinstance(item, str) and separator not in item for item in value):
            return separator.join(value)
        case _:
            return value


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(f"config: file {str(file)!r} does not exist") from error
    except RecursionError as error:
        raise ConfigError(
            f"config: file {str(file)!r} cannot be read: it is nested too deeply"
        ) from error
    except (OSError, ValueError) as error:
        # The error's text quotes the bytes that cannot be decoded, which may be a secret.
        cause = type(error).__name__ if isinstance(error, UnicodeDecodeError) else error
        raise ConfigError(f"config: file {str(file)!r} cannot be read: {cause}") from error


def _unknown_variables(settings: type[Settings]) -> list[str]:
    """Return a fault for each variable with the prefix that is not a setting."""
    variables = {variable_of(settings, name) for name in settings.model_fields}
    # In lower case, as pydantic-settings compares: a variable is read, or it is a fault.
    read = {name.lower() for name in variables}
    prefix = variable_of(settings, "").lower()
    return [
        f"{name}: unknown setting{_suggestion(name.upper(), variables)} (in the environment)"
        for name in sorted(os.environ)
        if name.lower().startswith(prefix) and name.lower() not in read
    ]


def _fault(settings: type[Settings], entry: Any) -> str:
    """Return one line for one of pydantic's errors."""
    name = ".".join(str(part) for part in entry["loc"])
    match entry["type"]:
        case "missing":
            ways = [f"variable {variable_of(settings, name)}", "or the file"]
            if has_flag(settings.model_fields[name]):
                ways.insert(0, f"flag --{name.replace('_', '-')}")
            return f"{name}: is not set ({', '.join(ways)})"
        case "string_type" if entry["loc"][0] in settings.list_separators:
            separator = settings.list_separators[entry["loc"][0]]
            return f'{name}: must be text, such as "a{separator}b", or an array, as ["a", "b"]'
        case "string_type":
            return f"{name}: must be text, in quotes"
        case "dict_type":
            return f"{name}: must be a table in the file, a JSON object in the environment"
        case "literal_error":
            choices = get_args(settings.model_fields[name].annotation)
            return f"{name}: must be one of {', '.join(repr(choice) for choice in choices)}"
        case _:
            text = entry["msg"].removeprefix("Value error, ")
            return f"{name}: {text}" if name else text


def _suggestion(name: str, names: Any) -> str:
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.8)
    return f"; did you mean {close[0]}?" if close else ""


def _is_text(value: object) -> bool:
    """Whether a value can be encoded as UTF-8; a variable may hold any bytes."""
    try:
        str(value).encode()
    except UnicodeEncodeError:
        return False
    return True
