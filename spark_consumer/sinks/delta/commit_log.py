"""Finds the version of a Delta table that carries a release, by the metadata of its commits.

The newest version of a table proves nothing: it may be a user's OPTIMIZE, or a commit after which
the gate was killed before recording it.  So each commit of Tidegate names query, sink and release
in its `userMetadata`, by which this module finds it.  It writes nothing and needs no Spark.
Invariant: versions grow with release numbers.

A commit that Delta or a program makes in the gate's session inherits that metadata (auto compaction
does).  So the metadata counts only with operations that the gate itself uses.

Foreign commits that change no row are allowed.  A foreign change of rows is refused until a commit
of Tidegate adopts it; an operation that may undo a release (RESTORE, REPLACE) is always refused.

Delta deletes commits that are older than the log's retention.  The number of the last release in
the table (`txn`) and the manifests remain: they give an idle table's version.  If the table has
another query's number and not this query's, it was replaced by another table.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol

from tidegate.schemas.errors import ConfigError, InvariantViolation, invariant
from tidegate.spark_consumer.errors import ForeignChange, TableMissing
from tidegate.spark_consumer.sinks.tables import Commit

_RECENT = 256
"""Commits that are read first and kept in memory; a replay needs far fewer: its plan's."""

_REPLACING = ("CREATE", "REPLACE", "RESTORE", "CLONE", "CONVERT")
"""Prefixes of Delta's names of operations that may undo releases, whatever rows they change."""

_ADOPTABLE = frozenset({"DELETE", "UPDATE", "TRUNCATE", "MERGE"})
"""Changes of rows that undo no release; so is an append."""

_STATED_WITH: Mapping[str, frozenset[str]] = {
    "release": frozenset({"MERGE", "WRITE"}),
    "prepares": frozenset({"CREATE TABLE", "WRITE"}),
    "adopts": frozenset({"SET TBLPROPERTIES"}),
}
"""The operations of Tidegate's commits, by Spark and by delta-rs, by the key of their metadata."""

_ANOTHER_TABLE = (
    "Give --output an empty folder (and a new --checkpoint), "
    "or restore the checkpoint of the query that wrote this table"
)
_LOST_CHECKPOINT = (
    "Restore the checkpoint of the query that wrote this table; if it is lost, type "
    "`tidegate-consumer adopt` with an empty --checkpoint, or give --output an empty folder"
)
_ADOPT = (
    "If that was meant, stop the run and type `tidegate-consumer adopt` with its settings: it goes "
    "on with the rows as they are"
)

_MISSING = (
    "Restore the table's folder, as it was; if it is lost, begin with an empty --output and an "
    "empty --checkpoint"
)


@dataclass(frozen=True, slots=True)
class TableCommit:
    """Any commit of a table, as Delta records it.

    `changes_rows` says whether it added or removed rows; true where that is not known.  `mode` is
    that of a WRITE.
    """

    version: int
    operation: str
    user_metadata: str | None
    metrics: Mapping[str, str]
    changes_rows: bool = True
    mode: str | None = None

    @property
    def is_harmless(self) -> bool:
        """Whether it leaves released rows unchanged: a comment, a constraint, OPTIMIZE, VACUUM."""
        return not self.changes_rows and not self.operation.startswith(_REPLACING)

    @property
    def is_adoptable(self) -> bool:
        """Whether the commit changed rows on purpose and undid no release."""
        is_append = self.operation == "WRITE" and self.mode == "Append"
        return self.operation in _ADOPTABLE or is_append


class TableHistory(Protocol):
    """The commits of one Delta table."""

    def recent(self, limit: int | None) -> Sequence[TableCommit]:
        """Return the newest commits, all without a limit, in any order; empty without a table."""
        ...

    def commit(self, version: int) -> TableCommit | None:
        """Return one commit, or None if the table has not reached this version."""
        ...

    def numbers(self, sink: str) -> Mapping[str, int]:
        """Return the newest number of each query that wrote as a sink (`txn`), by the query's id.

        It outlives the query's commits.
        """
        ...


@dataclass(frozen=True, slots=True)
class WrittenCommit:
    """A commit of Tidegate in the table; `through_us` is None if it only prepared the table."""

    version: int
    release: int
    through_us: int | None
    metrics: Mapping[str, str] = field(default_factory=dict)


