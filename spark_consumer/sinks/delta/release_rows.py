"""The changes of a published release, read from the changelogs without Spark."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from heapq import merge
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from tidegate.spark_consumer.core.cadence import CHANGELOG
from tidegate.spark_consumer.sinks.manifest import Manifest

if TYPE_CHECKING:
    from tidegate.spark_consumer.sinks.delta.direct_way import DirectWay


_PLACE = itemgetter("ordinal")


def release_rows(
    direct: DirectWay, manifest: Manifest, tables: Collection[str] = ()
) -> Iterator[Mapping[str, Any]] | None:
    """Return a release's changes over its tables in commit order, each with its `table`.

    `tables` are those that are wanted; empty: all.  Values are Python's.  None if the release may
    be too large for `direct`, or only Spark can read one of the tables.
    """
    rows: list[list[Mapping[str, Any]]] = []
    for table, sinks in manifest.tables.items():
        version = sinks.get(CHANGELOG)
        if version is None or not version.rows or (tables and table not in tables):
            continue
        found = direct.changes(version.path, after=manifest.release - 1, through=manifest.release)
        if found is None:
            return None
        rows.append(sorted(({**one, "table": table} for one in found), key=_PLACE))
    return merge(*rows, key=_PLACE)
