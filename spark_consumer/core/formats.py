"""Format numbers of what the gate stores: an older program must not read what it cannot know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidegate.spark_consumer.errors import NewerCheckpoint


def require_known(what: str, data: Mapping[str, Any], *, newest: int) -> int:
    """Return the format number of stored data, 1 if it has none.

    Raises NewerCheckpoint for a number above `newest`.
    """
    found: int = data.get("format", 1)
    if found > newest:
        code = data.get("code") or "that wrote it"
        raise NewerCheckpoint(
            f"a newer version of Tidegate stored this {what}",
            hint=f"Install Tidegate {code} or newer; this version cannot read its format",
            batch=data.get("batch"),
            found=found,
            known=newest,
        )
    return found
