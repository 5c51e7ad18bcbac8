"""A schema registry over HTTP, by Confluent's own client: Confluent's, Apicurio's, Karapace."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TypeVar

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import OAuthTokenError, SchemaRegistryError

from tidegate.program.calls import RETRY_LATER, Rejections, RetryAfter, is_temporary
from tidegate.program.tokens import RegistryTokens
from tidegate.schemas.errors import (
    ConfigError,
    SchemaError,
    SchemaNotFound,
    TidegateError,
    UnreachableError,
)
from tidegate.schemas.registry import RegisteredSchema

REJECTED = frozenset({401, 403})
_FORBIDDEN = 403
_NO_ERROR_CODE = -1
"""Confluent's client sets it for an answer that is not the registry's JSON."""


class RegistryAccess:
    """Accepted and rejected calls of one client; thread-safe.

    A rejected call to a place that accepted calls before is tried again for some minutes; otherwise
    the settings are wrong.  Reads and writes are counted separately: a registry may allow all
    reads.  A 403 from the registry itself concerns a subject, any other rejection concerns all
    subjects.
    """

    def __init__(self) -> None:
        """Start without a call."""
        self._rejections: dict[tuple[str, bool], Rejections] = {}

    def accept(self, subject: str = "", *, writes: bool = False) -> None:
        """Record that a call was answered."""
        for place in {"", subject}:
            self._counter(place, writes).accept()

    def may_pass(
        self, error: SchemaRegistryError, subject: str = "", *, writes: bool = False
    ) -> bool:
        """Record a call that was rejected; return whether to try it again later."""
        is_own = error.http_status_code == _FORBIDDEN and not is_foreign(error)
        return not self._counter(subject if is_own else "", writes).reject()

    def _counter(self, subject: str, writes: bool) -> Rejections:  # noqa: FBT001 - a part of the key
        return self._rejections.setdefault((subject, writes), Rejections())


def is_foreign(error: SchemaRegistryError) -> bool:
    """Whether an answer has no error code of a registry: a proxy may have sent it."""
    return error.error_code in (None, _NO_ERROR_CODE)


_Answer = TypeVar("_Answer")

_ATTEMPTS_MAX = 10
_ANSWER_CHARACTERS_MAX = 300
_CONFLICT = 409
_NOT_FOUND = 404
_OVERTAKEN_PAUSE_S = 0.1
_REDIRECTS = 300
_FINAL_ERRORS = 500
"""The registry's final answers: statuses below this one, except those of `is_temporary`."""
_TIMEOUT_S = 10.0
_NUMBERS = frozenset({"max.retries", "retries.max.wait.ms", "retries.wait.ms", "timeout"})
_READ_ONLY = 42205
"""Confluent's error code for a registry or a subject in the mode READONLY."""


