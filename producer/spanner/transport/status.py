"""Failed calls: their status, its details, and pages of load balancers in place of a status."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar
from urllib.parse import unquote

import grpc
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import ResourceInfo, RetryInfo
from google.rpc.status_pb2 import Status
from h2.errors import ErrorCodes

from tidegate.program.calls import WAIT_MAX_S, asked_wait_s
from tidegate.schemas.instants import NS_PER_US, US_PER_SECOND

_Detail = TypeVar("_Detail", ResourceInfo, RetryInfo)

DETAILS_TRAILER = "grpc-status-details-bin"
RETRY_AFTER_HEADER = "retry-after"
"""A header of a web page; an error has it among its trailers."""
_SHOWN_MAX = 200
_STATUS_BY_NUMBER = {code.value[0]: code for code in grpc.StatusCode}
_STATUS_OF_HTTP_CODE = {
    "400": grpc.StatusCode.INTERNAL,
    "401": grpc.StatusCode.UNAUTHENTICATED,
    "403": grpc.StatusCode.PERMISSION_DENIED,
    "404": grpc.StatusCode.UNIMPLEMENTED,
    **dict.fromkeys(("429", "502", "503", "504"), grpc.StatusCode.UNAVAILABLE),
}
_STATUS_OF_RESET_CODE: dict[int, grpc.StatusCode] = {
    ErrorCodes.REFUSED_STREAM: grpc.StatusCode.UNAVAILABLE,
    ErrorCodes.CANCEL: grpc.StatusCode.CANCELLED,
    ErrorCodes.ENHANCE_YOUR_CALM: grpc.StatusCode.RESOURCE_EXHAUSTED,
    ErrorCodes.INADEQUATE_SECURITY: grpc.StatusCode.PERMISSION_DENIED,
}
_SESSION_TYPE = "google.spanner.v1.Session"
_SESSION_WORD = re.compile(r"^[^:]*(?<![-\w/.])session\b(?![-\w/])", re.IGNORECASE)
"""Before the first colon, where names begin: a database or a stream may contain this word."""
_SESSION_PATH = re.compile(r"/databases/[^/\s]+/sessions/")
_WEB_PAGE = re.compile(r"received http2 header with (status|content-type)", re.IGNORECASE)
"""gRPC's text for a response without a gRPC status."""


class CallError(grpc.RpcError):
    """A failed call, with the methods of gRPC's own errors."""

    def __init__(
        self,
        code: grpc.StatusCode,
        details: str,
        *,
        trailers: Mapping[str, str] | None = None,
        is_web_page: bool = False,
    ) -> None:
        """Set the status; with `is_web_page` there was none, and `code` is from the HTTP status."""
        super().__init__(f"{code.name}: {details}")
        self._code, self._details = code, details
        self._trailers = tuple((trailers or {}).items())
        self.is_web_page = is_web_page

    @classmethod
    def cancelled(cls) -> CallError:
        """Return the error of a call that this side ended."""
        return cls(grpc.StatusCode.CANCELLED, "the call was cancelled")

    @classmethod
    def reset(cls, code: int, message: str) -> CallError:
        """Return the error of a stream that ended with an error code of HTTP/2."""
        status = _STATUS_OF_RESET_CODE.get(code, grpc.StatusCode.INTERNAL)
        return cls(status, f"{message} with HTTP/2's error code {code}")

    def code(self) -> grpc.StatusCode:
        """Return the status."""
        return self._code

    def details(self) -> str:
        """Return the status's text."""
        return self._details

    def trailing_metadata(self) -> tuple[Any, ...]:
        """Return the trailers; values of names that end with `-bin` are base64."""
        return self._trailers


def status_error(trailers: Mapping[str, str]) -> CallError | None:
    """Return the error in a response's trailers; None for OK."""
    try:
        number = int(trailers["grpc-status"])
    except (KeyError, ValueError):
        return CallError(grpc.StatusCode.UNKNOWN, "the response ended without a status")
    code = _STATUS_BY_NUMBER.get(number, grpc.StatusCode.UNKNOWN)
    if code is grpc.StatusCode.OK:
        return None
    return CallError(code, unquote(trailers.get("grpc-message", "")), trailers=trailers)


