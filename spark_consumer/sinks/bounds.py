"""Columns of a file that get bounds: those whose bounds are true for every reader.

A reader skips a file, or a part of one, whose bounds exclude the values that it looks for.  So a
bound must hold for each value, by the order of every reader.  NaN is in no writer's bounds, and for
Spark it is the greatest number.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow


def bounded_leaves(schema: Any) -> list[str]:
    """Return the columns of a Parquet file that get bounds, by their paths: all but floats.

    What is within an array has none, since no reader compares it.
    """
    return list(_leaves(schema, ""))


def _leaves(fields: Any, above: str) -> Iterator[str]:
    types = pyarrow.types
    for field in fields:
        if types.is_struct(field.type):
            yield from _leaves(field.type, f"{above}{field.name}.")
        elif not (types.is_nested(field.type) or types.is_floating(field.type)):
            yield f"{above}{field.name}"
