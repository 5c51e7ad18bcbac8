"""The two codes with which most rules refuse a statement, and types as their texts name them."""

from __future__ import annotations

from spanner_simulator.core.values import ValueType
from spanner_simulator.errors import Code, SpannerError


def refused(message: str) -> SpannerError:
    """FAILED_PRECONDITION."""
    return SpannerError(Code.FAILED_PRECONDITION, message)


def invalid(message: str) -> SpannerError:
    """INVALID_ARGUMENT."""
    return SpannerError(Code.INVALID_ARGUMENT, message)


def unsupported(what: str) -> SpannerError:
    """UNIMPLEMENTED that names a construct."""
    return SpannerError(Code.UNIMPLEMENTED, f"The simulator does not support: {what}")


def type_name(value_type: ValueType, *, element: bool = True) -> str:
    """A type without its length, PostgreSQL's as PG.NUMERIC, and ARRAY with its element or not."""
    if value_type.element is not None:
        return f"ARRAY<{type_name(value_type.element)}>" if element else "ARRAY"
    if value_type.annotation is not None:
        return value_type.annotation.replace("_", ".", 1)
    return value_type.proto_name or value_type.code
