"""What all modules of INFORMATION_SCHEMA share: the shape of a row, and names taken apart."""

from __future__ import annotations

from typing import TypeAlias

from spanner_simulator.core.values import Value

# By lower-case column name; what is missing is NULL.
ViewRow: TypeAlias = "dict[str, Value]"


def split(name: str) -> tuple[str, str]:
    """Schema ('' is the default one) and own name."""
    schema, _, own = name.rpartition(".")
    return schema, own


def located(name: str, prefix: str = "table") -> ViewRow:
    """The three columns that say where a thing is."""
    schema, own = split(name)
    return {f"{prefix}_catalog": "", f"{prefix}_schema": schema, f"{prefix}_name": own}


def option(name: str, value: object) -> ViewRow:
    """The three columns of an option."""
    kind = "BOOL" if isinstance(value, bool) else "INT64" if isinstance(value, int) else "STRING"
    text = str(value).upper() if isinstance(value, bool) else str(value)
    return {"option_name": name, "option_type": kind, "option_value": text}
