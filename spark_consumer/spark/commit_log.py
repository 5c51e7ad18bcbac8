"""Which version of a Delta table carries which release, read from the commits' own metadata.

The head of a table proves nothing: a user's OPTIMIZE, or a commit that the gate did not live to
record, may stand there.  So each of our commits says in its `userMetadata` which query, sink and
release made it, and this module finds it again.  It writes nothing.  Invariant: versions grow with
release numbers.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from delta.tables import DeltaTable

from tidegate.schemas.errors import ConfigError, invariant
from tidegate.spark_consumer.spark.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

__all__ = ["Commit", "CommitLog", "WrittenCommit"]

_RECENT = 256
"""Commits read at first and kept in memory; a replay asks for far fewer, its plan's."""

_MAINTENANCE = frozenset(
    {
        "OPTIMIZE",
        "VACUUM START",
        "VACUUM END",
        "SET TBLPROPERTIES",
        "UNSET TBLPROPERTIES",
        "COMPUTE STATS",
        "REORG",
        "UPGRADE PROTOCOL",
        "ADD DELETION VECTORS TOMBSTONES",
    }
)
"""Delta's operations that leave the rows as they are; everybody may run them on our tables."""

_ANOTHER_TABLE = (
    "Give --output an empty folder (and a new --checkpoint), "
    "or restore the checkpoint of the query that wrote this table"
)


@dataclass(frozen=True, slots=True)
class Commit:
    """What our commits say about themselves."""

    query_id: str
    sink: str
    release: int
    through_us: int

    @property
    def metadata(self) -> str:
        """Text of `userMetadata` for the commit that carries the release's rows."""
        return self._text({"release": self.release, "through_us": self.through_us})

    @property
    def preparation(self) -> str:
        """Text of `userMetadata` for a commit that only makes the table fit for the release."""
        return self._text({"prepares": self.release})

    @property
    def application(self) -> str:
        """Name of Delta's own transaction identifier (`txnAppId`); its version is the release."""
        return f"{self.query_id}/{self.sink}"

    def _text(self, rest: Mapping[str, int]) -> str:
        return json.dumps({"tidegate": {"query_id": self.query_id, "sink": self.sink, **rest}})


@dataclass(frozen=True, slots=True)
class WrittenCommit:
    """One of our commits as it stands in the table; `through_us` is None for a preparation."""

    version: int
    release: int
    through_us: int | None
    metrics: Mapping[str, str] = field(default_factory=dict)


class CommitLog:
    """Our commits to the table at `path` (absolute, as Spark takes it)."""

    def __init__(self, spark: SparkSession, path: str, *, query_id: str, sink: str) -> None:
        """Know nothing yet; `load` reads what is there."""
        self.path = path
        self._files = Storage(spark, path)
        self._query_id = query_id
        self._sink = sink
        self._head = -1
        self._written: list[WrittenCommit] = []
        self._complete = True

    @property
    def exists(self) -> bool:
        """Whether the table has any commit."""
        return self._head >= 0

    def load(self, spark: SparkSession, *, limit: int | None = _RECENT) -> None:
        """Read the newest commits, or all without a limit.

        Raises ConfigError if one of them is neither ours nor maintenance.
        """
        if not DeltaTable.isDeltaTable(spark, self.path):
            return
        history = DeltaTable.forPath(spark, self.path).history(*(() if limit is None else (limit,)))
        rows = history.select("version", "operation", "userMetadata", "operationMetrics").collect()
        self._head = max(row["version"] for row in rows)
        self._written = []
        self._complete = limit is None or len(rows) < limit
        for row in sorted(rows, key=lambda row: int(row["version"])):
            self._take(
                row["version"], row["operation"], row["userMetadata"], row["operationMetrics"]
            )

    def follow(self) -> None:
        """Read the commits that came since the last look; raises ConfigError as `load` does.

        Reads the files that Delta's protocol names: `history()` would be a Spark job per release.
        """
        while (text := self._files.read(f"_delta_log/{self._head + 1:020d}.json")) is not None:
            self._head += 1
            info = _commit_info(text)
            self._take(
                self._head,
                info.get("operation", "of an unknown kind"),
                info.get("userMetadata"),
                info.get("operationMetrics", {}),
            )
        del self._written[:-_RECENT]
        self._complete = self._complete and len(self._written) < _RECENT

    def refuse_beyond(self, release_max: int) -> None:
        """Raise ConfigError if the table holds a release that the gate has never planned."""
        newest = self._written[-1].release if self._written else -1
        if newest > release_max:
            message = "a table holds a later release than this checkpoint knows"
            raise ConfigError(
                message,
                hint=_ANOTHER_TABLE,
                table=self.path,
                release_in_table=newest,
                release_in_checkpoint=release_max,
            )

    def written(self, spark: SparkSession, commit: Commit) -> WrittenCommit | None:
        """Return the commit that carries a release, or None if the table has not got it.

        Raises ConfigError if that commit says that the release ends elsewhere.
        """
        self._reach_back(spark, commit.release)
        for known in reversed(self._written):
            if known.release == commit.release and known.through_us is not None:
                if known.through_us != commit.through_us:
                    message = "a table holds this release with other bounds"
                    raise ConfigError(
                        message,
                        hint=_ANOTHER_TABLE,
                        table=self.path,
                        release=commit.release,
                        through_us_in_table=known.through_us,
                        through_us=commit.through_us,
                    )
                return known
        return None

    def version_at(self, spark: SparkSession, release: int) -> int:
        """Return the table's version as a release left it: the last of our commits up to it."""
        self._reach_back(spark, release)
        place = bisect_right([known.release for known in self._written], release)
        invariant(place > 0, "a table is older than its first commit", table=self.path)
        return self._written[place - 1].version

    def _reach_back(self, spark: SparkSession, release: int) -> None:
        if not self._complete and (not self._written or self._written[0].release > release):
            self.load(spark, limit=None)

    def _take(
        self, version: int, operation: str, user_metadata: str | None, metrics: Mapping[str, str]
    ) -> None:
        ours = _ours(user_metadata)
        if operation in _MAINTENANCE:
            return
        if ours is None or (ours["query_id"], ours["sink"]) != (self._query_id, self._sink):
            message = "a table holds commits of another writer"
            raise ConfigError(
                message,
                hint=_ANOTHER_TABLE,
                table=self.path,
                version=version,
                operation=operation,
                query_id=None if ours is None else ours["query_id"],
            )
        through_us = ours.get("through_us")
        release = ours["release"] if through_us is not None else ours["prepares"]
        if self._written:
            last = self._written[-1]
            follows = release > last.release or (
                last.through_us is None and release == last.release
            )
            invariant(follows, "a release is not above the one before it", table=self.path)
        self._written.append(WrittenCommit(version, release, through_us, dict(metrics or {})))


def _ours(user_metadata: str | None) -> dict[str, Any] | None:
    try:
        outer = json.loads(user_metadata or "null")
    except ValueError:
        return None
    inner = outer.get("tidegate") if isinstance(outer, dict) else None
    return inner if isinstance(inner, dict) else None


def _commit_info(commit_file: bytes) -> dict[str, Any]:
    """Return the `commitInfo` action of a commit file, which is one JSON action per line."""
    for line in commit_file.splitlines():
        action = json.loads(line)
        if "commitInfo" in action:
            info: dict[str, Any] = action["commitInfo"]
            return info
    return {}
