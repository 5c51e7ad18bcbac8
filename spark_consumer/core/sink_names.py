"""Names of sinks that the gate, the checkpoint or other sinks refer to."""

from __future__ import annotations

CHANGELOG = "changelog"
"""Name of the sink that keeps every release, from which the mirror takes those that it lacks."""

MIRROR = "mirror"
"""Name of the sink that holds each row as it was at the watermark."""

HISTORY = "history"
"""Name of the sink that holds each row as it was at any time."""

ICEBERG_CHANGELOG = "iceberg_changelog"
"""Name of the sink that keeps every release in Iceberg tables; no mirror reads it."""

ICEBERG_MIRROR = "iceberg_mirror"
"""Name of the sink that holds each row as it was at the watermark, in Iceberg tables."""

MIRRORS = (MIRROR, HISTORY, ICEBERG_MIRROR)
"""The sinks that may be at an older release than the other sinks: all of these at the same one."""

CHANGELOG_BY_KEY = "changelog_by_key"
"""Name of the sink that appends each batch's changes to Delta tables."""

MIRROR_BY_KEY = "mirror_by_key"
"""Name of the sink that merges each batch's changes into Delta tables, the newest per row."""

PARQUET_BY_KEY = "parquet_by_key"
"""Name of the sink that writes each batch's changes as Parquet files."""

BY_KEY = (CHANGELOG_BY_KEY, MIRROR_BY_KEY, PARQUET_BY_KEY)
"""The sinks of the settings that take batches: their commits have the numbers of batches."""
