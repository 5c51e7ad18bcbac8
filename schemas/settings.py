"""The one way in which programs read settings: TOML file, over it environment, over it flags.

Frozen once read.  Every fault is told at once, in one ConfigError that names the setting and what
to do; names that are no setting are faults, in the file and in the environment.  A value stands in
an error only where a setting's own check puts it, knowing that it is no secret.  A table
(`kafka_options`) is merged name by name: the file can hold the plain options, the environment the
password.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ClassVar, Self, get_args, get_origin

from pydantic import SecretStr, ValidationError
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from tidegate.schemas.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pydantic.fields import FieldInfo

__all__ = ["Settings", "has_flag", "variable_of"]

_file_values: ContextVar[Mapping[str, Any]] = ContextVar("_file_values", default={})  # noqa: B039
"""What the file says, while `load` reads: pydantic-settings asks the class, not the instance."""


class _Environment(EnvSettingsSource):
    """Variables; text that is no JSON is left to the validation, which tells it with the rest."""

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
    """What to type to see every setting."""

    @classmethod
    def load(cls, file: Path | None = None, **flags: Any) -> Self:
        """Read the settings; a flag that is None was not given.

        Raises ConfigError that names every fault.
        """
        reading = _file_values.set({} if file is None else _read(file))
        faults = _unknown_variables(cls)
        try:
            settings = cls(**{name: value for name, value in flags.items() if value is not None})
        except ValidationError as error:
            faults += [_fault(cls, entry) for entry in error.errors(include_input=False)]
        except RecursionError:
            faults.append("config: tables are nested too deeply")
        else:
            if not faults:
                return settings
        finally:
            _file_values.reset(reading)
        raise ConfigError(
            f"{len(faults)} faulty setting(s): {'; '.join(faults)}",
            hint=f"`{cls.help_command}` lists the settings",
        )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the signature is pydantic's
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags before the environment before the file."""
        file = InitSettingsSource(settings_cls, dict(_file_values.get()))
        return init_settings, _Environment(settings_cls), file


def variable_of(settings: type[Settings], name: str) -> str:
    """Return the environment variable of a setting."""
    return f"{settings.model_config['env_prefix']}{name}".upper()


def has_flag(field: FieldInfo) -> bool:
    """Return whether a setting can be a flag: no table, and no secret.

    Other users of a machine can read command lines.
    """
    return field.annotation is not SecretStr and get_origin(field.annotation) is not dict


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(f"config: there is no file {str(file)!r}") from error
    except RecursionError as error:
        message = f"config: the file {str(file)!r} cannot be read: it is nested too deeply"
        raise ConfigError(message) from error
    except (OSError, ValueError) as error:
        # What cannot be decoded stands in that error's text, and may be a secret.
        cause = type(error).__name__ if isinstance(error, UnicodeDecodeError) else error
        raise ConfigError(f"config: the file {str(file)!r} cannot be read: {cause}") from error


def _unknown_variables(settings: type[Settings]) -> list[str]:
    """Return a fault for each variable that bears the prefix and names no setting."""
    known = {variable_of(settings, name) for name in settings.model_fields}
    # In small letters, as pydantic-settings compares: a variable is read, or it is a fault.
    read = {name.lower() for name in known}
    prefix = variable_of(settings, "").lower()
    return [
        f"{name}: no such setting{_meant(name.upper(), known)} (in the environment)"
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
        case "extra_forbidden":
            return f"{name}: no such setting{_meant(name, settings.model_fields)}"
        case "dict_type":
            return f"{name}: must be a table in the file, a JSON object in the environment"
        case "literal_error":
            choices = get_args(settings.model_fields[name].annotation)
            return f"{name}: must be one of {', '.join(repr(choice) for choice in choices)}"
        case _:
            text = entry["msg"].removeprefix("Value error, ")
            return f"{name}: {text}" if name else text


def _meant(name: str, known: Any) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
    return f"; {close[0]} is one" if close else ""
