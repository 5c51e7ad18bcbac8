"""Format numbers of what the gate stores: an older program must not read what it cannot know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidegate.spark_consumer.errors import NewerCheckpoint

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["require_known"]


def require_known(what: str, data: Mapping[str, Any], *, newest: int) -> int:
    """Return the format number of stored data, 1 if it has none.

    Raises NewerCheckpoint for a number above `newest`.
    """
    found: int = data.get("format", 1)
    if found > newest:
        code = data.get("code") or "that wrote it"
        message = f"a newer version of Tidegate stored this {what}"
        hint = f"Install Tidegate {code} or newer; this version cannot read its format"
        raise NewerCheckpoint(
            message, hint=hint, batch=data.get("batch"), found=found, known=newest
        )
    return found
