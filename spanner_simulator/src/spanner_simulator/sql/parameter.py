"""A parameter of a statement, as passed by the caller."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spanner_simulator.core.values import Plain, ValueType


@dataclass(frozen=True, slots=True)
class Parameter:
    """A query parameter; without a type it gets the type of its context."""

    plain: Plain
    value_type: ValueType | None = None
