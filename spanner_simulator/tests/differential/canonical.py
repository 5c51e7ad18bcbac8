"""Values of both sides in comparable form: commit timestamps become their step (`@12`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from differential.side import Rows


def canonical_value(data: Any, commits: Mapping[str, int]) -> Any:
    """A plain value with commit timestamps replaced by their steps, however deep."""
    if isinstance(data, str):
        step = commits.get(data) if data.endswith("Z") else None
        return data if step is None else f"@{step}"
    if isinstance(data, list):
        return [canonical_value(item, commits) for item in data]
    if isinstance(data, dict):
        return {name: canonical_value(item, commits) for name, item in data.items()}
    return data


def canonical_rows(rows: Rows, commits: Mapping[str, int], *, is_ordered: bool) -> list[Any]:
    """A result's rows; sorted where the query leaves their order open."""
    made = [canonical_value(row, commits) for row in rows.rows]
    return made if is_ordered else sorted(made, key=lambda row: json.dumps(row, sort_keys=True))
