"""The side table of late changes: what came at or below a watermark that had already been released.

By the protocol there are none.  If there are, they are kept as raw bytes with their coordinates and
the watermark that they missed; they are never dropped in silence and never enter a release.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["LateTable"]

_FOLDER = "late"


class LateTable:
    """A Delta table below the output; made when the first late change comes."""

    def __init__(self, output: str) -> None:
        """Take the output's folder."""
        self._path = f"{output}/{_FOLDER}"

    def write(self, rows: DataFrame, *, query_id: str, batch: int, watermark_us: int) -> None:
        """Append a batch's late changes; a repetition of the batch changes nothing."""
        metadata = {"query_id": query_id, "sink": _FOLDER, "batch": batch}
        (
            rows.withColumn("batch", F.lit(batch).cast("long"))
            .withColumn("watermark_us", F.lit(watermark_us).cast("long"))
            .coalesce(1)
            .sortWithinPartitions("order_key")
            .write.format("delta")
            .mode("append")
            .option("delta.enableDeletionVectors", "false")
            .option("txnAppId", f"{query_id}/{_FOLDER}")
            .option("txnVersion", batch)
            .option("userMetadata", json.dumps({"tidegate": metadata}))
            .save(self._path)
        )
