"""Changelog and mirror over Delta's model; what they believe of a table is the production's.

`CommitLog` finds the commit that carries a release, refuses a table that is ahead, and gives each
release its version.  Around it stands what `sinks.delta` does with Spark: create or widen, skip a
release that is there, append or merge under the release's transaction id.  A mirror that takes
several releases at once finds them in the changelog.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.delta import DeltaTable, DirectHandle, TransactionId, at_point
from tests.simulation.disturbance import Disturbance
from tests.simulation.gate_decoding import ChangeReader, DecodedRow
from tidegate.spark_consumer.core.topic_schemas import TopicSchemas
from tidegate.spark_consumer.sinks.delta.commit_log import CommitLog
from tidegate.spark_consumer.sinks.port import DecodedTable, Merge, Release, TableVersion
from tidegate.spark_consumer.sinks.tables import Commit


@dataclass(frozen=True, slots=True)
class Changes:
    """What stands where sinks expect a frame: the columns of its type, and its rows."""

    columns: tuple[str, ...]
    rows: list[DecodedRow] = field(default_factory=list)
    is_small: bool = False


class _TableSink:
    name = ""

    def __init__(self, tables: dict[str, DeltaTable], disturbance: Disturbance | None) -> None:
        self._tables, self._disturbance = tables, disturbance
        self._query_id = ""
        self._logs: dict[str, CommitLog] = {}

    def open(self, *, query_id: str, release_max: int) -> None:
        self._query_id = query_id
        self._logs = {}
        for name in self._tables:
            self._log(name).refuse_beyond(release_max)

    def write(self, release: Release) -> Mapping[str, TableVersion]:
        commit = Commit(release.query_id, self.name, release.number, release.through_us)
        versions = {}
        for table in release.tables.values():
            self._prepare(table, commit)
        for table in release.tables.values():
            name = table.schemas.table
            log = self._log(name)
            if table.rows and log.written(commit) is None:
                self._apply(self._tables[name], table, (commit.application, commit.release), commit)
                log.follow()
            version = log.version_at(release.number)
            versions[name] = TableVersion(f"{self.name}/{name}", version, table.rows)
        return versions

    def _log(self, name: str) -> CommitLog:
        if name not in self._logs:
            table = self._tables.setdefault(name, DeltaTable())
            log = CommitLog(table, name, query_id=self._query_id, sink=self.name)
            log.load()
            self._logs[name] = log
        return self._logs[name]

    def _prepare(self, one: DecodedTable, commit: Commit) -> None:
        columns = _changes(one).columns
        log = self._log(one.schemas.table)
        table = self._tables[one.schemas.table]
        if not log.exists:
            table.create(columns, commit.preparation, self._disturbance)
        elif not set(columns) <= set(table.columns):
            table.widen(columns, commit.preparation, self._disturbance)
        log.follow()

    def _apply(
        self, table: DeltaTable, one: DecodedTable, transaction: TransactionId, commit: Commit
    ) -> None:
        raise NotImplementedError


class ChangelogModel(_TableSink):
    name = "changelog"

    def _apply(
        self, table: DeltaTable, one: DecodedTable, transaction: TransactionId, commit: Commit
    ) -> None:
        changes = _changes(one)
        target = _target(table, one, transaction, self._disturbance)
        if target is not None:
            target.append(
                changes.rows, changes.columns, transaction, commit.metadata, self._disturbance
            )


class MirrorModel(_TableSink):
    name = "mirror"

    def __init__(
        self,
        tables: dict[str, DeltaTable],
        disturbance: Disturbance | None,
        changelog: dict[str, DeltaTable] | None = None,
    ) -> None:
        super().__init__(tables, disturbance)
        self._changelog = {} if changelog is None else changelog

    def merge(self, merge: Merge) -> Mapping[str, TableVersion]:
        tables = {topic: self._changes(one, merge) for topic, one in merge.tables.items()}
        rows = sum(table.rows for table in tables.values())
        bounds = (merge.through_us, merge.through_us)
        return self.write(
            Release(merge.through, *bounds, merge.query_id, merge.batch, rows, tables)
        )

    def versions(self, release: int, tables: Iterable[TopicSchemas]) -> Mapping[str, TableVersion]:
        found = {table.table: self._log(table.table).find_version(release) for table in tables}
        return {
            table: TableVersion(f"{self.name}/{table}", version)
            for table, version in found.items()
            if version is not None
        }

    def _changes(self, schemas: TopicSchemas, merge: Merge) -> DecodedTable:
        kept = self._changelog.get(schemas.table, DeltaTable())
        rows = [
            row for row in kept.added_up_to(kept.head) if merge.after < row.release <= merge.through
        ]
        rows.sort(key=lambda row: (row.release, row.ordinal))
        frame: Any = Changes(ChangeReader(schemas).columns, rows, is_small=len(rows) % 2 == 0)
        return DecodedTable(None, lambda: frame, len(rows), schemas)

    def _apply(
        self, table: DeltaTable, one: DecodedTable, transaction: TransactionId, commit: Commit
    ) -> None:
        changes = _changes(one)

        def merged(before: Mapping[bytes, Any]) -> Mapping[bytes, Any]:
            after = dict(before)
            grouped: dict[bytes, list[DecodedRow]] = {}
            for row in changes.rows:
                grouped.setdefault(row.key, []).append(row)
            for key, of_key in grouped.items():
                row = fold_row(before.get(key), of_key)
                if row is None:
                    after.pop(key, None)
                else:
                    after[key] = row
            return after

        target = _target(table, one, transaction, self._disturbance)
        if target is not None:
            target.merge(merged, changes.columns, transaction, commit.metadata, self._disturbance)


def _target(
    table: DeltaTable,
    one: DecodedTable,
    transaction: TransactionId,
    disturbance: Disturbance | None,
) -> DeltaTable | DirectHandle | None:
    """Return what a release is written to; None if a direct handle has it already."""
    if not _changes(one).is_small:
        return table
    return open_handle(table, transaction, disturbance)


def open_handle(
    table: DeltaTable, transaction: TransactionId, disturbance: Disturbance | None
) -> DirectHandle | None:
    """Load a version, look for the transaction, and return the very handle to commit with."""
    handle = table.open()
    at_point(disturbance, table)
    return None if handle.has(transaction) else handle


def fold_row(before: Mapping[str, Any] | None, changes: Iterable[Any]) -> dict[str, Any] | None:
    """Fold one key's changes, in order, column by column, since its last INSERT or DELETE."""
    row = None if before is None else dict(before)
    for change in changes:
        if change.mod == "D":
            row = None
        elif change.mod == "I":
            row = dict(change.columns)
        elif row is not None:
            row.update(change.columns)
    return row


def _changes(one: DecodedTable) -> Changes:
    frame: Any = one.frame
    return frame
