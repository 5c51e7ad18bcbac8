"""What a comparison finds, as a value."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal[
    "success",  # one side did it, the other refused
    "code",  # both refused, with different codes
    "ddl",  # a statement that GetDatabaseDdl prints
    "columns",  # names and types of a result
    "rows",  # rows of a result
    "count",  # rows touched
    "stream",  # a change stream's query
    "transaction",  # a transaction that one stream has and the other has not
    "mods",  # which rows of a transaction changed, and how
    "column_types",  # what a record says of its columns
    "capture_type",  # what a record says it captured
    "value",  # one value of a mod
    "rule",  # a record against the rules, on one side
]


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference; `where` says what it concerns, `facts` what acceptance may ask for."""

    kind: Kind
    step: int
    where: str
    simulator: Any
    emulator: Any
    facts: dict[str, Any] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """For a reader: what, and both sides."""
        return [
            f"{self.kind}: step {self.step}, {self.where}",
            f"  simulator: {_shown(self.simulator)}",
            f"  emulator:  {_shown(self.emulator)}",
        ]


def _shown(data: Any) -> str:
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, default=str)
    return text if len(text) <= 700 else f"{text[:700]} …"
