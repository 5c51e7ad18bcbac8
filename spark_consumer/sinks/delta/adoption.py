"""Adopts tables and outputs: rows that another writer changed, a checkpoint that was lost.

Rows may have been deleted on purpose (a request for erasure, for instance).  That cannot be undone,
so the tables are left unchanged; a commit of Tidegate's, which only sets a property, says up to
which version foreign changes are accepted.  It is in the table's log, so it applies to every later
run and is lost with the table only.

If the checkpoint is lost or older than the tables, the output itself proves its newest release.
The newest manifest is written after everything that it names, and the commits of the tables name
releases.  Together they show which release is whole, and whether the next one was begun.  Mirrors
may be at an older release, and some of them may have taken the rest already: the next run repeats
that merge.  Where manifest and tables contradict each other, or history is missing, nothing is
proved.  The proof writes nothing and needs no Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.core.batch_state import OutputProof
from tidegate.spark_consumer.core.sink_names import (
    CHANGELOG,
    CHANGELOG_BY_KEY,
    HISTORY,
    MIRROR,
    MIRROR_BY_KEY,
)
from tidegate.spark_consumer.sinks.delta.commit_log import CommitLog
from tidegate.spark_consumer.sinks.delta.log_files import DeltaHistory
from tidegate.spark_consumer.sinks.manifest import Manifest
from tidegate.spark_consumer.sinks.port import TableVersion
from tidegate.spark_consumer.sinks.sql import quoted, session_settings
from tidegate.spark_consumer.sinks.tables import Commit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_SINKS = ("changelog", "mirror", "incomplete", "history", "history_incomplete")
"""Each has a folder of its name."""

_BY_KEY = (CHANGELOG_BY_KEY, MIRROR_BY_KEY)
"""Sinks whose commits have the numbers of batches, which prove no release; folders likewise."""

_HINT = "Start with a new output and a new checkpoint"

_PROVING = frozenset({CHANGELOG, MIRROR, HISTORY})
"""Sinks of Delta, whose tables have a history; after an adoption any other sink joins."""


@dataclass(frozen=True, slots=True)
class AdoptedChange:
    """A foreign commit that is accepted now; `table` is relative to the output."""

    table: str
    version: int
    operation: str


def adopt_changes(
    spark: SparkSession,
    output: str,
    *,
    query_id: str,
    release_max: int,
    batch_max: int = -1,
    step: Callable[[str], None] = lambda _name: None,
) -> list[AdoptedChange]:
    """Accept the foreign changes in the tables of an output; repeating it changes nothing.

    `release_max` is the highest release that the checkpoint names, `batch_max` the highest batch;
    `step` is called with the name of each step.

    Raises ForeignChange, before anything is accepted, if one of the changes may have undone a
    release, and ConfigError for a table that is ahead of the checkpoint or of another query.
    """
    logs = list(table_logs(spark, output, query_id=query_id, sinks=(*_SINKS, *_BY_KEY)))
    for number, (sink, table, log) in enumerate(logs, 1):
        step(f"log {number} of {len(logs)}: {sink}/{table}")
        log.survey()
        log.require_adoptable()
        log.refuse_beyond(batch_max if sink in _BY_KEY else release_max)
    adopted = []
    for sink, table, log in logs:
        adopted += [
            AdoptedChange(f"{sink}/{table}", commit.version, commit.operation)
            for commit in log.foreign
        ]
        if log.foreign:
            step(f"acceptance in {sink}/{table}")
            _accept(spark, log, query_id=query_id, sink=sink)
            log.load()
    return adopted


def table_logs(
    spark: SparkSession, output: str, *, query_id: str, sinks: Iterable[str] = _SINKS
) -> Iterator[tuple[str, str, CommitLog]]:
    """Yield sink, name and commit log of each table of an output; the logs are not read yet.

    Without `sinks` they are the tables whose commits name releases.
    """
    files = Storage(spark, output)
    for sink in sinks:
        for table in files.table_names(sink):
            path = files.path(f"{sink}/{table}")
            history = DeltaHistory(spark, path)
            yield sink, table, CommitLog(history, path, query_id=query_id, sink=sink)


def _accept(spark: SparkSession, log: CommitLog, *, query_id: str, sink: str) -> None:
    """Commit the acceptance of everything up to the version that was read."""
    metadata = Commit.adoption(query_id, sink, version=log.head)
    with session_settings(spark, {"spark.databricks.delta.commitInfo.userMetadata": metadata}):
        spark.sql(
            f"ALTER TABLE {quoted('delta', log.path)} "
            f"SET TBLPROPERTIES ('tidegate.adoptedThrough' = '{log.head}')"
        )


def prove_output(
    manifest: Manifest | None,
    logs: Mapping[tuple[str, str], CommitLog],
    *,
    manifest_of: Callable[[int], Manifest | None] = lambda _: None,
    step: Callable[[str], None] = lambda _name: None,
) -> OutputProof:
    """Return what the newest manifest and all tables prove together.

    `logs` are by sink and table, and not read yet; `manifest_of` reads the manifest of an earlier
    release; `step` is called with the name of each step.  Raises ConfigError if they prove nothing,
    and the errors of `CommitLog.load`.
    """
    if manifest is None:
        raise _unproven("the output has no release manifest")
    for number, ((sink, table), log) in enumerate(logs.items(), 1):
        step(f"log {number} of {len(logs)}: {sink}/{table}")
        log.load(limit=None)
        _require_no_deleted_release(log, manifest)
    for table, sinks in manifest.tables.items():
        for sink, named in sinks.items():
            if sink in _PROVING:
                _require_version(logs.get((sink, table)), manifest, named)
    ahead: set[tuple[int, int | None]] = {
        (commit.release, commit.through_us)
        for log in logs.values()
        for commit in log.commits
        if commit.release > manifest.release and commit.through_us is not None
    }
    cut = _mirror_cut(manifest, logs, manifest_of)
    return OutputProof(
        query_id=manifest.query_id,
        release=manifest.release,
        through_us=manifest.through_us,
        sinks=_sinks_of(manifest),
        begun_through_us=_begun(manifest, ahead),
        complete_from_us=manifest.complete_from_us,
        mirror_release=None if cut is None else cut.release,
        mirror_through_us=None if cut is None else cut.through_us,
    )


def _mirror_cut(
    manifest: Manifest,
    logs: Mapping[tuple[str, str], CommitLog],
    manifest_of: Callable[[int], Manifest | None],
) -> Manifest | None:
    """Return the manifest of the release that the mirrors have, None if that is the newest.

    A merge takes everything up to the newest manifest, and until it is done no later release is
    written to mirrors: they hold nothing else after their cut.
    """
    stands_at = manifest.mirror_release
    if stands_at is None or stands_at == manifest.release:
        return None
    later = {
        commit.release
        for (sink, _), log in logs.items()
        if sink != CHANGELOG
        for commit in log.commits
        if commit.release > stands_at
    }
    cut = manifest_of(stands_at)
    if cut is None or later - {manifest.release}:
        raise _unproven(
            "the mirrors stand at a release without a manifest, or hold others after it",
            release=manifest.release,
            mirror_release=stands_at,
            releases_in_mirrors=sorted(later),
        )
    return cut


def _require_version(log: CommitLog | None, manifest: Manifest, named: TableVersion) -> None:
    stands_at = manifest.release if named.release is None else named.release
    commits = [] if log is None else [c for c in log.commits if c.release <= stands_at]
    if log is not None and not log.knows_after(stands_at):
        # Delta has deleted the commit; the table itself still says which release it holds.
        holds = log.newest_release
        is_known = bool(log.commits) or holds <= stands_at or holds == manifest.release
        if log.head >= named.version and is_known:
            return
    if not commits or commits[-1].version != named.version:
        raise _unproven(
            "the history of a table does not have the version that the newest manifest names",
            table=named.path,
            version=named.version,
            found=commits[-1].version if commits else None,
            release=manifest.release,
        )


def _require_no_deleted_release(log: CommitLog, manifest: Manifest) -> None:
    """Raise ConfigError if a table holds a release after the manifest's and its commit is gone."""
    if not log.commits and log.newest_release > manifest.release:
        raise _unproven(
            "the commit of a release that no manifest names was deleted from a table's log",
            table=log.path,
            release_in_table=log.newest_release,
            release=manifest.release,
        )


def _begun(manifest: Manifest, ahead: set[tuple[int, int | None]]) -> int | None:
    """Return the end of the only release that the tables have begun after the manifest's."""
    if not ahead:
        return None
    (release, through_us), *further = sorted(ahead, key=str)
    follows = release == manifest.release + 1
    if further or not follows or through_us is None or through_us <= manifest.through_us:
        raise _unproven(
            "the tables hold releases that no manifest names",
            release_in_manifest=manifest.release,
            releases_in_tables=sorted({number for number, _ in ahead}),
        )
    return through_us


def _sinks_of(manifest: Manifest) -> tuple[str, ...]:
    sinks_in_manifest = {sink: None for sinks in manifest.tables.values() for sink in sinks}
    names = [sink for sink in sinks_in_manifest if sink in _PROVING]
    if not names:
        raise _unproven("the newest manifest names no Delta table", release=manifest.release)
    return tuple(names)


def _unproven(message: str, **fields: Any) -> ConfigError:
    return ConfigError(f"the output cannot be adopted: {message}", hint=_HINT, **fields)
