"""Compares the other sinks with the changelog, the mirror and the commit log."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.parquet
from deltalake import DeltaTable

from tests.chaos.judge.iceberg import IcebergReader
from tests.chaos.judge.order_key import place_of
from tests.chaos.judge.published import Findings
from tests.chaos.judge.topics import topics_in
from tests.chaos.judge.transaction_rows import compare_transactions, differences
from tidegate.local_stack.judge.changelog import compare_changelog
from tidegate.local_stack.judge.cuts import SourceReader, compare_cuts
from tidegate.local_stack.judge.delta import (
    ChangelogTable,
    DeltaReader,
    ReleaseManifest,
    delta_files,
)
from tidegate.local_stack.judge.log import LoggedTransaction, Place
from tidegate.local_stack.judge.topics import committed_messages

Row = Mapping[str, Any]

_OF_HISTORY = ("valid_from", "valid_to", "is_current")
_OF_KEYS = ("row_state", "order_key", "column_updates")


def judge_sinks(
    output: Path,
    begins: Mapping[str, int],
    *,
    bootstrap_servers: str,
    ordered_topic: str,
    transactions: Sequence[LoggedTransaction],
    source: SourceReader,
    cuts_from_us: int = 0,
) -> Findings:
    """Return what is wrong, by sink, once everything is released and merged.

    `begins` has the first release of a sink; 0 for a sink that it does not name.  Releases before
    `cuts_from_us` are not compared with the source.
    """
    delta, iceberg = DeltaReader(output), IcebergReader(output / "iceberg")
    manifests = delta.manifests()
    changelogs = [delta.changelog(table) for table in delta.changelog_tables()]
    types = {changelog.table: changelog.types for changelog in changelogs}
    mirrors = {table: _rows(output / "mirror" / table) for table in source.tables()}
    wrong: Findings = {
        "history": [
            fault
            for table, rows in mirrors.items()
            for fault in compare_histories(_rows(output / "history" / table), rows, table=table)
        ]
    }
    files = _places_of_datastream_files(output)
    places = {
        "topic": _places_of_topic(bootstrap_servers, ordered_topic),
        "parquet": _places_of_parquet(output),
        "datastream_files": sorted(place for own in files.values() for place in own),
    }
    for name, found in places.items():
        expected = _released(changelogs, begins.get(name, 0))
        wrong["ordered_topic" if name == "topic" else name] = compare_places(found, expected)
    wrong["datastream_files"] += [
        f"the files of {table} are not in commit order"
        for table, own in files.items()
        if own != sorted(own)
    ]
    by_key = output / "changelog_by_key"
    wrong["changelog_by_key"] = compare_changelog_by_key(
        {one.name: in_order_of_batches(_files(one)) for one in sorted(by_key.glob("*"))},
        _released(changelogs, 0),
    )
    wrong["mirror_by_key"] = [
        fault
        for table, rows in mirrors.items()
        for fault in compare_mirror_by_key(
            _rows(output / "mirror_by_key" / table),
            rows,
            table=table,
            key=source.primary_key(table),
        )
    ]
    parquet = [rows for _, rows in _parquet_folders(output, "parquet_transactions")]
    of_transactions = {
        "transactions": _files(output / "transactions"),
        "parquet_transactions": parquet,
    }
    for name, contents in of_transactions.items():
        releases, committed = since(begins.get(name, 0), manifests, transactions)
        wrong[name] = compare_transactions(contents, committed, releases=releases, types=types)
    releases, committed = since(begins.get("iceberg_changelog", 0), manifests, transactions)
    figures = compare_changelog(committed, changelogs=iceberg.changelogs(), manifests=releases)
    wrong["iceberg_changelog"] = list(figures.examples)
    every = delta.manifests(mirror="iceberg_mirror")
    joined = [
        one
        for one in every
        if one.through_us >= cuts_from_us
        and any(entry.mirror_version is not None for entry in one.tables.values())
    ]
    cuts = compare_cuts(joined, mirrors=iceberg, source=source, bounds=every)
    wrong["iceberg_mirror"] = list(cuts.examples)
    return wrong


def since(
    first: int, manifests: Sequence[ReleaseManifest], transactions: Iterable[LoggedTransaction]
) -> tuple[list[ReleaseManifest], list[LoggedTransaction]]:
    """Return the releases from one on, and the transactions that were committed after it began.

    No release ends inside a commit timestamp, so these are those of the releases.
    """
    kept = [manifest for manifest in manifests if manifest.number >= first]
    if not kept:
        return [], []
    after_us = kept[0].after_us if first else -1
    return kept, [
        transaction for transaction in transactions if transaction.commit_timestamp_us > after_us
    ]


def compare_places(found: Sequence[Place], expected: Sequence[Place]) -> list[str]:
    """Return where two lists of changes differ: first what is missing, twice or too much."""
    if list(found) == list(expected):
        return []
    return differences(found, expected) or ["the changes are not in commit order"]


def compare_histories(versions: Sequence[Row], mirror: Sequence[Row], *, table: str) -> list[str]:
    """Return versions of no duration, and current rows that are not the mirror's."""
    faults = [
        f"{table}: a version ends at {version['valid_to']}, where it begins"
        for version in versions
        if version["valid_to"] is not None and version["valid_to"] <= version["valid_from"]
    ]
    current = [
        _without(version, _OF_HISTORY) for version in versions if version["valid_to"] is None
    ]
    return [*faults, *_unlike(current, mirror, table)]


