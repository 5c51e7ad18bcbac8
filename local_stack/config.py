"""Settings of the local stack: flags, then `TIDEGATE_LOCAL_…` in the environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from tidegate.program.settings import Settings


class LocalStackConfig(Settings):
    """Folder, ports (0: that of the last start, or a free one) and the simulator's behaviour."""

    model_config = SettingsConfigDict(env_prefix="TIDEGATE_LOCAL_")
    help_command: ClassVar[str] = "tidegate-local up --help"

    data_dir: Path = Field(default=Path(".tidegate"), description="Folder of data, output and logs")
    kafka_port: int = Field(
        default=0,
        ge=0,
        le=65535,
        description="The broker's port; 0: the last start's, or a free one",
    )
    registry_port: int = Field(
        default=0,
        ge=0,
        le=65535,
        description="The registry's port; 0: the last start's, or a free one",
    )
    spanner_port: int = Field(
        default=0,
        ge=0,
        le=65535,
        description="The simulator's gRPC port; 0: the last start's, or a free one",
    )
    control_port: int = Field(
        default=0,
        ge=0,
        le=65535,
        description="The simulator's control port; 0: the last start's, or a free one",
    )
    console_port: int = Field(
        default=0,
        ge=0,
        le=65535,
        description="The console's port; 0: the last start's, or a free one",
    )
    seed: int = Field(default=0, ge=0, description="Seed of the simulator and of the sample bank")
    stream_partitions: int = Field(
        default=4,
        ge=1,
        le=1000,
        description="Stream partitions that a new change stream starts with",
    )
    equal_timestamps: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="Probability that transactions on disjoint rows share a commit timestamp",
    )


def load_config(**flags: Any) -> LocalStackConfig:
    """Read environment and flags (no file); raises ConfigError with every fault."""
    return LocalStackConfig.load(**flags)