@dataclass(frozen=True, slots=True)
class WebPage:
    """A response without a gRPC status, by its headers."""

    status: str
    kind: str
    server: str
    retry_after: str = ""

    @classmethod
    def of(cls, headers: Mapping[str, str]) -> WebPage:
        """Return the page with these headers."""
        server = headers.get("server", "") or headers.get("via", "")
        retry_after = headers.get(RETRY_AFTER_HEADER, "")
        return cls(headers.get(":status", ""), headers.get("content-type", ""), server, retry_after)

    def error(self, body: bytes) -> CallError:
        """Return the error, which describes the sender; `body` is the beginning of the content."""
        code = _STATUS_OF_HTTP_CODE.get(self.status, grpc.StatusCode.UNKNOWN)
        server = f" by {self.server[:_SHOWN_MAX]!r}" if self.server else ""
        kind = f" of the type {self.kind[:_SHOWN_MAX]!r}" if self.kind else ""
        shown = " ".join(body[:_SHOWN_MAX].decode(errors="replace").split())
        text = f": {shown!r}" if shown else ""
        details = f"an answer without a gRPC status{server}: HTTP status {self.status}{kind}{text}"
        trailers = {RETRY_AFTER_HEADER: self.retry_after} if self.retry_after else None
        return CallError(code, details, trailers=trailers, is_web_page=True)


def is_lost_session(error: grpc.RpcError) -> bool:
    """Whether a call failed because its session does not exist, or no longer exists."""
    if error.code() is not grpc.StatusCode.NOT_FOUND:
        return False
    resources = _details(error, ResourceInfo)
    types = [resource.resource_type for resource in resources if resource.resource_type]
    if types:
        return any(name.endswith(_SESSION_TYPE) for name in types)
    details = str(error.details() or "")
    return bool(_SESSION_WORD.search(details) or _SESSION_PATH.search(details))


def is_web_page(error: grpc.RpcError) -> bool:
    """Whether a load balancer or a proxy answered, without a gRPC status."""
    if isinstance(error, CallError):
        return error.is_web_page
    return _WEB_PAGE.search(str(error.details() or "")) is not None


def is_rejection(error: grpc.RpcError) -> bool:
    """Whether a new token, or another path through a load balancer, may let the call pass."""
    return error.code() is grpc.StatusCode.UNAUTHENTICATED or is_web_page(error)


def asked_pause_us(error: grpc.RpcError, now: datetime | None = None) -> int:
    """Return the pause that the service asks for before the next attempt, at most a minute.

    From the `RetryInfo` of a status, or the `Retry-After` of a load balancer's page; 0 without
    either.
    """
    for info in _details(error, RetryInfo):
        delay = info.retry_delay
        asked_us: int = delay.seconds * US_PER_SECOND + delay.nanos // NS_PER_US
        return min(max(asked_us, 0), round(WAIT_MAX_S * US_PER_SECOND))
    for name, value in _trailers(error):
        if name == RETRY_AFTER_HEADER and isinstance(value, str):
            return round(asked_wait_s(value, now or datetime.now(UTC)) * US_PER_SECOND)
    return 0


def _details(error: grpc.RpcError, kind: type[_Detail]) -> Iterator[_Detail]:
    """Yield a status's details of one kind; those that cannot be read are left out."""
    for name, value in _trailers(error):
        if name != DETAILS_TRAILER:
            continue
        try:
            data = value if isinstance(value, bytes) else b64decode(value + "==")
            details = Status.FromString(data).details
        except (DecodeError, ValueError):
            continue
        for packed in details:
            detail = kind()
            try:
                is_of_kind = packed.Unpack(detail)
            except DecodeError:
                continue
            if is_of_kind:
                yield detail


def _trailers(error: grpc.RpcError) -> Iterable[tuple[str, bytes | str]]:
    read = getattr(error, "trailing_metadata", None)
    return () if read is None else (read() or ())
