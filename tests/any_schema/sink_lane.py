"""A world on real sinks: both ways in turns, in a session as users have it, and three readers.

Each stage is a release, written to changelog, mirror and history by delta-rs twice, by Spark, and
by delta-rs again, so that each goes on after both; where there is time for it, Spark begins and
writes more.  Some worlds have Iceberg's sinks in their place, which Spark alone writes.  Between
two releases all sinks are made again, as by a restart.  What the tables hold in the end is compared
with a plain model, as several libraries read it.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.any_schema.changes import World, make_world
from tests.any_schema.plain_tables import PlainTable, comparable, plain_tables
from tests.any_schema.published import PublishedStage, publish
from tests.any_schema.readers import ICEBERG_READERS, READERS
from tests.any_schema.release import release_of
from tests.any_schema.values import plain_key
from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.sinks.delta.direct.place import DirectPlace
from tidegate.spark_consumer.sinks.delta.direct.way import DirectWay
from tidegate.spark_consumer.sinks.iceberg.catalog import IcebergPlace
from tidegate.spark_consumer.sinks.iceberg.mirror import IcebergMirrorSink
from tidegate.spark_consumer.sinks.kinds import changelog_sink, iceberg_changelog_sink
from tidegate.spark_consumer.sinks.merge.history import DeltaHistorySink
from tidegate.spark_consumer.sinks.merge.mirror import DeltaMirrorSink
from tidegate.spark_consumer.sinks.sql import session_settings
from tidegate.spark_consumer.spark.query_session import QuerySession

_SETTINGS: Mapping[str, tuple[str, ...]] = {
    "spark.sql.session.timeZone": ("Asia/Tokyo", "America/New_York"),
    "spark.sql.ansi.enabled": ("false",),
    "spark.sql.caseSensitive": ("true",),
    "spark.sql.adaptive.enabled": ("true",),
    "spark.sql.sources.partitionOverwriteMode": ("dynamic",),
    "spark.sql.timestampType": ("TIMESTAMP_NTZ",),
    "spark.sql.parquet.datetimeRebaseModeInWrite": ("LEGACY", "EXCEPTION"),
    "spark.sql.parquet.datetimeRebaseModeInRead": ("LEGACY", "EXCEPTION"),
    "spark.sql.avro.datetimeRebaseModeInRead": ("LEGACY", "EXCEPTION"),
    "spark.sql.parquet.outputTimestampType": ("TIMESTAMP_MILLIS", "INT96"),
    "spark.sql.storeAssignmentPolicy": ("LEGACY", "STRICT"),
    "spark.sql.decimalOperations.allowPrecisionLoss": ("false",),
    "spark.sql.legacy.charVarcharAsString": ("true",),
}
"""What users set on sessions that are theirs."""

_COMPACTED = {
    "spark.databricks.delta.autoCompact.enabled": "true",
    "spark.databricks.delta.autoCompact.minNumFiles": "2",
}
PER_MERGE = (1, 56, 3, 2, 5, 7, 9, 10, 13, 16, 20, 22)
"""Seeds of a dozen worlds: of them each type of a key is the first column once, and the first three
meet the faults of `tests/mutants/broken_schemas.py`."""
_WITH_HISTORY = frozenset((3, 7, 10, 13, 22, 56))
_WITH_COMPACTION = frozenset((3, 5, 22))
_WITH_ICEBERG = frozenset((20,))

_DELTA = (changelog_sink, DeltaMirrorSink, DeltaHistorySink)
_ICEBERG_SHARE = 0.15
_ICEBERG = (iceberg_changelog_sink, IcebergMirrorSink)


@dataclass
class SinkWorld:
    """A world, the session that its sinks are given, and who writes which release."""

    world: World
    sinks: tuple[Callable[..., Any], ...]
    by_spark: tuple[bool, ...]
    """Whether Spark writes a release."""
    settings: Mapping[str, str]
    is_compacted: bool
    """Whether the session lets Delta compact tables on its own."""

    def differences(self, spark: Any, folder: Path) -> list[str]:
        """Write everything below a folder; return a line for each difference."""
        stages = publish(self.world)
        with session_settings(spark, self.settings):
            own = QuerySession(spark).spark
        for number, stage in enumerate(stages):
            self._write(own, folder, number, stage)
        # A reader has a session of its own.
        return list(self._compared(spark, folder, plain_tables(self.world.stages)))

    def _write(self, spark: Any, folder: Path, number: int, stage: PublishedStage) -> None:
        rows = [one.row(ordinal) for ordinal, one in enumerate(stage.changes)]
        small = not self.by_spark[number]
        release = release_of(spark, rows, stage.schemas, number=number, small=small)
        for make in self.sinks:
            sink = _made(make, spark, folder, small=small)
            sink.open(query_id="query-1", release_max=number)
            sink.write(release)

    def _compared(
        self, spark: Any, folder: Path, tables: Mapping[str, PlainTable]
    ) -> Iterator[str]:
        kinds = [kind for make in self.sinks for kind in _KINDS[make]]
        is_iceberg = self.sinks == _ICEBERG
        place = _place(spark, folder)
        for (table, meant), kind in itertools.product(tables.items(), kinds):
            path = folder / (place.path(kind, table) if is_iceberg else f"{kind}/{table}")
            wanted = Counter(repr(row) for row in _meant(meant)[kind])
            for reader, read in (ICEBERG_READERS if is_iceberg else READERS).items():
                if reader == "Spark" and kind not in {"mirror", "history"}:
                    continue  # a job of Spark's for each would cost more than the writing
                rows = read(spark, path) if path.exists() else []
                found = Counter(repr(_FORMS[kind](row, meant.key)) for row in rows)
                yield from (f"{reader}, {kind}, {table} lacks {one:.400}" for one in wanted - found)
                yield from (f"{reader}, {kind}, {table} has {one:.400}" for one in found - wanted)


def sink_world(
    seed: int, *, is_long: bool = False, is_iceberg: bool | None = None, **shape: Any
) -> SinkWorld:
    """Return the world of a seed, as the Spark lane has it.

    A MERGE by Spark costs seconds, so it is into a mirror or a history, and Spark writes one
    release among those of delta-rs; in a long world it writes two, to both.  All of Iceberg's are
    such, so a world of it is shorter.  Without `is_iceberg` the seed decides about the form.
    """
    # The choices before those of the world: they stay the same when more worlds can be drawn.
    rng = random.Random(seed)
    by_spark = (True, False, True, False) if is_long else (False, False, True, False)
    merging, is_compacted = rng.choice((DeltaMirrorSink, DeltaHistorySink)), rng.random() < 0.2
    settings = {
        name: rng.choice(values) for name, values in _SETTINGS.items() if rng.random() < 0.4
    }
    # The last choice, for the same reason.
    is_drawn = rng.random() < _ICEBERG_SHARE
    if seed in PER_MERGE:
        is_drawn = seed in _WITH_ICEBERG
        merging = DeltaHistorySink if seed in _WITH_HISTORY else DeltaMirrorSink
        is_compacted = seed in _WITH_COMPACTION
    sinks: tuple[Callable[..., Any], ...] = _DELTA if is_long else (changelog_sink, merging)
    if is_drawn if is_iceberg is None else is_iceberg:
        sinks, by_spark = _ICEBERG, by_spark if is_long else (False, True, False)
    shape = {"tables": 1, "transactions": 3, "columns_max": 12, "stages": len(by_spark), **shape}
    return SinkWorld(
        make_world(random.Random(seed), seed=seed, **shape),
        sinks,
        by_spark,
        {**settings, **(_COMPACTED if is_compacted else {})},
        is_compacted,
    )


def _made(make: Callable[..., Any], spark: Any, folder: Path, *, small: bool) -> Any:
    # Releases that are not small are written as where there is no delta-rs.
    direct = DirectWay(DirectPlace(str(folder))) if small else None
    if make not in _ICEBERG:
        return make(spark, str(folder), direct=direct)
    place = _place(spark, folder)
    return make(spark, Storage(spark, str(folder)).root, place)


def _place(spark: Any, folder: Path) -> IcebergPlace:
    return IcebergPlace.of(Storage(spark, str(folder)).root, prefix="bank")


def _meant(table: PlainTable) -> dict[str, list[Any]]:
    return {
        "changelog": [comparable(row) for row in table.changelog],
        "mirror": [comparable(row, table.key) for row in table.mirror.values()],
        "history": [comparable(row, table.key) for row in table.versions],
        "incomplete": table.incomplete,
        "history_incomplete": table.history_incomplete,
    }


def _logged(row: dict[str, Any], _keys: tuple[str, ...]) -> Any:
    fields = ("release", "ordinal", "mod_type", "commit_timestamp", "server_transaction_id",
              "record_sequence", "mod_number")  # fmt: skip
    sides = {side: comparable(_captured(row, side)) for side in ("new", "old")}
    key = tuple(map(plain_key, row["key"].values()))
    return comparable({**{name: row[name] for name in fields}, "key": key, **sides})


def _captured(row: dict[str, Any], side: str) -> dict[str, Any] | None:
    values, names = row[f"{side}_values"], row[f"{side}_columns"]
    if values is None:
        return None
    return {name.lower(): values[name] for name in (values if names is None else names)}


def _row(row: dict[str, Any], keys: tuple[str, ...]) -> Any:
    return comparable(
        {name.lower(): value for name, value in row.items() if name != "is_current"}, keys
    )


def _aside(row: dict[str, Any], _keys: tuple[str, ...]) -> Any:
    return row["release"], row["ordinal"]


_KINDS: Mapping[Callable[..., Any], tuple[str, ...]] = {
    changelog_sink: ("changelog",),
    iceberg_changelog_sink: ("changelog",),
    IcebergMirrorSink: ("mirror", "incomplete"),
    DeltaMirrorSink: ("mirror", "incomplete"),
    DeltaHistorySink: ("history", "history_incomplete"),
}
"""The tables that a sink writes, by what makes it."""
_FORMS = {
    "changelog": _logged,
    "mirror": _row,
    "history": _row,
    "incomplete": _aside,
    "history_incomplete": _aside,
}
