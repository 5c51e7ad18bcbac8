"""The error that the simulated service answers with, with gRPC's codes but without gRPC.

The core raises it, the server turns it into a status, the control port into a JSON body.  Codes and
texts follow the real service where they are known; clients may read both.
"""

from __future__ import annotations

import enum


class Code(enum.Enum):
    """The gRPC status codes that this service uses; names equal gRPC's own."""

    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    UNAUTHENTICATED = 16


class SpannerError(Exception):
    """An answer with another status than OK.

    `retry_delay_ms` is sent as RetryInfo, which the official clients obey after ABORTED.
    """

    def __init__(self, code: Code, message: str, *, retry_delay_ms: int | None = None) -> None:
        # Half of a surrogate pair, which a client's text may contain, cannot be sent.
        message = message.encode(errors="backslashreplace").decode()
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.retry_delay_ms = retry_delay_ms

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by the arguments, so that the error can be sent to another process."""
        return _rebuild, (self.code, self.message, self.retry_delay_ms)

    def __str__(self) -> str:
        return f"{self.code.name}: {self.message}"


def _rebuild(code: Code, message: str, retry_delay_ms: int | None) -> SpannerError:
    return SpannerError(code, message, retry_delay_ms=retry_delay_ms)


def invalid_argument(message: str) -> SpannerError:
    """The request contradicts itself or the schema."""
    return SpannerError(Code.INVALID_ARGUMENT, message)


def not_found(message: str) -> SpannerError:
    """An object that the request names does not exist."""
    return SpannerError(Code.NOT_FOUND, message)


def failed_precondition(message: str) -> SpannerError:
    """The request is not possible in this state."""
    return SpannerError(Code.FAILED_PRECONDITION, message)


def already_exists(message: str) -> SpannerError:
    """The object that the request creates already exists."""
    return SpannerError(Code.ALREADY_EXISTS, message)


def out_of_range(message: str) -> SpannerError:
    """A value or a time is outside of the possible range."""
    return SpannerError(Code.OUT_OF_RANGE, message)


def unsupported(feature: str) -> SpannerError:
    """The simulator lacks a feature that the request needs."""
    return SpannerError(Code.UNIMPLEMENTED, f"The simulator does not support: {feature}")


class BrokenInvariantError(Exception):
    """The simulator contradicts itself; its later results cannot be trusted."""


def invariant(condition: object, message: str) -> None:
    """Raise `BrokenInvariantError` unless `condition` is true; unlike assert, also under -O."""
    if not condition:
        raise BrokenInvariantError(message)
