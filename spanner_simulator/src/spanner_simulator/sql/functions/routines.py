"""Functions that DuckDB gets from Python, each with the types of its arguments and result.

A routine is a pure function of Spanner's values; a NULL argument gives NULL without a call.  Its
errors are `SpannerError`s, which reach the client unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spanner_simulator.errors import SpannerError, invalid_argument, out_of_range

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Routine:
    """`arguments` and `result` are DuckDB types."""

    arguments: tuple[str, ...]
    result: str
    function: Callable[..., Any]
    is_volatile: bool = False


ROUTINES: dict[str, Routine] = {}


def routine(
    result: str, *arguments: str, is_volatile: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a function callable from SQL under its own name."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        ROUTINES[function.__name__] = Routine(arguments, result, function, is_volatile)
        return function

    return register


def postgres_reader(kind: str, result: str) -> Callable[..., Callable[[str], Any]]:
    """Make a reader of texts into one of PostgreSQL, which has its own error texts."""

    def register(read: Callable[[str], Any], name: str = "") -> Callable[[str], Any]:
        def reader(text: str) -> Any:
            try:
                return read(text)
            except (SpannerError, ValueError):
                raise invalid_argument(
                    f'[ERROR] invalid input syntax for type {kind}: "{text}"'
                ) from None

        ROUTINES[name or read.__name__] = Routine(("VARCHAR",), result, reader)
        return reader

    return register


@routine("VARCHAR", "VARCHAR")
def refuse(message: str) -> str:
    """End the statement with this message."""
    raise out_of_range(message)
