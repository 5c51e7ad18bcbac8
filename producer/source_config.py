"""The settings of a stream's source: Spanner, or the files of a Datastream stream.

[source]
kind = "datastream"
location = "gs://bucket/path"
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    field_validator,
    model_validator,
)

from tidegate.program.settings_stream import StreamSettings
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.instants import NS_PER_US, parse_rfc3339_ns

_NAMES = {"project": "datastream", "instance": "datastream", "database": "datastream"}
NOT_OF_FILES = {**_NAMES, "change_stream": "files"}
"""Settings of Spanner, with the equivalent setting for a source of files."""

_ID = re.compile(r"[a-z][a-z0-9-]*[a-z0-9]")
_PROJECT = re.compile(r"[a-z0-9.:-]*[a-z0-9]")
_STREAM = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,117}")
_PLAINTEXT = "http://"
_ADDRESS = re.compile(r"(?:http://)?[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?:[0-9]{1,5}")
_REPLICA = re.compile(r"[a-z][a-z0-9-]{0,62}(?::(?:READ_ONLY|READ_WRITE))?")
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
    """The changes of a table after which the rows of a backfill were read."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    since: str
    """A time before the backfill was started: rows that were read earlier belong to another one."""
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
    """How long after its end a minute's folder gets files; copies are recognised within it."""
    lateness_seconds: int = Field(default=600, ge=0, le=86_400)
    """How far the watermark stays behind the read files."""
    late_hours: int = Field(default=24, ge=0, le=8_760)
    """The greatest age of a folder that gets files later than `open_minutes`."""
    uuids_max: int = Field(default=1_000_000, ge=1_000, le=100_000_000)
    """Number of uuids kept per object to recognise copies."""
    keys: dict[str, list[str]] = Field(default_factory=dict)
    """The key columns of tables whose events name none."""
    backfills: dict[str, BackfillPlace] = Field(default_factory=dict)
    """By table, the backfill whose rows replace the results of earlier changes."""
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
                raise ValueError(
                    f"{text!r} must be a later GTID than the entry of {server} before it"
                )
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
        source = FilesSource.model_validate(dict(value))
    except ValidationError as error:
        raise ValueError("; ".join(_faults(error))) from error
    if source.lateness_seconds > 60 * source.open_minutes:
        raise ValueError(
            f"lateness_seconds {source.lateness_seconds} is more than open_minutes "
            f"{source.open_minutes}: events are put in order among the files of open minutes"
        )
    return source


def names_of_spanner(values: Mapping[str, object]) -> list[str]:
    """Return a line for each given setting that names something of Spanner, for files."""
    return [
        f'{name}: names something of Spanner, and source.kind is "datastream": leave it out'
        for name in NOT_OF_FILES
        if values.get(name, NOT_OF_FILES[name]) != NOT_OF_FILES[name]
    ]