def in_order_of_batches(files: Sequence[Sequence[Row]]) -> list[Row]:
    """Return the rows of a table's files as they were appended; `files` are in the order of names.

    Names begin with the number of the slice, so they order the files of one batch.
    """
    batches = sorted((rows for rows in files if rows), key=lambda rows: rows[0]["batch"])
    return [row for rows in batches for row in rows]


def compare_changelog_by_key(
    tables: Mapping[str, Sequence[Row]], expected: Collection[Place]
) -> list[str]:
    """Return changes that are missing, there twice, invented, or after a newer one of their key.

    `tables` has each table's rows in the order in which they were appended; `expected` are all
    changes.
    """
    placed = {
        table: [(place_of(row["order_key"]), repr(row["key"])) for row in rows]
        for table, rows in tables.items()
    }
    faults = differences([place for rows in placed.values() for place, _ in rows], expected)
    for table, rows in placed.items():
        newest: dict[str, Place] = {}
        for place, key in rows:
            if key in newest and newest[key] > place:
                faults.append(f"{table}: {place} of {key} is behind a newer one")
            newest[key] = place
    return faults


def compare_mirror_by_key(
    found: Sequence[Row], mirror: Sequence[Row], *, table: str, key: Sequence[str]
) -> list[str]:
    """Return rows that the mirror has not, or has with other values, and keys that are there twice.

    Both are of the same moment, at which no change waits for the watermark.
    """
    counts = Counter(tuple(row[name] for name in key) for row in found)
    faults = [f"{table}: has {one} {count} times" for one, count in counts.items() if count > 1]
    alive = [_without(row, _OF_KEYS) for row in found if row["row_state"] != "deleted"]
    return [*faults, *_unlike(alive, mirror, table)]


def _without(row: Row, names: Collection[str]) -> Row:
    return {name: value for name, value in row.items() if name not in names}


def _unlike(rows: Iterable[Row], mirror: Iterable[Row], table: str) -> list[str]:
    """Compare rows with those of the mirror, in any order."""
    unlike = Counter(repr(sorted(row.items())) for row in rows)
    unlike.subtract(repr(sorted(row.items())) for row in mirror)
    return [
        f"{table}: has {row}, unlike the mirror" if count > 0 else f"{table}: lacks {row}"
        for row, count in unlike.items()
        if count
    ]


# ---------------------------------------------------------------- what the sinks have


def _released(changelogs: Sequence[ChangelogTable], first: int) -> list[Place]:
    """Return the changes from a release on, in the order of releases and ordinals."""
    rows = [row for changelog in changelogs for row in changelog.rows if row.release >= first]
    return [row.place for row in sorted(rows, key=lambda row: (row.release, row.ordinal))]


def _files(table: Path) -> list[list[dict[str, Any]]]:
    """Return the rows of each file of a Delta table, none of a table that is absent."""
    if not (table / "_delta_log").is_dir():
        return []
    return [content.to_pylist() for _, content in delta_files(table)]


def _rows(table: Path) -> list[dict[str, Any]]:
    """Return the rows of a Delta table, which may have partition columns."""
    if not (table / "_delta_log").is_dir():
        return []
    rows: list[dict[str, Any]] = DeltaTable(table).to_pyarrow_table().to_pylist()
    return rows


def _places_of_topic(bootstrap_servers: str, topic: str) -> list[Place]:
    if topic not in topics_in(bootstrap_servers):
        return []
    headers: Iterator[Any] = (
        message.headers() or () for message in committed_messages(bootstrap_servers, [topic])
    )
    return [place_of(dict(header)["order"]) for header in headers]


def _places_of_parquet(output: Path) -> list[Place]:
    """Return the changes of the folders that manifests name, by release and ordinal."""
    rows = [
        (release, row["ordinal"], place_of(row["order_key"]))
        for release, content in _parquet_folders(output, "parquet")
        for row in content
    ]
    return [place for _, _, place in sorted(rows)]


def _parquet_folders(output: Path, sink: str) -> list[tuple[int, list[dict[str, Any]]]]:
    """Return the folders that manifests name, each once, by release: their rows in order."""
    named = {
        (int(manifest.stem), sinks[sink]["path"])
        for manifest in (output / "_releases").glob("0*.json")
        for sinks in json.loads(manifest.read_bytes())["tables"].values()
        if sink in sinks
    }
    return [
        (release, pyarrow.parquet.read_table(output / path, partitioning=None).to_pylist())
        for release, path in sorted(named)
    ]


def _places_of_datastream_files(output: Path) -> dict[str, list[Place]]:
    """Return the changes of each table's files, in the order of their names."""
    return {
        folder.name: [
            _place_of_event(event)
            for path in sorted(one for one in folder.rglob("*") if one.is_file())
            for event in _events(path)
        ]
        for folder in sorted((output / "datastream_files").glob("[!_.]*"))
    }


def _events(path: Path) -> list[Any]:
    content = path.read_bytes()
    if path.suffix == ".avro":
        with path.open("rb") as file:
            return list(fastavro.reader(file))
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    return [json.loads(line) for line in content.splitlines()]


def _place_of_event(event: Mapping[str, Any]) -> Place:
    _, commit_us, transaction, sequence, mod = event["sort_keys"]
    return Place(commit_us, transaction, (int(sequence[:16], 16), int(sequence[16:], 16)), mod)