class HttpSchemaRegistry:
    """A registry at a URL; look-ups are cached, because an id never changes its meaning.

    `options` are passed to Confluent's client (`basic.auth.user.info`, TLS files, …); they are
    never printed, as they may hold secrets.
    """

    def __init__(self, url: str, *, options: dict[str, Any] | None = None) -> None:
        """Prepare a client; nothing is sent yet.

        Raises ConfigError for options that the client does not take.
        """
        options = options or {}
        self._url = url
        tokens = options.get("bearer.auth.custom.provider.function")
        self._tokens = tokens if isinstance(tokens, RegistryTokens) else None
        self._is_bearer = any(name.startswith("bearer.") for name in options)
        self._has_credentials = self._is_bearer or bool(options.get("basic.auth.user.info"))
        try:
            # By default the client waits for an answer without end.
            self._client = SchemaRegistryClient(
                {"url": url, "timeout": _TIMEOUT_S, **_typed(options)}
            )
        except (OSError, TypeError, ValueError) as error:
            raise _refused_options(error, options) from None
        self._access = RegistryAccess()
        pace = RetryAfter()
        # The client itself ignores Retry-After, and has no public way to its HTTP session.
        hooks = self._client._rest_client.session.event_hooks  # noqa: SLF001 - see above
        hooks["request"].append(pace.before_request)
        hooks["response"].append(pace.after_response)
        self._client._rest_client.session.event_hooks = hooks  # noqa: SLF001 - see above
        self.schema = lru_cache(maxsize=None)(self._fetch)

    def require_reachable(self) -> None:
        """Raise an error unless a registry answers at the URL.

        UnreachableError if nothing answers; ConfigError if it rejects the credentials, or if the
        answer is not a registry's API.
        """
        try:
            subjects = self._client.get_subjects()
            self._access.accept()
        except Exception as error:
            is_page = isinstance(error, ValueError)  # an answer that is not JSON
            status = error.http_status_code if isinstance(error, SchemaRegistryError) else 0
            is_final = _REDIRECTS <= status < _FINAL_ERRORS and not is_temporary(status)
            if is_page or (is_final and status not in REJECTED):
                raise self._not_a_registry() from error
            raise self._translate(error) from error
        if not isinstance(subjects, list):
            raise self._not_a_registry()

    def register(self, subject: str, schema: dict[str, Any]) -> int:
        """Return the id of a schema under a subject, registering it if it is new."""
        registered = Schema(json.dumps(schema), "AVRO")
        # The client does not repeat a registration that it remembers, though the subject may since
        # have been deleted, or re-created with another version of the same number.
        self._client.clear_caches()
        for _ in range(_ATTEMPTS_MAX):
            try:
                schema_id = int(self._client.register_schema(subject, registered))
            except Exception as error:  # the client passes on the errors of its HTTP library
                registered_id = self._registered_meanwhile(subject, registered, error)
                if registered_id is not None:
                    return registered_id
                if _is_forbidden(error):
                    raise self._not_allowed("register a version of", subject, error) from error
                if not self._was_overtaken(subject, registered, error):
                    raise self._translate(error, subject=subject) from error
                time.sleep(_OVERTAKEN_PAUSE_S)
            else:
                self._access.accept(subject, writes=True)
                return schema_id
        raise UnreachableError(
            "other versions of a subject are registered at the same moment, again and again",
            url=self._url,
            subject=subject,
        )

    def versions(self, subject: str) -> tuple[RegisteredSchema, ...]:
        """Return the subject's versions, the oldest first; a version is fetched once."""
        numbers = self._if_found(self._client.get_versions, subject)
        return tuple(self._version(subject, number) for number in sorted(numbers or ()))

    def compatibility(self, subject: str) -> str | None:
        """Return the subject's own compatibility level."""
        level = self._if_found(self._client.get_compatibility, subject)
        return None if level is None else str(level)

    def set_compatibility(self, subject: str, level: str) -> None:
        """Set the subject's compatibility level."""
        for _ in range(_ATTEMPTS_MAX):
            try:
                self._client.set_compatibility(subject_name=subject, level=level)
            except Exception as error:
                if _is_forbidden(error):
                    raise self._not_allowed("set the compatibility of", subject, error) from error
                if not _is_conflict(error):
                    raise self._translate(error, subject=subject) from error
                # Apicurio answers 409 to the slower of two workers that set a level at once.
                if self.compatibility(subject) == level:
                    return
                time.sleep(_OVERTAKEN_PAUSE_S)
            else:
                self._access.accept(subject, writes=True)
                return
        raise UnreachableError(
            "a subject's compatibility level is changed at the same moment, again and again",
            url=self._url,
            subject=subject,
        )

    def subject_names(self) -> list[str]:
        """Return the names of all subjects; raises ConfigError or UnreachableError."""
        try:
            subjects = sorted(self._client.get_subjects())
            self._access.accept()
        except Exception as error:
            raise self._translate(error) from error
        return subjects

    def delete(self, subject: str) -> None:
        """Delete all versions of a subject; their ids keep their meaning."""
        self._if_found(self._client.delete_subject, subject)

    def _version(self, subject: str, number: int) -> RegisteredSchema:
        try:
            # The client caches it: a version never changes while its subject exists.
            version = self._client.get_version(subject, number)
            self._access.accept(subject)
            schema = _parsed(version.schema.schema_str)
            # Another program's version may be of Protobuf: a version of a subject, but not of this
            # contract.
            return RegisteredSchema(int(version.schema_id or 0), {} if schema is None else schema)
        except Exception as error:
            raise self._translate(error, subject=subject, version=number) from error

    def _if_found(self, call: Callable[[str], _Answer], subject: str) -> _Answer | None:
        """Return the registry's answer about a subject; None if the subject is missing."""
        try:
            answer = call(subject)
            self._access.accept(subject)
        except Exception as error:
            if _is_missing(error):
                return None
            raise self._translate(error, subject=subject) from error
        return answer

    def _registered_meanwhile(self, subject: str, schema: Schema, error: Exception) -> int | None:
        """Return the id of a schema whose registration failed because another worker was quicker.

        Apicurio answers 409 to the slower of two that register the same schema at once, as it does
        to a schema that is not compatible; only looking it up distinguishes the two.
        """
        if not _is_conflict(error):
            return None
        try:
            return self._client.lookup_schema(subject, schema).schema_id
        except Exception as reason:
            if isinstance(reason, SchemaRegistryError) and not _may_pass(reason):
                return None
            raise self._translate(reason, subject=subject) from reason

    def _was_overtaken(self, subject: str, schema: Schema, error: Exception) -> bool:
        """Whether a schema was rejected though it is compatible with the present versions.

        Apicurio answers 409 also to the slower of two that register different versions at once, and
        for a moment may not find the one that it has just accepted.
        """
        if not _is_conflict(error):
            return False
        try:
            return self._client.test_compatibility(subject, schema)
        except Exception as reason:
            if isinstance(reason, SchemaRegistryError) and not _may_pass(reason):
                # There is no version that the schema could be incompatible with.
                return _is_missing(reason)
            raise self._translate(reason, subject=subject) from reason

    def _fetch(self, schema_id: int) -> dict[str, Any]:
        try:
            schema = _parsed(self._client.get_schema(schema_id).schema_str)
            self._access.accept()
        except Exception as error:
            if _is_missing(error):
                raise SchemaNotFound(
                    "the registry has no schema with this id", url=self._url, schema_id=schema_id
                ) from error
            raise self._translate(error, schema_id=schema_id) from error
        if schema is None:
            raise SchemaNotFound(
                "the registry's schema with this id is not one of Avro",
                url=self._url,
                schema_id=schema_id,
            )
        return schema

    def _not_allowed(self, what: str, subject: str, error: Exception) -> TidegateError:
        """Return the error for a change that the registry does not allow a user who may read."""
        passing = self._passing(error, subject, writes=True)
        if passing is not None:
            return passing
        message = f"registry_user_info: the registry does not let this user {what} {subject}"
        hint = "Allow it, or do it by hand before the start"
        return ConfigError(message, hint=hint, url=self._url, cause=_answer_text(error))

    def _passing(
        self, error: Exception, subject: str, *, writes: bool = False
    ) -> UnreachableError | None:
        """Return the error for a rejection that may pass; None for any other answer."""
        if not isinstance(error, SchemaRegistryError) or error.http_status_code not in REJECTED:
            return None
        provider = self._client._rest_client.bearer_field_provider  # noqa: SLF001 - as above
        # The next call gets another token.
        if hasattr(provider, "fetch_token"):
            provider.token = ""
        elif self._tokens is not None:
            self._tokens.drop()
        if not self._access.may_pass(error, subject, writes=writes):
            return None
        message = f"the schema registry rejects a call: HTTP status {error.http_status_code}"
        hint = "It is tried again for some minutes: look at the registry and what is before it"
        return UnreachableError(message, hint=hint, url=self._url, cause=_answer_text(error))

    def _not_a_registry(self) -> ConfigError:
        message = "registry_url: what answers there is not the API of a schema registry"
        hint = (
            "Check the URL's path: Confluent's registry and Karapace have none, "
            "Apicurio's API is at /apis/ccompat/v7"
        )
        return ConfigError(message, hint=hint, url=self._url)

    def _translate(self, error: Exception, **fields: Any) -> TidegateError:
        if isinstance(error, TidegateError):  # there is no token for the call
            return error
        passing = self._passing(error, str(fields.get("subject", "")))
        if passing is not None:
            return passing
        if isinstance(error, SchemaRegistryError) and error.http_status_code in REJECTED:
            setting = "registry_options" if self._is_bearer else "registry_user_info"
            setting = "registry_login" if self._tokens is not None else setting
            message = f"{setting}: the registry rejects these credentials"
            if not self._has_credentials:
                message = f"{setting}: the registry requires a login"
            hint = (
                "Set user:password, or a bearer token in registry_options, of one who may do this"
            )
            return ConfigError(
                message, hint=hint, url=self._url, cause=_answer_text(error), **fields
            )
        if isinstance(error, SchemaRegistryError) and not _may_pass(error):
            if _is_conflict(error):
                message = "the registry rejects a schema as incompatible with earlier versions"
            else:
                message = f"the registry rejects a request: {error.error_message}"
            return SchemaError(message, **fields)
        message = "the schema registry does not answer"
        hint = "Check registry_url, and that the registry is running"
        cause = f"{type(error).__name__}: {error}"
        if isinstance(error, SchemaRegistryError):
            message = f"the schema registry does not answer: HTTP status {error.http_status_code}"
            if error.http_status_code in RETRY_LATER:
                message = f"the schema registry answers later: HTTP status {error.http_status_code}"
                hint = "Raise the registry's limit of requests if this does not pass"
        elif isinstance(error, OAuthTokenError):
            message = "the token endpoint of the schema registry does not answer"
            hint = "Check bearer.auth.issuer.endpoint.url in registry_options"
        return UnreachableError(message, hint=hint, url=self._url, cause=cause, **fields)