def unfit_for_files(values: Mapping[str, object]) -> list[str]:
    """Return a line for each parsed setting whose value does not go with files."""
    return [
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
                # Names within the table have one part; those of a backfill follow its table's.
                known = FilesSource if len(entry["loc"]) == 1 else BackfillPlace
                lines.append(f"{name} is not known: {', '.join(known.model_fields)}")
            case _:
                lines.append(f"{name}: {entry['msg']}")
    return lines


def listed(text: str, *, separator: str = ",") -> tuple[str, ...]:
    """Return the entries of a setting that is a list."""
    return tuple(part.strip() for part in text.split(separator) if part.strip())


class SourceSettings(StreamSettings):
    """The source of a stream, and the settings for reading it."""

    list_separators: ClassVar[Mapping[str, str]] = {
        **StreamSettings.list_separators,
        "directed_reads": ",",
    }
    needs_source: ClassVar[bool] = True
    """Whether the settings must name a change stream, or files."""

    source: dict[str, JsonValue] = Field(
        default={}, description=(
            'What is read, if it is not Spanner: a table with `kind` and, for "datastream", '
            "`location`, `poll_seconds`, `open_minutes`, `lateness_seconds`, `late_hours`, "
            "`uuids_max`, `keys`, `backfills` and `servers`"
        ),
    )  # fmt: skip
    project: str = Field(description="Google Cloud project")
    instance: str = Field(description="Spanner instance")
    database: str = Field(description="Spanner database")
    change_stream: str = Field(description="Name as in CREATE CHANGE STREAM")
    database_role: str = Field(
        default="", description="Role for fine-grained access control; empty: none"
    )
    spanner_emulator_host: str = Field(
        default="",
        description="host:port of an emulator, in plaintext; else SPANNER_EMULATOR_HOST, if set",
    )
    spanner_endpoint: str = Field(
        default="spanner.googleapis.com:443",
        description=(
            "host:port of Spanner's API: a regional endpoint, or one in your own network; with "
            "http:// in front it is reached in plaintext and without credentials"
        ),
    )
    spanner_ca_file: Path | None = Field(
        default=None,
        description=(
            "PEM file with the authority of a Spanner Omni deployment; without one, those that "
            "the host trusts"
        ),
    )
    spanner_client_cert: Path | None = Field(
        default=None, description="PEM file with the certificate of a user of Spanner Omni"
    )
    spanner_client_key: Path | None = Field(
        default=None, description="PEM file with the private key of that certificate"
    )
    credentials_file: Path | None = Field(
        default=None,
        description=(
            "JSON file with the credentials for Spanner; without one, the host's default "
            "credentials"
        ),
    )
    query_transport: Literal["h2", "grpc"] = Field(
        default="h2",
        description=(
            "Client of the streaming queries: Tidegate's own over HTTP/2, or gRPC's, which holds "
            "more memory; see docs/spanner.md"
        ),
    )
    rpc_priority: Literal["", "low", "medium", "high"] = Field(
        default="",
        description="Priority of the queries in Spanner; empty: Spanner's default, which is high",
    )
    request_tag: str = Field(
        default="",
        max_length=50,
        description="Tag of the queries, for Spanner's query statistics; empty: none",
    )
    directed_reads: str = Field(
        default="",
        description=(
            "Replicas that queries are sent to, the preferred first, comma-separated: a location "
            "such as us-east4, or with a type us-east4:READ_ONLY; empty: Spanner chooses"
        ),
    )

    @model_validator(mode="before")
    @classmethod
    def _check_source(cls, values: Any) -> Any:
        source = values.get("source") if isinstance(values, dict) else None
        if not isinstance(source, dict) or source.get("kind") != "datastream":
            return values
        if faults := names_of_spanner(values):
            raise ValueError("; ".join(faults))
        return {**NOT_OF_FILES, **values}

    @field_validator("source")
    @classmethod
    def _check_files(cls, value: dict[str, JsonValue]) -> dict[str, JsonValue]:
        files_source(value)
        return value

    @field_validator("project", "instance", "database", "change_stream")
    @classmethod
    def _check_name(cls, value: str, info: Any) -> str:
        patterns = {"change_stream": _STREAM, "project": _PROJECT}
        if not value and not cls.needs_source:
            return value
        # Database ids may hold underscores; instance ids may not.
        pattern = patterns.get(info.field_name, _ID)
        text = value.replace("_", "-") if info.field_name == "database" else value
        if not pattern.fullmatch(text):
            raise ValueError(f"{value!r} is not a valid name")
        return value

    @field_validator("spanner_endpoint")
    @classmethod
    def _check_endpoint(cls, value: str) -> str:
        if not _ADDRESS.fullmatch(value):
            raise ValueError(f"{value!r} is not a host and a port such as spanner.example:443")
        return value

    @field_validator("request_tag")
    @classmethod
    def _check_tag(cls, value: str) -> str:
        if not value.isprintable():
            raise ValueError("must be printable text")
        return value

    @field_validator("directed_reads")
    @classmethod
    def _check_replicas(cls, value: str) -> str:
        for replica in listed(value):
            if not _REPLICA.fullmatch(replica):
                raise ValueError(f"{replica!r} is not a location, or location:READ_ONLY")
        return value

    @model_validator(mode="after")
    def _check_tls(self) -> Self:
        has_certificate = self.spanner_client_cert is not None
        if has_certificate != (self.spanner_client_key is not None):
            raise ValueError("spanner_client_cert: it and spanner_client_key need each other")
        if (has_certificate or self.spanner_ca_file) and self.spanner_endpoint.startswith(
            _PLAINTEXT
        ):
            raise ValueError(
                "spanner_endpoint: http:// is plaintext: leave it out, or the files of TLS"
            )
        return self

    @model_validator(mode="after")
    def _check_values(self) -> Self:
        # Of parsed values: a variable holds a text such as "false".
        if self.files is not None and (faults := unfit_for_files(self.__dict__)):
            raise ValueError("; ".join(faults))
        return self

    @property
    def names_source(self) -> bool:
        """Whether the source of the stream is known."""
        names = (self.project, self.instance, self.database, self.change_stream)
        return self.files is not None or all(names)

    @property
    def files(self) -> FilesSource | None:
        """The files to read; None for Spanner."""
        return files_source(self.source)

    @property
    def database_path(self) -> str:
        """The database's full name."""
        return f"projects/{self.project}/instances/{self.instance}/databases/{self.database}"

    @property
    def stream_path(self) -> str:
        """The change stream's full name, as in `StreamStarted`; for files, their location."""
        if self.files is not None:
            return f"datastream/{self.files.location.rstrip('/')}"
        return f"{self.database_path}/changeStreams/{self.change_stream}"

    @property
    def plaintext_host(self) -> str:
        """The `host:port` that is reached in plaintext; empty for the service.

        An emulator or simulator, or Spanner Omni in plaintext.
        """
        emulator = self.spanner_emulator_host or os.environ.get("SPANNER_EMULATOR_HOST", "")
        plain = self.spanner_endpoint.removeprefix(_PLAINTEXT)
        return emulator or (plain if plain != self.spanner_endpoint else "")

    @property
    def replicas(self) -> tuple[tuple[str, str], ...]:
        """The setting `directed_reads`, as (location, type or "")."""
        parts = [replica.partition(":") for replica in listed(self.directed_reads)]
        return tuple((location, kind) for location, _, kind in parts)
