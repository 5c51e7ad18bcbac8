"""The table `[source]` of the settings: what a stream is read from, if it is not Spanner.

[source]
kind = "datastream"
location = "gs://bucket/path"
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from tidegate.schemas.errors import SchemaError
from tidegate.schemas.instants import NS_PER_US, parse_rfc3339_ns

_NAMES = {"project": "datastream", "instance": "datastream", "database": "datastream"}
NOT_OF_FILES = {**_NAMES, "change_stream": "files"}
"""Settings of Spanner, and what stands in their place where files are read."""

_SERVER = re.compile(r"([0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12})(?::([0-9]{1,18}))?")
_DEFAULTS: dict[str, Any] = {
    "envelope": "tidegate",
    "tombstones": False,
    "backfill": "",
    "end": "",
}
_REASONS = {
    "envelope": "other envelopes do not have what orders these events",
    "tombstones": "a DELETE may be followed by an older change of its row",
    "backfill": "Datastream backfills objects itself",
    "end": "files do not show that all before a time has come",
}


class BackfillPlace(BaseModel):
    """After which changes of its table the rows of a backfill were read."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    since: str
    """A time before the backfill was started: rows that were read earlier are of another one."""
    log: str = Field(default="", coerce_numbers_to_str=True)
    """The log that MySQL or Oracle began before that; the other sources order changes by time."""

    @field_validator("since")
    @classmethod
    def _is_a_time(cls, value: str) -> str:
        try:
            parse_rfc3339_ns(value)
        except SchemaError:
            raise ValueError("must be a time such as 2030-01-31T12:00:00Z") from None
        return value

    @property
    def since_us(self) -> int:
        """`since` in microseconds."""
        return parse_rfc3339_ns(self.since) // NS_PER_US


class FilesSource(BaseModel):
    """Files that Google Datastream writes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["datastream"]
    location: str = Field(min_length=1)
    """A local folder, gs://BUCKET/PATH or s3://BUCKET/PATH: the path of one Datastream stream."""
    poll_seconds: int = Field(default=10, ge=1, le=3_600)
    """How often the files of each object are listed; new objects six times less often."""
    open_minutes: int = Field(default=10, ge=1, le=1_440)
    """For how long after its end a minute's folder gets files; copies are recognised within it."""
    lateness_seconds: int = Field(default=600, ge=0, le=86_400)
    """How far the watermark stays behind the files that were read."""
    late_hours: int = Field(default=24, ge=0, le=8_760)
    """How old the folder of a file may be that comes later than `open_minutes`."""
    uuids_max: int = Field(default=1_000_000, ge=1_000, le=100_000_000)
    """Uuids of an object that are kept to recognise copies."""
    keys: dict[str, list[str]] = Field(default_factory=dict)
    """By table: the columns of its key, if its events name none."""
    backfills: dict[str, BackfillPlace] = Field(default_factory=dict)
    """By table: the backfill whose rows replace what the changes before it have left."""
    servers: list[str] = Field(default_factory=list, max_length=16)
    """MySQL with GTIDs: the UUIDs of its servers, in the order in which they took over."""

    @field_validator("keys")
    @classmethod
    def _are_columns(cls, value: dict[str, list[str]]) -> dict[str, list[str]]:
        for table, columns in value.items():
            if not columns or len(set(columns)) != len(columns):
                raise ValueError(f"{table} must have columns, each of them once")
        return value

    @field_validator("servers")
    @classmethod
    def _are_servers(cls, value: list[str]) -> list[str]:
        met: dict[str, int] = {}
        for text in value:
            match = _SERVER.fullmatch(text)
            if match is None:
                raise ValueError(f"{text!r} must be the UUID of a server, or a GTID of it")
            server, first = match[1].lower(), int(match[2] or 0)
            if first <= met.get(server, -1):
                raise ValueError(f"{text!r} must be a later GTID than where {server} is before it")
            met[server] = first
        return [text.lower() for text in value]


def files_source(value: Mapping[str, object]) -> FilesSource | None:
    """Return the table as settings; None for Spanner.  Raises ValueError with every fault."""
    if not value:
        return None
    kind = value.get("kind")
    if kind == "spanner":
        if len(value) > 1:
            raise ValueError('kind "spanner" takes no other name: leave the table out')
        return None
    if kind != "datastream":
        raise ValueError('kind must be "spanner" or "datastream"')
    try:
        found = FilesSource.model_validate(dict(value))
    except ValidationError as error:
        raise ValueError("; ".join(_faults(error))) from error
    if found.lateness_seconds > 60 * found.open_minutes:
        raise ValueError(
            f"lateness_seconds {found.lateness_seconds} is more than open_minutes "
            f"{found.open_minutes}: events are put in order among the files of open minutes"
        )
    return found


def unfit_for_files(values: Mapping[str, object]) -> list[str]:
    """Return a line for each setting that does not go with files, of those that are given."""
    found = [
        f'{name}: names something of Spanner, and source.kind is "datastream": leave it out'
        for name in NOT_OF_FILES
        if values.get(name, NOT_OF_FILES[name]) != NOT_OF_FILES[name]
    ]
    return found + [
        f'{name}: cannot be {values[name]!r} with source.kind "datastream": {_REASONS[name]}'
        for name, default in _DEFAULTS.items()
        if values.get(name, default) != default
    ]


def _faults(error: ValidationError) -> list[str]:
    lines = []
    for entry in error.errors(include_input=False):
        name = ".".join(str(part) for part in entry["loc"])
        match entry["type"]:
            case "missing":
                lines.append(f"{name} is not set")
            case "extra_forbidden":
                lines.append(f"{name} is not known: {', '.join(FilesSource.model_fields)}")
            case _:
                lines.append(f"{name}: {entry['msg']}")
    return lines
