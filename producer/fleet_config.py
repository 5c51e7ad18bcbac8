"""Settings of commands that need Kafka and the registry, and not the source of a stream."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from tidegate.producer.config import ProducerConfig


def _may_be_missing(name: str) -> Any:
    return Field(default="", description=ProducerConfig.model_fields[name].description)


class FleetConfig(ProducerConfig):
    """Settings of a command that reads what a fleet has published: Kafka's and the registry's.

    Where they name what the stream is read from too, that is compared with the recorded stream.
    """

    needs_source: ClassVar[bool] = False

    project: str = _may_be_missing("project")
    instance: str = _may_be_missing("instance")
    database: str = _may_be_missing("database")
    change_stream: str = _may_be_missing("change_stream")
