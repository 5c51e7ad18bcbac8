"""Compares the Iceberg sinks with the commit log: the changelog change by change, mirrors by cut.

Pure, but for `iceberg_changelogs` and `iceberg_cuts`, which read what the sinks hold.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.chaos.iceberg_tables import iceberg_folders, read_iceberg
from tidegate.local_stack.judge.changelog import compare_changelog
from tidegate.local_stack.judge.delta import (
    ChangelogTable,
    ReleaseManifest,
    changelog_table,
    table_rows,
)
from tidegate.local_stack.judge.log import LoggedTransaction
from tidegate.local_stack.judge.source import SourceTable
from tidegate.local_stack.judge.values import canonical_json

_WAREHOUSE = "iceberg"
_MIRROR = "iceberg_mirror"

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Cut:
    """The rows of all mirrors at a release, by table; `through_us` is the release's end."""

    release: int
    through_us: int
    rows: Mapping[str, Sequence[Values]]


def iceberg_changelogs(output: Path) -> list[ChangelogTable]:
    """Return the changelogs as readers see them."""
    folders = iceberg_folders(output / _WAREHOUSE, "changelog")
    return [changelog_table(table, read_iceberg(folder)) for table, folder in folders.items()]


def iceberg_cuts(output: Path) -> list[Cut]:
    """Return the mirrors at each release that manifests name, and as readers see them."""
    folders = iceberg_folders(output / _WAREHOUSE, "mirror")
    manifests = [json.loads(path.read_bytes()) for path in sorted(_manifests(output))]
    ends_us = {one["release"]: one["through_us"] for one in manifests}
    named: dict[int, dict[str, int]] = {}
    for manifest in manifests:
        for table, sinks in manifest["tables"].items():
            if entry := sinks.get(_MIRROR):
                stands_at = entry.get("release", manifest["release"])
                named.setdefault(stands_at, {})[table] = entry["version"]
    cuts = [
        Cut(release, ends_us[release], _rows(folders, snapshots))
        for release, snapshots in sorted(named.items())
    ]
    newest = [Cut(cuts[-1].release, cuts[-1].through_us, _rows(folders, {}))] if cuts else []
    return [*cuts, *newest]


def compare_iceberg_changelog(
    changelogs: Sequence[ChangelogTable],
    committed: Sequence[LoggedTransaction],
    *,
    releases: Sequence[ReleaseManifest],
) -> list[str]:
    """Return the first five faults of each kind; `committed` is all that it must hold."""
    figures = compare_changelog(committed, changelogs=changelogs, manifests=releases)
    return list(figures.examples)


def compare_cuts_of_mirror(
    cuts: Sequence[Cut],
    committed: Iterable[LoggedTransaction],
    *,
    changelogs: Iterable[ChangelogTable],
    layout: Mapping[str, SourceTable],
    newest: ReleaseManifest | None,
) -> list[str]:
    """Return rows that are missing, there twice, invented or unlike the source at a cut's time.

    The source is the transactions applied in commit order; the last cut has to be of the newest
    release.  Types of columns are those of the changelogs.
    """
    types = {one.table: one.types for one in changelogs}
    transactions = sorted(
        committed, key=lambda one: (one.commit_timestamp_us, one.server_transaction_id)
    )
    source: dict[str, dict[tuple[Any, ...], dict[str, Any]]] = {table: {} for table in layout}
    faults: list[str] = []
    done = 0
    for cut in sorted(cuts, key=lambda one: one.release):
        while done < len(transactions) and transactions[done].commit_timestamp_us <= cut.through_us:
            _apply(transactions[done], source, types=types, layout=layout)
            done += 1
        for table in layout:
            rows = cut.rows.get(table, ())
            found = _differences(rows, source[table], key=layout[table].key)
            faults.extend(f"{table} at release {cut.release}: {fault}" for fault in found)
    if newest is not None and newest.number not in {cut.release for cut in cuts}:
        faults.append(f"no mirror has release {newest.number}")
    return faults


def _manifests(output: Path) -> Iterator[Path]:
    return (output / "_releases").glob("0*.json")


def _rows(folders: Mapping[str, Path], snapshots: Mapping[str, int]) -> dict[str, list[Values]]:
    """Return the rows of tables at their snapshots; without any, of all tables as they are now."""
    found: dict[str, list[Values]] = {}
    for table in folders.keys() & (snapshots or folders).keys():
        rows = found[table] = []
        for _, content in read_iceberg(folders[table], snapshot=snapshots.get(table)):
            columns = table_rows(content)
            rows += [
                dict(zip(columns, values, strict=True))
                for values in zip(*columns.values(), strict=True)
            ]
    return found


def _apply(
    transaction: LoggedTransaction,
    source: Mapping[str, dict[tuple[Any, ...], dict[str, Any]]],
    *,
    types: Mapping[str, Mapping[str, pa.DataType]],
    layout: Mapping[str, SourceTable],
) -> None:
    for change in sorted(transaction.changes, key=lambda one: one.place):
        kinds, rows = types.get(change.table, {}), source[change.table]
        values = {
            name: canonical_json(value, kinds.get(name, pa.string()))
            for name, value in {**change.keys, **change.new_values}.items()
        }
        key = tuple(values[name] for name in layout[change.table].key)
        if change.mod_type == "DELETE":
            del rows[key]
        elif change.mod_type == "INSERT":
            rows[key] = {**dict.fromkeys(layout[change.table].columns), **values}
        else:
            rows[key].update(values)


def _differences(
    found: Sequence[Values],
    expected: Mapping[tuple[Any, ...], Values],
    *,
    key: Sequence[str],
) -> Iterator[str]:
    counts = Counter(tuple(row[name] for name in key) for row in found)
    yield from (f"lacks {one}" for one in expected if one not in counts)
    yield from (f"has {one} {count} times" for one, count in counts.items() if count > 1)
    yield from (f"has {one}, which the source has not" for one in counts if one not in expected)
    for row in found:
        one = tuple(row[name] for name in key)
        if one in expected and dict(row) != dict(expected[one]):
            yield f"has {dict(row)}, the source has {dict(expected[one])}"
