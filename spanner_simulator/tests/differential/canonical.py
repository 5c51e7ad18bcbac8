"""What both sides may say in different words, put into the same words.

Commit timestamps become the step that committed (`@12`), names that a side makes up become a word.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from differential.side import Rows

_STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)")
# Names of indexes that stand behind a foreign key end in a number of the side's own making.
_HASH = re.compile(r"^((?:IDX|FK|CK)_\w+?)_[0-9A-F]{16}$")
_SESSION = re.compile(r"sessions/[\w-]+")


def canonical_value(data: Any, commits: Mapping[str, int]) -> Any:
    """A plain value with commit timestamps replaced by their steps, however deep."""
    if isinstance(data, str):
        step = commits.get(data) if data.endswith("Z") else None
        return _HASH.sub(r"\1_HASH", data) if step is None else f"@{step}"
    if isinstance(data, list):
        return [canonical_value(item, commits) for item in data]
    if isinstance(data, dict):
        return {name: canonical_value(item, commits) for name, item in data.items()}
    return data


def canonical_rows(rows: Rows, commits: Mapping[str, int], *, is_ordered: bool) -> list[Any]:
    """A result's rows; sorted where the query leaves their order open."""
    made = [canonical_value(row, commits) for row in rows.rows]
    return made if is_ordered else sorted(made, key=lambda row: json.dumps(row, sort_keys=True))


def canonical_text(text: str) -> str:
    """An error's text without moments and names that are made up."""
    return _SESSION.sub("sessions/S", _STAMP.sub("T", text)).strip()
