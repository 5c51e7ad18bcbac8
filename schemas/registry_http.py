"""A registry over HTTP, by Confluent's own client: Confluent's, Apicurio's, Karapace."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from tidegate.schemas.errors import ConfigError, SchemaError, TidegateError, UnreachableError

__all__ = ["HttpSchemaRegistry"]

_CONFLICT = 409
_REFUSED = (401, 403)
_SERVER_ERRORS = 500


class HttpSchemaRegistry:
    """A registry behind a URL; look-ups are cached, because an id never changes its meaning.

    `options` are passed to Confluent's client (`basic.auth.user.info`, TLS files, …); they are
    never printed, as they may hold secrets.
    """

    def __init__(self, url: str, *, options: dict[str, Any] | None = None) -> None:
        """Prepare a client; nothing is sent yet."""
        self._url = url
        self._client = SchemaRegistryClient({"url": url, **(options or {})})
        self.schema = lru_cache(maxsize=None)(self._fetch)

    def require_reachable(self) -> None:
        """Raise UnreachableError unless the registry answers."""
        try:
            self._client.get_subjects()
        except Exception as error:
            raise self._translate(error) from error

    def register(self, subject: str, schema: dict[str, Any]) -> int:
        """Return the id of a schema under a subject, registering it if it is new."""
        registered = Schema(json.dumps(schema), "AVRO")
        try:
            return int(self._client.register_schema(subject, registered))
        except Exception as error:  # the client lets its HTTP library's errors through
            found = self._registered_meanwhile(subject, registered, error)
            if found is None:
                raise self._translate(error, subject=subject) from error
            return found

    def require_compatibility(self, subject: str, level: str) -> None:
        """Set the subject's compatibility level."""
        try:
            self._client.set_compatibility(subject_name=subject, level=level)
        except Exception as error:
            raise self._translate(error, subject=subject) from error

    def _registered_meanwhile(self, subject: str, schema: Schema, error: Exception) -> int | None:
        """Return the id of a schema that was refused because another worker was quicker.

        Apicurio answers 409 to the slower of two that register the same schema at once, as it does
        to a schema that is not compatible; only looking it up tells the two apart.
        """
        if not isinstance(error, SchemaRegistryError) or error.http_status_code != _CONFLICT:
            return None
        try:
            return self._client.lookup_schema(subject, schema).schema_id
        except SchemaRegistryError:
            return None

    def _fetch(self, schema_id: int) -> dict[str, Any]:
        try:
            schema: dict[str, Any] = json.loads(self._client.get_schema(schema_id).schema_str or "")
        except Exception as error:
            raise self._translate(error, schema_id=schema_id) from error
        return schema

    def _translate(self, error: Exception, **fields: Any) -> TidegateError:
        if isinstance(error, SchemaRegistryError) and error.http_status_code in _REFUSED:
            message = "registry_user_info: the registry refuses these credentials"
            hint = "Set user:password as the registry knows them, and what they may do"
            return ConfigError(message, hint=hint, url=self._url)
        if isinstance(error, SchemaRegistryError) and error.http_status_code < _SERVER_ERRORS:
            if error.http_status_code == _CONFLICT:
                message = "the registry refuses a schema as incompatible with earlier versions"
            else:
                message = f"the registry refuses a request: {error.error_message}"
            return SchemaError(message, **fields)
        message = "the schema registry does not answer"
        hint = "Check the registry's address, and that it speaks Confluent's API"
        return UnreachableError(
            message, hint=hint, url=self._url, cause=type(error).__name__, **fields
        )
