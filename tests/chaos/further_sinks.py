"""The sinks beside changelog and mirror: what they must hold, and what they do."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet
from deltalake import DeltaTable

from tests.chaos.collect import Found
from tests.chaos.committed_messages import committed_messages, topics_in
from tests.chaos.iceberg_sinks import (
    compare_cuts_of_mirror,
    compare_iceberg_changelog,
    iceberg_changelogs,
    iceberg_cuts,
)
from tests.chaos.key_sinks import (
    compare_changelog_by_key,
    compare_mirror_by_key,
    in_order_of_batches,
)
from tests.chaos.transaction_rows import compare_transactions
from tidegate.local_stack.judge.delta import ReleaseManifest, delta_files
from tidegate.local_stack.judge.log import LoggedTransaction
from tidegate.local_stack.judge.source import SourceTable
from tidegate.producer.datastream.event_file import EventFile
from tidegate.producer.datastream.file_store import LocalStore
from tidegate.producer.datastream.file_tree import all_files
from tidegate.schemas.topics import HEADER_ORDER

ORDERED_TOPIC = "everything-in-order"

_FIRST = "changelog,mirror,changelog_by_key,mirror_by_key"
FIRST_SETTINGS = {"TIDEGATE_CONSUMER_SINKS": _FIRST}
"""Settings of the first consumer: a mirror by key cannot join."""

SETTINGS = {
    "TIDEGATE_CONSUMER_SINKS": f"{_FIRST},history,parquet,iceberg_changelog,iceberg_mirror,"
    "topic,transactions,parquet_transactions,datastream_files",
    "TIDEGATE_CONSUMER_ORDERED_TOPIC": ORDERED_TOPIC,
}
"""Settings of a consumer that writes to all sinks."""

_OF_HISTORY = ("valid_from", "valid_to", "is_current")


def compare_sinks(
    output: Path,
    begins: Mapping[str, int],
    *,
    bootstrap_servers: str,
    found: Found,
    transactions: Sequence[LoggedTransaction],
    layout: Mapping[str, SourceTable],
) -> dict[str, list[str]]:
    """Return what is wrong, by sink, once everything is released and merged.

    `begins` says from which release on a sink has them, 0 where it names none.  `found` is what the
    changelog holds, which has checks of its own, and `transactions` is what was committed.
    """
    released = {one.number: one.order_keys for one in found.history.released}
    wrong = {
        "history": [
            fault
            for table in sorted(one.name for one in (output / "history").glob("*"))
            for fault in compare_histories(
                _rows(output / "history" / table), _rows(output / "mirror" / table), table=table
            )
        ]
    }
    keys = {
        "topic": _keys_of_topic(bootstrap_servers),
        "parquet": _keys_of_parquet(output),
        "datastream_files": _keys_of_datastream_files(output),
    }
    for name, held in keys.items():
        first = begins.get(name, 0)
        expected = [
            key for number in sorted(released) if number >= first for key in released[number]
        ]
        wrong["ordered_topic" if name == "topic" else name] = compare_keys(held, expected)
    by_key = {
        one.name: in_order_of_batches(_files(one))
        for one in sorted((output / "changelog_by_key").glob("*"))
    }
    wrong["changelog_by_key"] = compare_changelog_by_key(
        by_key, {key for keys in released.values() for key in keys}
    )
    wrong["mirror_by_key"] = [
        fault
        for table, source in layout.items()
        for fault in compare_mirror_by_key(
            _rows(output / "mirror_by_key" / table), _rows(output / "mirror" / table),
            table=table, key=source.key,
        )
    ]  # fmt: skip
    types = {one.table: one.types for one in found.changelogs}
    files = {
        "transactions": _files(output / "transactions"),
        "parquet_transactions": [
            rows for _, rows in _parquet_folders(output, "parquet_transactions")
        ],
    }
    for name, contents in files.items():
        releases, committed = since(begins.get(name, 0), found.manifests, transactions)
        wrong[name] = compare_transactions(contents, committed, releases=releases, types=types)
    releases, committed = since(begins.get("iceberg_changelog", 0), found.manifests, transactions)
    wrong["iceberg_changelog"] = compare_iceberg_changelog(
        iceberg_changelogs(output), committed, releases=releases
    )
    wrong["iceberg_mirror"] = compare_cuts_of_mirror(
        iceberg_cuts(output),
        transactions,
        changelogs=found.changelogs,
        layout=layout,
        newest=found.manifests[-1] if found.manifests else None,
    )
    return wrong


def since(
    first: int, manifests: Sequence[ReleaseManifest], transactions: Iterable[LoggedTransaction]
) -> tuple[list[ReleaseManifest], list[LoggedTransaction]]:
    """Return the releases from one on, and the transactions that were committed after it began.

    No release ends inside a commit timestamp, so these are those of the releases.
    """
    kept = [one for one in manifests if one.number >= first]
    if not kept:
        return [], []
    after_us = kept[0].after_us if first else -1
    return kept, [one for one in transactions if one.commit_timestamp_us > after_us]


def compare_keys(found: Sequence[bytes], expected: Sequence[bytes]) -> list[str]:
    """Return where two lists of order keys differ: first what is missing, twice or too much."""
    if list(found) == list(expected):
        return []
    lacks, more = set(expected) - set(found), set(found) - set(expected)
    faults = [f"lacks {key.hex()}" for key in sorted(lacks)]
    faults += [f"has {key.hex()}, which was not released to it" for key in sorted(more)]
    if len(found) != len(set(found)):
        faults.append(f"{len(found) - len(set(found))} changes are there twice")
    return faults or ["the changes are not in commit order"]


def compare_histories(
    versions: Sequence[Mapping[str, Any]], mirror: Sequence[Mapping[str, Any]], *, table: str
) -> list[str]:
    """Return versions of no duration, and current rows that are not the mirror's."""
    faults = [
        f"{table}: a version ends at {one['valid_to']}, where it begins"
        for one in versions
        if one["valid_to"] is not None and one["valid_to"] <= one["valid_from"]
    ]
    current = sorted(
        repr(sorted((name, value) for name, value in one.items() if name not in _OF_HISTORY))
        for one in versions
        if one["valid_to"] is None
    )
    rows = sorted(repr(sorted(one.items())) for one in mirror)
    unlike = len(set(current) ^ set(rows)) or len(current) != len(rows)
    return [*faults, *([f"{table}: {unlike} current rows are not the mirror's"] if unlike else [])]


