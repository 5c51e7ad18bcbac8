"""The Delta tables of a sink that takes batches: their commits have the numbers of batches.

Exactly once as with releases: a table's commit names the batch, a batch that it names is not
written again, and Delta ignores a repeated one of the same query.  Batches ascend, so the version
that a release's manifest names is the one after the release's batch: it has every change of the
release, and younger ones too.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.sinks.delta.tables import SinkTables
from tidegate.spark_consumer.sinks.handed_batch import HandedBatch
from tidegate.spark_consumer.sinks.manifest import Manifest
from tidegate.spark_consumer.sinks.port import Release, TableVersion
from tidegate.spark_consumer.sinks.tables import Commit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class KeyedTables(SinkTables):
    """Every table of the sink, written by Spark."""

    def open(self, spark: SparkSession, *, query_id: str, release_max: int) -> None:
        """Check every table as all sinks do; `release_max` is the highest planned batch.

        Raises ConfigError for a table with a later one.
        """
        super().open(spark, query_id=query_id, release_max=sys.maxsize)
        for log in self._logs.values():
            newest = log.newest_release
            if newest > release_max:
                raise ConfigError(
                    "a table holds a later batch than this checkpoint knows",
                    hint=(
                        "Restore the checkpoint of the query that wrote it; if it is lost, begin "
                        "with an empty --output and an empty --checkpoint"
                    ),
                    table=log.path,
                    batch_in_table=newest,
                    batch_in_checkpoint=release_max,
                )

    def _stands_at(self, manifest: Manifest, table: str) -> int:  # noqa: ARG002 - the same for all
        return manifest.batch

    def versions(self, spark: SparkSession, release: Release) -> dict[str, TableVersion]:
        """Return each table's version after the release's batch, of the tables that exist."""
        found = {}
        for one in release.tables.values():
            table = one.schemas.table
            log = self.log(spark, table)
            version = log.find_version(release.batch) if log.exists else None
            if version is not None:
                found[table] = TableVersion(self.path(table), version)
        return found


def commit_of(batch: HandedBatch, sink: str) -> Commit:
    """Return what the commits of a batch state about themselves."""
    return Commit(batch.query_id, sink, batch.number, batch.watermark_us)
