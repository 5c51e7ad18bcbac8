"""The settings that producer and consumer share, with their checks.

Options of the Kafka client have librdkafka's names; the consumer takes Java's too.  A program
rejects the options that its guarantees depend on: `owned_kafka_options`.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any, ClassVar, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    Field,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from tidegate.program.logs import LogFormat, LogLevel
from tidegate.program.settings import Settings
from tidegate.program.tokens import (
    NO_LOGIN,
    kafka_tokens,
    registry_tokens,
    require_login,
)
from tidegate.schemas.errors import ConfigError
from tidegate.schemas.topics import TEMPLATE_DEFAULT, TopicNames

_INSTEAD = {"url": "registry_url", "basic.auth.user.info": "registry_user_info"}
"""Options of the registry's client that have their own setting."""

_LOGINS = ("sasl.mechanism*", "sasl.username", "sasl.password", "sasl.oauthbearer.*", "oauth_cb")
"""Options of librdkafka for a login other than `kafka_login`."""
_WITH_SASL = ("SASL_SSL", "SASL_PLAINTEXT")
_BEARER = "bearer.auth."
_BEARER_FIELDS = frozenset({f"{_BEARER}logical.cluster", f"{_BEARER}identity.pool.id"})
"""Options for a registry that needs more than a token."""

KAFKA_PANEL = "bootstrap_servers kafka_login registry_url registry_login prefix topic_template"
LOG_PANEL = "log_level log_format openlineage metrics_host metrics_port"


def _usable_prefix(value: str) -> str:
    try:
        TopicNames(value)
    except ConfigError as error:
        raise ValueError(str(error)) from error
    return value


def _plain_url(value: str) -> str:
    try:
        parts = urlsplit(value)
        # `port` raises ValueError for a number out of range.
        is_whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_whole = False
    if not is_whole:
        raise ValueError("must be a URL such as http://127.0.0.1:8081/apis/ccompat/v7")
    if parts.username is not None:
        # URLs are printed in logs and errors.
        raise ValueError("must not hold a user: set registry_user_info instead")
    return value


