"""Settings of the console: flags, then the environment (`TIDEGATE_CONSOLE_…`)."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from typing import ClassVar, Self

from pydantic import Field, SecretStr, model_validator
from pydantic_settings import SettingsConfigDict

from tidegate.program.settings import Settings


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host, by its name or address."""
    try:
        return host == "localhost" or ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class ConsoleConfig(Settings):
    """The address of the pages, and what they show in addition to the progress topic."""

    model_config = SettingsConfigDict(env_prefix="TIDEGATE_CONSOLE_")
    help_command: ClassVar[str] = "tidegate-producer console --help"
    list_separators: ClassVar[Mapping[str, str]] = {"worker_metrics": ","}
    panels: ClassVar[Mapping[str, str]] = {
        "Console": "host port output audit worker_metrics consumer_metrics refresh_s row_values"
    }

    host: str = Field(
        default="127.0.0.1",
        min_length=1,
        description="Address that the pages are served on; any but a loopback address needs a "
        "token",
    )
    port: int = Field(
        default=8600, ge=0, le=65_535, description="Port that they are served on; 0: a free one"
    )
    token: SecretStr = Field(
        default=SecretStr(""),
        description="What a browser signs in with; empty: no sign-in. Never printed",
    )
    output: str = Field(
        default="",
        description="Output of the consumer, whose releases are shown: a folder, "
        "gs://BUCKET/PATH or s3://BUCKET/PATH; empty: no releases",
    )
    audit: str = Field(
        default="",
        description="File that `tidegate-consumer audit --json` has written, whose result is shown",
    )
    worker_metrics: str = Field(
        default="",
        description="Where workers serve their metrics, as host:port, comma-separated: what they "
        "retry, what is queued, and when changes expire",
    )
    consumer_metrics: str = Field(
        default="",
        description="Where the consumer serves its metrics, as host:port: the time of each sink, "
        "and from commit to release",
    )
    refresh_s: float = Field(
        default=2.0, ge=0.5, le=60, description="Seconds between two looks at Kafka"
    )
    row_values: bool = Field(
        default=True, description="Whether a change that is looked up is shown with its values"
    )

    @model_validator(mode="after")
    def _check_token(self) -> Self:
        if not is_loopback(self.host) and not self.token.get_secret_value():
            raise ValueError(
                f"host: {self.host} can be reached from other machines: set the variable "
                "TIDEGATE_CONSOLE_TOKEN, or serve on 127.0.0.1"
            )
        return self
