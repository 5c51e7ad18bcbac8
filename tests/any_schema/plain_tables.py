"""What the tables of the sinks hold after each stage of a world: the slow, obvious way."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.any_schema.changes import Committed, Stage
from tests.any_schema.values import plain_key

Row = dict[str, Any]
Key = tuple[Any, ...]


@dataclass
class PlainTable:
    """The tables that are made of one source table; rows without their columns that are null."""

    key: tuple[str, ...]
    changelog: list[Row] = field(default_factory=list)
    mirror: dict[Key, Row] = field(default_factory=dict)
    versions: list[Row] = field(default_factory=list)
    """With `valid_from` and `valid_to`."""
    incomplete: list[tuple[int, int]] = field(default_factory=list)
    """Release and ordinal of each UPDATE of a row that the mirror lacks."""
    history_incomplete: list[tuple[int, int]] = field(default_factory=list)
    _current: dict[Key, Row] = field(default_factory=dict)

    def apply(self, release: int, changes: list[tuple[int, Committed]]) -> None:
        """Apply a release's changes of the table, with their ordinals, in commit order."""
        last_whole = {one.key: n for n, one in changes if one.mod != "UPDATE"}
        for ordinal, one in changes:
            self.changelog.append(_logged(release, ordinal, one))
            self._keep_version(release, ordinal, one)
            if one.mod == "DELETE":
                self.mirror.pop(one.key, None)
            elif one.mod == "INSERT":
                self.mirror[one.key] = dict(one.new or {})
            elif one.key in self.mirror:
                self.mirror[one.key] = {**self.mirror[one.key], **(one.new or {})}
            elif ordinal > last_whole.get(one.key, -1):
                self.incomplete.append((release, ordinal))

    def _keep_version(self, release: int, ordinal: int, one: Committed) -> None:
        before = self._current.pop(one.key, None)
        if before is not None:
            before["valid_to"] = one.commit_us
        elif one.mod == "UPDATE":
            self.history_incomplete.append((release, ordinal))
            return
        if one.mod != "DELETE":
            kept = {} if one.mod == "INSERT" or before is None else before
            row = {**kept, **(one.new or {}), "valid_from": one.commit_us, "valid_to": None}
            self.versions.append(row)
            self._current[one.key] = row


def plain_tables(stages: list[Stage]) -> dict[str, PlainTable]:
    """Return the tables after all stages, each of which is a release, by source table."""
    found: dict[str, PlainTable] = {}
    for release, stage in enumerate(stages):
        for name, table in stage.tables.items():
            one = found.setdefault(
                name, PlainTable(tuple(column.name.lower() for column in table.key))
            )
            changes = [(n, change) for n, change in enumerate(stage.committed)]
            one.apply(release, [pair for pair in changes if pair[1].table == name])
    return found


def _logged(release: int, ordinal: int, one: Committed) -> Row:
    return {
        "release": release,
        "ordinal": ordinal,
        "mod_type": one.mod,
        "commit_timestamp": one.commit_us,
        "server_transaction_id": one.transaction,
        "record_sequence": one.sequence,
        "mod_number": one.mod_number,
        "key": one.key,
        "new": comparable(one.new),
        "old": comparable(one.old),
    }


def comparable(row: Row | None, keys: tuple[str, ...] = ()) -> Any:
    """Return a row so that equal rows are equal: by name, without nulls, keys as they compare."""
    if row is None:
        return None
    return tuple(
        sorted(
            (name, plain_key(value) if name in keys else value)
            for name, value in row.items()
            if value is not None
        )
    )
