"""Settings of the local stack: `TIDEGATE_LOCAL_…` in the environment, flags before them.

Unknown variables with the prefix are errors, and all faults are reported at once.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from tidegate.schemas.errors import ConfigError

__all__ = ["LocalStackConfig", "load_config"]

PREFIX = "TIDEGATE_LOCAL_"


class LocalStackConfig(BaseSettings):
    """Folders and ports; 0 is a free port."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="forbid")

    data_dir: Path = Field(
        default=Path(".tidegate"), description="Where the parts keep data and logs."
    )
    kafka_port: int = Field(default=0, ge=0, le=65535, description="The broker's port.")
    registry_port: int = Field(default=0, ge=0, le=65535, description="The registry's port.")
    spanner_port: int = Field(default=0, ge=0, le=65535, description="The simulator's gRPC port.")
    control_port: int = Field(
        default=0, ge=0, le=65535, description="The simulator's control port."
    )
    seed: int = Field(default=0, ge=0, description="Everything the simulator does by chance.")
    stream_partitions: int = Field(
        default=4,
        ge=1,
        le=1000,
        description="Stream partitions that a new change stream starts with.",
    )
    equal_timestamps: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="How likely two transactions on disjoint rows share a commit timestamp.",
    )


def load_config(**flags: Any) -> LocalStackConfig:
    """Flags that are None count as not given.  Raises `ConfigError` that names every fault."""
    faults = [
        f"{name}: unknown setting"
        for name in sorted(os.environ)
        if name.upper().startswith(PREFIX)
        and name.upper().removeprefix(PREFIX).lower() not in LocalStackConfig.model_fields
    ]
    try:
        config = LocalStackConfig(
            **{key: value for key, value in flags.items() if value is not None}
        )
    except ValidationError as error:
        faults += [
            f"{'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}"
            for fault in error.errors(include_url=False, include_input=False)
        ]
        raise _config_error(faults) from None
    if faults:
        raise _config_error(faults)
    return config


def _config_error(faults: list[str]) -> ConfigError:
    return ConfigError("; ".join(faults), hint="See: tidegate-local up --help")
