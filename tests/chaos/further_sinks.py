"""The sinks beside changelog and mirror: what they must hold, and what they do."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet
from deltalake import DeltaTable

from tests.chaos.committed_messages import committed_messages, topics_in
from tests.simulation.history import Released
from tidegate.schemas.topics import HEADER_ORDER

__all__ = [
    "ORDERED_TOPIC",
    "SETTINGS",
    "compare_histories",
    "compare_keys",
    "compare_sinks",
    "compare_transactions",
]

ORDERED_TOPIC = "everything-in-order"

SETTINGS = {
    "TIDEGATE_CONSUMER_SINKS": "changelog,mirror,history,parquet,topic,transactions",
    "TIDEGATE_CONSUMER_ORDERED_TOPIC": ORDERED_TOPIC,
}
"""Of a consumer that writes to all sinks."""

_OF_HISTORY = ("valid_from", "valid_to", "is_current")


def compare_sinks(
    output: Path,
    begins: Mapping[str, int],
    *,
    bootstrap_servers: str,
    released: Iterable[Released],
) -> dict[str, list[str]]:
    """Return what is wrong, by sink, once everything is released and merged.

    `begins` says from which release on a sink has them, 0 where it names none.
    """
    by_number = {one.number: one for one in released}
    wrong = {
        "history": [
            fault
            for table in sorted(one.name for one in (output / "history").glob("*"))
            for fault in compare_histories(
                _rows(output / "history" / table), _rows(output / "mirror" / table), table=table
            )
        ]
    }
    found = {
        "ordered_topic": _keys_of_topic(bootstrap_servers),
        "parquet": _keys_of_parquet(output),
    }
    for name, keys in found.items():
        first = begins.get(name.removeprefix("ordered_"), 0)
        kept = [n for n in sorted(by_number) if n >= first]
        expected = [key for n in kept for key in by_number[n].order_keys]
        wrong[name] = compare_keys(keys, expected)
    first = begins.get("transactions", 0)
    sizes = {n: len(one.order_keys) for n, one in by_number.items() if n >= first}
    wrong["transaction_rows"] = compare_transactions(_rows(output / "transactions"), sizes)
    return wrong


def compare_transactions(rows: Iterable[Mapping[str, Any]], sizes: Mapping[int, int]) -> list[str]:
    """Return the releases whose changes are not each in one row, by the number of their changes."""
    found: dict[int, list[int]] = {number: [] for number in sizes}
    for row in rows:
        ordinals = [change["ordinal"] for change in row["changes"]]
        found.setdefault(row["release"], []).extend(ordinals)
        if ordinals != list(range(row["first_ordinal"], row["first_ordinal"] + len(ordinals))):
            return [f"release {row['release']}: a transaction has changes {ordinals}"]
    return [
        f"release {number} has the changes {sorted(ordinals)} of {sizes.get(number, 0)}"
        for number, ordinals in sorted(found.items())
        if sorted(ordinals) != list(range(sizes.get(number, 0)))
    ]


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


def _rows(table: Path) -> list[dict[str, Any]]:
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
        (int(manifest.stem), row["ordinal"], row["order_key"])
        for manifest in sorted((output / "_releases").glob("0*.json"))
        for sinks in json.loads(manifest.read_bytes())["tables"].values()
        if "parquet" in sinks
        for row in pyarrow.parquet.read_table(
            output / sinks["parquet"]["path"],
            columns=["ordinal", "order_key"],
            partitioning=None,
        ).to_pylist()
    ]
    return [key for _, _, key in sorted(rows)]