class StreamSettings(Settings):
    """Addresses and credentials of Kafka and the registry, and the prefix of the stream."""

    owned_kafka_options: ClassVar[frozenset[str]]
    """Options of the Kafka client that the program sets itself; `*` matches any text."""
    list_separators: ClassVar[Mapping[str, str]] = {"bootstrap_servers": ","}
    panels: ClassVar[Mapping[str, str]] = {
        "Kafka": KAFKA_PANEL,
        "Logs and metrics": LOG_PANEL,
    }

    bootstrap_servers: str = Field(min_length=1, description="Kafka's host:port, comma-separated")
    registry_url: Annotated[str, AfterValidator(_plain_url)] = Field(
        description="URL of a schema registry that speaks Confluent's API"
    )
    registry_user_info: SecretStr = Field(
        default=SecretStr(""),
        description="user:password for the registry, if it requires a login; never printed",
    )
    registry_options: dict[str, SecretStr] = Field(
        default={},
        description="Further options of the registry's client (TLS files, a bearer token), by "
        "confluent-kafka's names; values are never printed",
    )
    registry_login: str = Field(
        default=NO_LOGIN,
        description="Whose tokens the registry is called with: google, those of Google's default "
        "credentials; <module>:<function>, those of a function in Python, which returns a token "
        "and its time of expiry; none: what registry_user_info and registry_options say",
    )
    prefix: Annotated[str, AfterValidator(_usable_prefix)] = Field(
        description="First part of every topic's name; one stream per prefix"
    )
    topic_template: str = Field(
        default=TEMPLATE_DEFAULT,
        description="Names of the data topics: {prefix} first, then '.', '-' or '_'; {table} once, "
        "which is schema.table in a named schema; letters, digits, '.', '_' and '-'. The producer "
        "also takes {database}, for which the consumer needs the database's id. Fixed when the "
        "stream begins, and the same for producer and consumer",
    )
    kafka_login: str = Field(
        default=NO_LOGIN,
        description="Whose tokens Kafka is called with, by SASL/OAUTHBEARER: google, those of "
        "Google's default credentials; aws, those of AWS's; <module>:<function>, those of a "
        "function in Python, which returns a token and its time of expiry; none: what "
        "kafka_options say",
    )
    kafka_options: dict[str, SecretStr] = Field(
        default={},
        description="Further options of the Kafka client (TLS, SASL), by librdkafka's names, "
        "of the consumer also by Java's; values are never printed",
    )
    log_level: LogLevel = Field(
        default="info", description="Least severe log lines that are written"
    )
    log_format: LogFormat = Field(
        default="",
        description="Form of log lines: console for people, json, or gcp as Cloud Logging reads "
        "them; empty: console on a terminal, else json",
    )
    openlineage: bool = Field(
        default=False,
        description="Send OpenLineage events of each run, as openlineage-python is configured; "
        "needs the extra lineage",
    )
    metrics_host: str = Field(
        default="127.0.0.1",
        min_length=1,
        description="Address that /metrics, /healthz and /readyz are served on; "
        "0.0.0.0: every interface",
    )
    metrics_port: int = Field(
        default=0, ge=0, le=65_535, description="Port that they are served on; 0: not served"
    )

    @field_validator("kafka_options", "registry_options", mode="before")
    @classmethod
    def _flatten(cls, value: object) -> object:
        """Accept `sasl.password = …` without quotes, which TOML reads as a table, and numbers."""
        return dict(flat_options(value)) if isinstance(value, Mapping) else value

    @field_validator("kafka_options")
    @classmethod
    def _refuse_owned(cls, value: dict[str, SecretStr]) -> dict[str, SecretStr]:
        patterns = cls.owned_kafka_options
        owned = sorted(n for n in value if any(fnmatchcase(n, pattern) for pattern in patterns))
        if owned:
            raise ValueError(f"{', '.join(owned)}: the guarantees rest on these; leave them out")
        return value

    @field_validator("registry_options")
    @classmethod
    def _refuse_settings(cls, value: dict[str, SecretStr]) -> dict[str, SecretStr]:
        instead = [f"{name}: set {_INSTEAD[name]}" for name in sorted(value) if name in _INSTEAD]
        if instead:
            raise ValueError("; ".join(instead))
        return value

    @field_validator("kafka_login", "registry_login")
    @classmethod
    def _require_login(cls, value: str, info: ValidationInfo) -> str:
        return require_login(value, registry=info.field_name == "registry_login")

    @model_validator(mode="after")
    def _check_logins(self) -> Self:
        if self.kafka_login != NO_LOGIN:
            login_options = [
                n for n in self.kafka_options if any(fnmatchcase(n, login) for login in _LOGINS)
            ]
            if login_options:
                names = ", ".join(sorted(login_options))
                raise ValueError(f"kafka_login: {names} in kafka_options is another login")
            protocol = self.kafka_options.get("security.protocol")
            if protocol and protocol.get_secret_value().upper() not in _WITH_SASL:
                text = "kafka_login: security.protocol in kafka_options has to be"
                raise ValueError(f"{text} {' or '.join(_WITH_SASL)}")
        if self.registry_login != NO_LOGIN:
            options = self.registry_options.keys() - _BEARER_FIELDS
            login_options = [name for name in options if name.startswith(_BEARER)]
            if self.registry_user_info.get_secret_value():
                login_options.append("registry_user_info")
            if login_options:
                raise ValueError(
                    f"registry_login: {', '.join(sorted(login_options))} is another login"
                )
        return self

    @model_validator(mode="after")
    def _check_topic_names(self) -> Self:
        try:
            _ = self.topic_names
        except ConfigError as error:
            raise ValueError(f"{error.message}. {error.hint}") from error
        return self

    @property
    def topic_names(self) -> TopicNames:
        """The names of the stream's topics."""
        return TopicNames(self.prefix, self.topic_template)

    def given_kafka_options(self) -> dict[str, str]:
        """The table `kafka_options` in plain text, for Kafka clients only."""
        return {name: value.get_secret_value() for name, value in self.kafka_options.items()}

    def librdkafka_options(self) -> dict[str, str]:
        """The part of `kafka_options` for librdkafka, in plain text."""
        return self.given_kafka_options()

    def kafka_client_options(self) -> dict[str, Any]:
        """All further options of librdkafka's clients, including the login."""
        options: dict[str, Any] = self.librdkafka_options()
        if self.kafka_login == NO_LOGIN:
            return options
        tokens = kafka_tokens(self.kafka_login, self.bootstrap_servers)
        login = {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": tokens}
        return {"security.protocol": "SASL_SSL", **options, **login}

    def registry_client_options(self) -> dict[str, Any]:
        """The further options of the registry client in plain text, for that client only."""
        options = {
            name: secret.get_secret_value() for name, secret in self.registry_options.items()
        }
        if self.registry_login != NO_LOGIN:
            fields = {name: options.pop(name) for name in _BEARER_FIELDS & options.keys()}
            return {
                **options,
                f"{_BEARER}credentials.source": "CUSTOM",
                f"{_BEARER}custom.provider.function": registry_tokens(self.registry_login),
                f"{_BEARER}custom.provider.config": fields,
            }
        user_info = self.registry_user_info.get_secret_value()
        return {**options, **({"basic.auth.user.info": user_info} if user_info else {})}


def flat_options(table: Mapping[str, Any], head: str = "") -> list[tuple[str, object]]:
    """Return options by their dotted names; numbers and truth values become text."""
    options: list[tuple[str, object]] = []
    for name, value in table.items():
        match value:
            case Mapping():
                options += flat_options(value, f"{head}{name}.")
            case bool():
                options.append((head + name, str(value).lower()))
            case int() | float():
                options.append((head + name, str(value)))
            case _:
                options.append((head + name, value))
    return options