def _parsed(text: str | None) -> dict[str, Any] | None:
    """Return a schema as an object, even without fields (`"string"`); None if it is not JSON.

    Raises ValueError for an answer without a schema.
    """
    if not text:
        raise ValueError("the answer has no schema")
    try:
        schema = json.loads(text)
    except ValueError:
        return None
    return schema if isinstance(schema, dict) else {"type": schema}


def _typed(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options with numbers where the client expects them; settings are text."""
    return {
        name: float(value) if name in _NUMBERS and isinstance(value, str) else value
        for name, value in options.items()
    }


def _refused_options(error: Exception, options: Mapping[str, Any]) -> ConfigError:
    """Return the error for options that the client rejects; its text may contain their values."""
    cause = f"{type(error).__name__}: {error}"
    for value in options.values():
        cause = cause.replace(str(value), "…") if value else cause
    message = f"registry_options: the registry's client refuses {', '.join(sorted(options))}"
    hint = "Use the names and values of confluent-kafka's SchemaRegistryClient"
    return ConfigError(message, hint=hint, cause=cause)


def _answer_text(error: Exception) -> str:
    """Return the text of an answer, cut: it may be a page."""
    return str(error)[:_ANSWER_CHARACTERS_MAX]


def _is_forbidden(error: Exception) -> bool:
    return isinstance(error, SchemaRegistryError) and (
        error.http_status_code in REJECTED or error.error_code == _READ_ONLY
    )


def _is_missing(error: Exception) -> bool:
    """Whether the registry itself, not a proxy, answers that something does not exist."""
    return (
        isinstance(error, SchemaRegistryError)
        and error.http_status_code == _NOT_FOUND
        and not is_foreign(error)
    )


def _may_pass(error: SchemaRegistryError) -> bool:
    """Whether the same request may succeed later."""
    status = error.http_status_code
    return is_temporary(status) or (status == _NOT_FOUND and is_foreign(error))


def _is_conflict(error: Exception) -> bool:
    return isinstance(error, SchemaRegistryError) and error.http_status_code == _CONFLICT
