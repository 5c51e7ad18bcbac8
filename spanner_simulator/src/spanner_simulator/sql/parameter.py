"""A parameter of a statement, as the caller gives it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spanner_simulator.core.values import Plain, ValueType


@dataclass(frozen=True, slots=True)
class Parameter:
    """A query parameter; without a type it takes that of what it is compared with or put into."""

    plain: Plain
    value_type: ValueType | None = None
