"""Functions that DuckDB gets from Python, each with the types that it takes and gives.

A routine is a pure function of Spanner's values; NULL in means NULL out without a call. What it
refuses is a `SpannerError`, which reaches the client as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spanner_simulator.errors import Code, SpannerError

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Routine:
    """`arguments` and `result` are DuckDB types."""

    name: str
    arguments: tuple[str, ...]
    result: str
    function: Callable[..., Any]
    takes_null: bool = False
    is_volatile: bool = False


ROUTINES: dict[str, Routine] = {}


def routine(
    result: str, *arguments: str, takes_null: bool = False, is_volatile: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a function callable from SQL under its own name."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        name = function.__name__
        ROUTINES[name] = Routine(name, arguments, result, function, takes_null, is_volatile)
        return function

    return register


@routine("VARCHAR", "VARCHAR")
def refuse(message: str) -> str:
    """ERROR(): end the statement with this message."""
    raise out_of_range(message)


def out_of_range(message: str) -> SpannerError:
    """The code of a value that an expression cannot take."""
    return SpannerError(Code.OUT_OF_RANGE, message)
