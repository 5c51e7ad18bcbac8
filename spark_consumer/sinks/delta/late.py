"""The table of late changes: those at or below a watermark that was already released.

The protocol excludes them.  If one appears all the same, it is kept as raw bytes with its
coordinates and the watermark that it missed; it is never dropped and never enters a release.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tidegate.spark_consumer.sinks.delta.side_table import append_once

_FOLDER = "late"


class DeltaLateTable:
    """A Delta table below the output, created with the first late change."""

    def __init__(self, output: str) -> None:
        """Take the output's folder."""
        self._path = f"{output}/{_FOLDER}"

    def write(self, rows: DataFrame, *, query_id: str, batch: int, watermark_us: int) -> int:
        """Append a batch's late changes; repeating the batch changes nothing.

        Returns how many rows the commit of the batch has added, by Delta's own count.
        """
        late = (
            rows.withColumn("batch", F.lit(batch).cast("long"))
            .withColumn("watermark_us", F.lit(watermark_us).cast("long"))
            .coalesce(1)
            .sortWithinPartitions("order_key")
        )
        return append_once(
            late,
            self._path,
            application=f"{query_id}/{_FOLDER}",
            version=batch,
            commit={"query_id": query_id, "sink": _FOLDER, "batch": batch},
        )
