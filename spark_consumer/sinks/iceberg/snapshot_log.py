"""The releases that an Iceberg table holds, read from its properties and its snapshots.

A release is published in one commit that moves the table to its snapshot and sets the property
`tidegate.release`, which remains when old snapshots are removed.  Snapshots name the release too,
in their `wap.id` (of a snapshot that was staged first) or `published-wap-id` (of its copy).  This
module compares both, and writes nothing.  Invariant: releases of a table ascend.

Other writers may rewrite files (operation `replace`) and remove old snapshots.  A commit that
changes rows, or moves the table back, is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.errors import ForeignChange, TableMissing
from tidegate.spark_consumer.sinks.tables import Commit

_QUERY, _SINK = "tidegate.query-id", "tidegate.sink"
_RELEASE, _THROUGH = "tidegate.release", "tidegate.through-us"

_REWRITE = "replace"
"""Iceberg's operation of a commit that changes files and no row."""

_ANOTHER_TABLE = (
    "Set iceberg_namespace to another one, drop the table, or restore the checkpoint of the query "
    "that wrote it"
)
_LOST_CHECKPOINT = (
    "Restore the checkpoint of the query that wrote it; if it is lost, begin with an empty "
    "--output, an empty --checkpoint and another iceberg_namespace"
)
_CHANGED = (
    "Stop the run and set the table to its newest snapshot of this query "
    "(system.set_current_snapshot); if that was removed, begin with an empty --output, an empty "
    "--checkpoint and another iceberg_namespace"
)
_MISSING = (
    "Restore the table, as it was; if it is lost, begin with an empty --output and an empty "
    "--checkpoint"
)


def owner_properties(commit: Commit) -> dict[str, str]:
    """Return the table properties that say whose table it is."""
    return {_QUERY: commit.query_id, _SINK: commit.sink}


def release_properties(commit: Commit) -> dict[str, str]:
    """Return the table properties that say which release a table holds."""
    return {
        **owner_properties(commit),
        _RELEASE: str(commit.release),
        _THROUGH: str(commit.through_us),
    }


@dataclass(frozen=True, slots=True)
class IcebergSnapshot:
    """One snapshot; `marker` is what its writer called it, None for most writers."""

    number: int
    parent: int | None
    operation: str
    marker: str | None = None

    @property
    def release(self) -> int | None:
        """The release of the snapshot; None: another writer made it.

        For the snapshot that created the table, the release before the table's first.
        """
        try:
            outer = json.loads(self.marker or "null")
        except ValueError:
            return None
        inner = outer.get("tidegate") if isinstance(outer, dict) else None
        if not isinstance(inner, dict):
            return None
        release: Any = inner.get("release", inner.get("prepares", 0) - 1)
        return release if isinstance(release, int) else None


class SnapshotTable(Protocol):
    """One table of a catalog."""

    def load(self) -> bool:
        """Read the table as it is now; return whether it exists."""
        ...

    def properties(self) -> Mapping[str, str]:
        """Return the table properties as they were read."""
        ...

    def current(self) -> IcebergSnapshot | None:
        """Return the snapshot that readers see, as it was read."""
        ...

    def snapshot(self, number: int) -> IcebergSnapshot | None:
        """Return a snapshot as it was read, None if it was removed."""
        ...


