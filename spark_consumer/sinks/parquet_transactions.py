"""Every transaction as a row in Parquet files: a folder for each release.

`<output>/parquet_transactions/<release, 12 digits>`, with the columns and the rules of the sinks
`transactions` and `parquet`: a folder is published by its release's manifest.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.spark_consumer.sinks.parquet import OutputFolder, ReleaseFolders
from tidegate.spark_consumer.sinks.port import Release, TableVersion
from tidegate.spark_consumer.sinks.released_frame import json_transactions_of, wide_rows

PARQUET_TRANSACTIONS = "parquet_transactions"
"""Name of the sink, and its folder in the output."""


class ParquetTransactionsSink:
    """Writes a release's folder; the output is as after one write however often it is."""

    name = PARQUET_TRANSACTIONS

    def __init__(self, output: OutputFolder) -> None:
        """Take the output of the query."""
        self._folders = ReleaseFolders(output, folder=self.name)

    def open(self, *, query_id: str, release_max: int) -> None:
        """Refuse files of another query, or ahead of this one's checkpoint, with ConfigError."""
        self._folders.open(query_id=query_id, release_max=release_max)

    def write(self, release: Release) -> Mapping[str, TableVersion]:
        """Write the folder if it is not there yet; a release without a change gets none.

        The versions that it returns are numbers of releases.
        """
        changed = [one for one in release.tables.values() if one.rows]
        if not changed:
            return {}
        self._folders.begin(release)
        path = f"{self.name}/{release.number:012d}"
        spark = changed[0].spark
        with wide_rows(spark):
            self._folders.write(path, lambda: json_transactions_of(release, spark))
        version = TableVersion(path, release.number)
        return {one.schemas.table: version for one in changed}
