"""Dead letters: records of data topics that were set aside because they are no changes."""

from __future__ import annotations

DEAD_LETTERS = "dead_letters"
"""The table's folder in the output."""


def with_dead_letters(hint: str, dead_letters: int) -> str:
    """Return the hint of an error about missing changes: one of them may be a dead letter."""
    if not dead_letters:
        return hint
    return (
        f"{hint}. The output's table {DEAD_LETTERS} has {dead_letters} records that could not be "
        "read: look first whether the missing changes are among them"
    )
