"""Settings of the consumer: TOML file < environment (`TIDEGATE_CONSUMER_…`) < flags.

Unknown names are errors, all faults are told at once.
"""

from __future__ import annotations

import os
import tomllib
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from tidegate.schemas.errors import ConfigError
from tidegate.schemas.topics import TopicNames

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["ENVIRONMENT_PREFIX", "ConsumerConfig", "load_config"]

ENVIRONMENT_PREFIX = "TIDEGATE_CONSUMER_"


class ConsumerConfig(BaseSettings):
    """What a run of the consumer needs to know."""

    model_config = SettingsConfigDict(
        env_prefix=ENVIRONMENT_PREFIX, frozen=True, extra="forbid", hide_input_in_errors=True
    )

    bootstrap_servers: str = Field(min_length=1, description="Kafka brokers, host:port, by comma")
    registry_url: str = Field(description="Schema registry that speaks Confluent's API")
    prefix: str = Field(description="Prefix of the stream's topics")
    output: str = Field(min_length=1, description="Folder of the tables and release manifests")
    checkpoint: str = Field(min_length=1, description="Folder of the state; one run at a time")
    changes_per_batch_max: int = Field(
        default=250_000, ge=1, description="Changes read per batch; bounds a batch's memory"
    )
    trigger_interval_ms: int = Field(
        default=0, ge=0, description="Pause between the starts of batches; 0 for none"
    )
    release_rows_max: int = Field(
        default=500_000, ge=1, description="Changes per release, about; bounds one task's sort"
    )
    until: Literal["", "caught-up"] = Field(
        default="", description="caught-up: stop when the watermark has passed the run's begin"
    )
    master: str = Field(default="local[*]", description="Spark master, for a session of our own")
    jars: str = Field(default="", description="Jars for a session of our own, by comma")
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    metrics_port: int = Field(default=0, ge=0, le=65_535, description="0 for no metrics")

    @field_validator("prefix")
    @classmethod
    def _check_prefix(cls, prefix: str) -> str:
        try:
            TopicNames(prefix)
        except ConfigError as error:
            raise ValueError(str(error)) from error
        return prefix

    @field_validator("registry_url")
    @classmethod
    def _check_url(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            message = "must be a URL such as http://127.0.0.1:8081/apis/ccompat/v7"
            raise ValueError(message)
        return url


def load_config(file: Path | None, flags: Mapping[str, Any]) -> ConsumerConfig:
    """Return the settings of a file, the environment and the flags that were given.

    Raises ConfigError that names every setting that is missing, wrong or unknown.
    """
    from_file = {} if file is None else _read(file)
    known = ConsumerConfig.model_fields
    unknown = [
        name
        for name in os.environ
        if name.upper().startswith(ENVIRONMENT_PREFIX)
        and name.upper().removeprefix(ENVIRONMENT_PREFIX).lower() not in known
    ]
    in_environment = {
        name for name in known if f"{ENVIRONMENT_PREFIX}{name}".upper() in _upper_environment()
    }
    given = {name: value for name, value in flags.items() if value is not None}
    below_environment = {n: v for n, v in from_file.items() if n not in in_environment}
    faults = [f"{name}: no such setting" for name in unknown]
    try:
        config = ConsumerConfig(**{**below_environment, **given})
    except ValidationError as error:
        faults += [_sentence(fault) for fault in error.errors()]
        cause: Exception | None = error
    else:
        if not faults:
            return config
        cause = None
    hint = "Set them by flag, TIDEGATE_CONSUMER_<NAME> or in the file; `--help` lists all"
    raise ConfigError("; ".join(faults), hint=hint) from cause


def _upper_environment() -> frozenset[str]:
    return frozenset(name.upper() for name in os.environ)


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        message = f"the settings file {str(file)!r} cannot be read: {error}"
        raise ConfigError(message) from error


def _sentence(fault: Mapping[str, Any]) -> str:
    name = ".".join(str(part) for part in fault["loc"])
    match fault["type"]:
        case "missing":
            return f"{name}: missing"
        case "extra_forbidden":
            return f"{name}: no such setting"
        case _:
            return f"{name}: {str(fault['msg']).removeprefix('Value error, ')}"
