"""Goes on with tables in which others have changed rows, where that undid no release.

Somebody deleted rows on purpose (a request for erasure, for instance).  Nothing of that can be
taken back, so the tables are left as they are; a commit of ours, which only sets a property, says
up to which version the changes of others are accepted.  It is in the table's own log, so it holds
for every later run and is lost with the table only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.core.hand_over import CHANGELOG_BY_KEY, MIRROR_BY_KEY
from tidegate.spark_consumer.sinks.delta.commit_log import Commit, CommitLog
from tidegate.spark_consumer.sinks.delta.history import DeltaHistory
from tidegate.spark_consumer.sinks.session_settings import session_settings
from tidegate.spark_consumer.sinks.sql_names import quoted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_SINKS = ("changelog", "mirror", "incomplete", "history", "history_incomplete")
"""Each has a folder of its name."""

_BY_KEY = (CHANGELOG_BY_KEY, MIRROR_BY_KEY)
"""Sinks likewise whose commits have the numbers of batches, which prove no release."""


@dataclass(frozen=True, slots=True)
class AdoptedChange:
    """A commit of others that is accepted now; `table` is relative to the output."""

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
    """Accept what others have changed in the tables of an output; repeating it changes nothing.

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
    """Return the commit log of each table of an output, with its sink and name, not read yet.

    Without `sinks` they are those whose commits name releases.
    """
    files = Storage(spark, output)
    for sink in sinks:
        for table in files.names(sink):
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