class CommitLog:
    """Our commits to the table at `path` (absolute, as Spark takes it)."""

    def __init__(self, history: TableHistory, path: str, *, query_id: str, sink: str) -> None:
        """Read nothing yet; `load` does."""
        self.path = path
        self._history = history
        self._query_id = query_id
        self._sink = sink
        self._head = -1
        self._oldest = 0
        self._written: list[WrittenCommit] = []
        self._complete = True
        self._named: tuple[int, int] | None = None
        self._adopted = -1
        self.foreign: list[TableCommit] = []
        """Foreign changes of rows that no commit has adopted; `require_own` refuses them."""

    @property
    def head(self) -> int:
        """The newest version that was read; -1 without a table."""
        return self._head

    @property
    def exists(self) -> bool:
        """Whether the table has any commit."""
        return self._head >= 0

    def load(self, *, limit: int | None = _RECENT) -> None:
        """Read the newest commits, or all without a limit.

        Raises ConfigError if one of them is of another query or sink, ForeignChange if one of them
        has changed rows or may have undone a release.
        """
        self.survey(limit=limit)
        self.require_own()

    def survey(self, *, limit: int | None = None) -> None:
        """Do as `load`, but leave it to `require_own` to refuse foreign changes."""
        commits = self._history.recent(limit)
        self._head = max((commit.version for commit in commits), default=-1)
        self._oldest = min((commit.version for commit in commits), default=0)
        self._written, self.foreign, self._adopted = [], [], -1
        self._complete = limit is None or len(commits) < limit
        for commit in sorted(commits, key=lambda commit: commit.version):
            self._take(commit)

    def follow(self) -> None:
        """Read the commits that are new since the last call; raises what `load` raises."""
        while (commit := self._history.commit(self._head + 1)) is not None:
            self._head += 1
            self._take(commit)
        del self._written[:-_RECENT]
        self._complete = self._complete and len(self._written) < _RECENT
        self.require_own()

    def require_own(self) -> None:
        """Raise ForeignChange if there are foreign changes of rows that are not adopted."""
        for commit in self.foreign:
            self._refuse(commit)

    def require_adoptable(self) -> None:
        """Raise ForeignChange if one of these changes may have undone a release."""
        for commit in self.foreign:
            if not commit.is_adoptable:
                self._refuse(commit)

    def require_present(self) -> None:
        """Raise TableMissing if the table lacks a version that was read, and what `load` raises."""
        head = self._head
        if not self.exists or self._history.commit(head) is not None:
            return
        self.load()  # Delta may have deleted the commit's file, as one of an old version
        if self._head < head:
            raise TableMissing(
                "a table of the output was deleted while the run used it",
                hint=_MISSING,
                table=self.path,
                version=head,
            )

    def require_version(self, version: int, *, release: int, stands_at: int | None = None) -> None:
        """Raise TableMissing unless the table has the version in a release's manifest.

        The table has this release, or an older one (`stands_at`); this is remembered for when the
        table's log no longer has the commit.
        """
        if self._head < version:
            head = None if self._head < 0 else self._head
            raise TableMissing(
                "a table of the output was deleted, or replaced by an older copy",
                hint=_MISSING,
                table=self.path,
                version=head,
                version_in_manifest=version,
                release=release,
            )
        self._named = version, release if stands_at is None else stands_at

    def refuse_beyond(self, release_max: int) -> None:
        """Raise ConfigError if the table holds a release that the gate never planned."""
        newest = self.newest_release
        if newest > release_max:
            raise ConfigError(
                "a table holds a later release than this checkpoint knows",
                hint=_LOST_CHECKPOINT,
                table=self.path,
                release_in_table=newest,
                release_in_checkpoint=release_max,
            )

    @property
    def newest_release(self) -> int:
        """The newest release that the table is known to hold, or was prepared for; -1: none."""
        if self._written:
            return self._written[-1].release
        self._reach_back(-1)
        if self._written or not self._oldest:
            return self._written[-1].release if self._written else -1
        number = self._newest_number()
        return -1 if number is None else number

    def written(self, commit: Commit) -> WrittenCommit | None:
        """Return the commit that carries a release, or None if the table lacks it.

        Raises ConfigError if that commit states another end of the release.  Where Delta has
        deleted the commit, it is the table's newest one, without metrics.
        """
        self._reach_back(commit.release)
        for written in reversed(self._written):
            if written.release == commit.release and written.through_us is not None:
                if written.through_us != commit.through_us:
                    raise ConfigError(
                        "a table holds this release with other bounds",
                        hint=_ANOTHER_TABLE,
                        table=self.path,
                        release=commit.release,
                        through_us_in_table=written.through_us,
                        through_us=commit.through_us,
                    )
                return written
        if self.knows_after(commit.release):
            return None
        number = self._newest_number()
        if number is None or number < commit.release:
            return None
        return WrittenCommit(self._head, commit.release, commit.through_us)

    @property
    def commits(self) -> tuple[WrittenCommit, ...]:
        """Tidegate's commits, oldest first; all of them after `survey` without a limit."""
        return tuple(self._written)

    def version_at(self, release: int) -> int:
        """Return the table's version after a release: Tidegate's last commit up to the release."""
        version = self.find_version(release)
        if version is None:
            raise InvariantViolation(
                "no commit of a table is as old as the release", table=self.path
            )
        return version

    def find_version(self, release: int) -> int | None:
        """Return the version at a release, or None if the table was created after it."""
        self._reach_back(release)
        place = bisect_right([written.release for written in self._written], release)
        if place:
            return self._written[place - 1].version
        return None if self.knows_after(release) else self._version_without_commit(release)

    def _version_without_commit(self, release: int) -> int | None:
        """Return the version of a release whose commit Delta has deleted, by manifest and table.

        Versions without a release between them have the same rows, and the newest can be read.
        """
        version, stands_at = self._named or (-1, release + 1)
        if not self._written and self.newest_release <= release:
            return version if version >= self._oldest else self._head
        return version if stands_at <= release else None

    def knows_after(self, release: int) -> bool:
        """Whether the table's log still has each commit of Tidegate after a release.

        Delta deletes the oldest commits first, once they are older than the log's retention.
        """
        self._reach_back(release)
        return not self._oldest or any(written.release <= release for written in self._written)

    def carriers(self, *, after: int, through: int) -> tuple[WrittenCommit, ...]:
        """Return the commits that carry rows of the releases after `after` up to `through`.

        They are all only if `knows_after` the first.
        """
        self._reach_back(after)
        return tuple(
            written
            for written in self._written
            if after < written.release <= through and written.through_us is not None
        )

    def has_adopted_since(self, version: int) -> bool:
        """Whether foreign changes were adopted that may concern the rows of a version."""
        return self._adopted >= version

    def _newest_number(self) -> int | None:
        """Return the number of the last release as the table stores it (`txn`); None without one.

        Raises ConfigError if the table has another query's number instead.
        """
        numbers = self._history.numbers(self._sink)
        if numbers and self._query_id not in numbers:
            self._refuse_writer(min(numbers), version=self._head)
        return numbers.get(self._query_id)

    def _refuse_writer(self, query_id: str, **fields: object) -> NoReturn:
        message = "a table holds commits of another writer"
        hint = _LOST_CHECKPOINT
        raise ConfigError(message, hint=hint, table=self.path, **fields, query_id=query_id)

    def _refuse(self, commit: TableCommit) -> NoReturn:
        raise ForeignChange(
            "others have changed the rows of a table",
            hint=_ADOPT if commit.is_adoptable else _ANOTHER_TABLE,
            table=self.path,
            version=commit.version,
            operation=commit.operation,
        )

    def _reach_back(self, release: int) -> None:
        if not self._complete and (not self._written or self._written[0].release > release):
            self.load(limit=None)

    def _take(self, commit: TableCommit) -> None:
        statement = _stated(commit.operation, commit.user_metadata)
        if statement is None:
            if not commit.is_harmless:
                self.foreign.append(commit)
            return
        if (statement["query_id"], statement["sink"]) != (self._query_id, self._sink):
            self._refuse_writer(
                statement["query_id"], version=commit.version, operation=commit.operation
            )
        if (adopted := statement.get("adopts")) is not None:
            self.foreign = [change for change in self.foreign if change.version > adopted]
            self._adopted = max(self._adopted, adopted)
            return
        through_us = statement.get("through_us")
        release = statement["release"] if through_us is not None else statement["prepares"]
        if self._written:
            last = self._written[-1]
            follows = release > last.release or (
                last.through_us is None and release == last.release
            )
            invariant(follows, "releases of a table are out of order", table=self.path)
        written = WrittenCommit(commit.version, release, through_us, dict(commit.metrics))
        self._written.append(written)


def is_stated(operation: str, user_metadata: str | None) -> bool:
    """Whether a commit has metadata of Tidegate's that was not inherited."""
    return _stated(operation, user_metadata) is not None


def _stated(operation: str, user_metadata: str | None) -> dict[str, Any] | None:
    try:
        outer = json.loads(user_metadata or "null")
    except ValueError:
        return None
    inner = outer.get("tidegate") if isinstance(outer, dict) else None
    if not isinstance(inner, dict):
        return None
    is_stated_commit = any(
        kind in inner and operation in _STATED_WITH[kind] for kind in _STATED_WITH
    )
    return inner if is_stated_commit else None
