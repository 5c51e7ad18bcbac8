"""The settings of `tidegate-producer discover`: those of the producer that name a database.

All others may be in the file and in the environment, which all commands share, and are not needed.
"""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field, field_validator

from tidegate.producer.config import ProducerConfig

DISCOVER_FLAGS = (
    "project",
    "instance",
    "database",
    "change_stream",
    "database_role",
    "spanner_emulator_host",
    "spanner_endpoint",
    "spanner_ca_file",
    "spanner_client_cert",
    "spanner_client_key",
    "credentials_file",
    "log_level",
    "log_format",
)
"""The settings that are flags of the command."""


class DiscoverConfig(ProducerConfig):
    """What is needed to look at a database; make one with `load`."""

    help_command: ClassVar[str] = "tidegate-producer discover --help"

    bootstrap_servers: str = Field(default="", description="Not used")
    registry_url: str = Field(default="", description="Not used")
    prefix: str = Field(default="discover", description="Not used")
    change_stream: str = Field(
        default="", description="Change stream to look at; empty: all of the database"
    )

    @field_validator("project", "instance", "database", "change_stream", "worker")
    @classmethod
    def _check_name(cls, value: str, info: Any) -> str:
        if info.field_name in {"change_stream", "worker"} and not value:
            return value
        return super()._check_name(value, info)