def _files(table: Path) -> list[list[dict[str, Any]]]:
    """Return the rows of each file of a Delta table, none of a table that is not there."""
    if not (table / "_delta_log").is_dir():
        return []
    return [content.to_pylist() for _, content in delta_files(table)]


def _rows(table: Path) -> list[dict[str, Any]]:
    """Return the rows of a Delta table, which may have partition columns."""
    if not (table / "_delta_log").is_dir():
        return []
    rows: list[dict[str, Any]] = DeltaTable(table).to_pyarrow_table().to_pylist()
    return rows


def _keys_of_topic(bootstrap_servers: str) -> list[bytes]:
    if ORDERED_TOPIC not in topics_in(bootstrap_servers):
        return []
    return [
        bytes(dict(message.headers() or ())[HEADER_ORDER])  # type: ignore[arg-type]
        for message in committed_messages(bootstrap_servers, [ORDERED_TOPIC])
    ]


def _keys_of_parquet(output: Path) -> list[bytes]:
    """Return the order keys of the folders that manifests name, by release and ordinal."""
    rows = [
        (release, row["ordinal"], row["order_key"])
        for release, content in _parquet_folders(output, "parquet")
        for row in content
    ]
    return [key for _, _, key in sorted(rows)]


def _keys_of_datastream_files(output: Path) -> list[bytes]:
    """Return the order keys of all files, over all tables; raises unless each file is in order."""
    store, keys = LocalStore(), []
    folder = output / "datastream_files"
    for one in sorted(folder.glob("*")):
        own = []
        for file in all_files(store, str(one)):
            with store.open(file.path) as stream:
                own += [event.order_key[1:] for event in EventFile(file.path, stream)]
        if own != sorted(own):
            raise AssertionError(f"the files of {one.name} are not in commit order")
        keys += own
    return sorted(keys)


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