class SnapshotLog:
    """The releases of one table; errors call it `name`."""

    def __init__(self, name: str, *, query_id: str, sink: str) -> None:
        """Read nothing yet; `load` does."""
        self._table: SnapshotTable | None = None
        self._name = name
        self._query_id = query_id
        self._sink = sink
        self.exists = False
        self.release = -1
        """The newest release that the table holds; -1 without one."""

    def load(self, table: SnapshotTable) -> None:
        """Read the table, as one session reaches it.

        Raises ConfigError if it is not this query's, TableMissing if it existed before and no
        longer does, ForeignChange if another writer has changed rows or moved it back.
        """
        existed, before = self.exists, self.release
        self._table = table
        self.exists = table.load()
        if not self.exists:
            if existed:
                raise TableMissing(
                    "a table of the output was deleted while the run used it",
                    hint=_MISSING,
                    table=self._name,
                )
            return
        properties = table.properties()
        owner = (properties.get(_QUERY), properties.get(_SINK))
        if owner != (self._query_id, self._sink):
            raise ConfigError(
                "a table holds commits of another writer",
                hint=_ANOTHER_TABLE,
                table=self._name,
                query_id=owner[0],
                sink=owner[1],
            )
        self.release = int(properties.get(_RELEASE, -1))
        if self.release < before:
            raise TableMissing(
                "a table of the output was replaced by an older copy while the run used it",
                hint=_MISSING,
                table=self._name,
                release=self.release,
            )
        self._require_own()

    def refuse_beyond(self, release_max: int) -> None:
        """Raise ConfigError if the table holds a release that the gate never planned."""
        if self.release > release_max:
            raise ConfigError(
                "a table holds a later release than this checkpoint knows",
                hint=_LOST_CHECKPOINT,
                table=self._name,
                release_in_table=self.release,
                release_in_checkpoint=release_max,
            )

    def require_version(self, version: int, *, release: int) -> None:
        """Raise TableMissing unless the table has the snapshot that a release's manifest names.

        Where old snapshots were removed, it may be one of them.
        """
        if self.exists and (self._snapshot(version) is not None or self._is_cut_off()):
            return
        raise TableMissing(
            "a table of the output was deleted, or replaced by an older copy",
            hint=_MISSING,
            table=self._name,
            version_in_manifest=version,
            release=release,
        )

    def has(self, commit: Commit) -> bool:
        """Whether the table holds a release, or a later one.

        Raises ConfigError if it holds this one with another end.
        """
        if self.release == commit.release:
            properties = {} if self._table is None else self._table.properties()
            through_us = properties.get(_THROUGH)
            if through_us != str(commit.through_us):
                raise ConfigError(
                    "a table holds this release with other bounds",
                    hint=_LOST_CHECKPOINT,
                    table=self._name,
                    release=commit.release,
                    through_us_in_table=through_us,
                    through_us=commit.through_us,
                )
        return self.release >= commit.release

    def find_version(self, release: int) -> int | None:
        """Return the snapshot of Tidegate's newest commit up to a release.

        None if the table was created after it, or if that snapshot was removed.
        """
        for snapshot in self._ancestors():
            if snapshot.release is not None and snapshot.release <= release:
                return snapshot.number
        return None

    def version_at(self, release: int) -> int:
        """Return the snapshot of `find_version`; if it was removed, the oldest that is left."""
        version = self.find_version(release)
        if version is not None:
            return version
        *_, oldest = self._ancestors()
        return oldest.number

    def _ancestors(self) -> Iterator[IcebergSnapshot]:
        """Yield the table's kept snapshots, newest first."""
        snapshot = None if self._table is None else self._table.current()
        while snapshot is not None:
            yield snapshot
            snapshot = None if snapshot.parent is None else self._snapshot(snapshot.parent)

    def _snapshot(self, number: int) -> IcebergSnapshot | None:
        return None if self._table is None else self._table.snapshot(number)

    def _is_cut_off(self) -> bool:
        """Whether old snapshots were removed."""
        last = None
        for last in self._ancestors():  # noqa: B007 - the oldest is what is sought
            pass
        return last is not None and last.parent is not None

    def _require_own(self) -> None:
        """Raise ForeignChange unless all since our newest commit is a rewrite of files."""
        last = None
        for last in self._ancestors():
            if last.release is not None:
                if last.release < self.release:
                    self._refuse(last, "rollback")
                return
            if last.operation != _REWRITE:
                self._refuse(last, last.operation)
        # Tidegate's newest snapshot was removed, or there is none yet.
        if self.release >= 0 and (last is None or last.parent is None):
            self._refuse(last, "replaced")

    def _refuse(self, snapshot: IcebergSnapshot | None, operation: str) -> NoReturn:
        raise ForeignChange(
            "others have changed the rows of a table",
            hint=_CHANGED,
            table=self._name,
            version=None if snapshot is None else snapshot.number,
            operation=operation,
        )
