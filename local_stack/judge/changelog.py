"""Compares the changelog with the commit log: each change once, unchanged, in commit order.

Pure: rows and transactions in, figures out.  Each figure that counts faults comes with examples.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tidegate.local_stack.judge.log import LoggedChange, LoggedTransaction, Place, origin_number
from tidegate.local_stack.judge.values import canonical_json

if TYPE_CHECKING:
    import pyarrow as pa

    from tidegate.local_stack.judge.delta import ChangelogRow, ChangelogTable, ReleaseManifest


_EXAMPLES_MAX = 5


@dataclass(frozen=True, slots=True)
class ChangelogFigures:
    """The faults of a changelog; all counts from `missing` on must be 0."""

    changes_committed: int
    changes_in_changelog: int
    missing: int
    """Committed, and not in the changelog."""
    duplicates: int
    """Rows beyond the first for one change."""
    invented: int
    """Changes in the changelog that were never committed."""
    unlike_source: int
    """Changes whose kind, keys, values, columns or transaction differ from the committed ones."""
    out_of_order: int
    """Neighbours against commit order, by release and ordinal or by their place in the files."""
    ordinals_broken: int
    """Releases whose ordinals are not 0, 1, 2, … over all tables."""
    torn: int
    """Transactions whose changes are in more than one release."""
    outside_release: int
    """Rows committed outside their release's bounds, and releases that overlap or lack one."""
    examples: tuple[str, ...]


def compare_changelog(
    transactions: Sequence[LoggedTransaction],
    *,
    changelogs: Sequence[ChangelogTable],
    manifests: Sequence[ReleaseManifest],
) -> ChangelogFigures:
    """Return the figures for all tables of one output together."""
    rows = [row for changelog in changelogs for row in changelog.rows]
    types = {changelog.table: changelog.types for changelog in changelogs}
    committed = {
        (change.table, change.place): (change, transaction)
        for transaction in transactions
        for change in transaction.changes
    }
    seen = Counter((row.table, row.place) for row in rows)
    missing = [identity for identity in committed if identity not in seen]
    repeated = {identity: count - 1 for identity, count in seen.items() if count > 1}
    invented = [identity for identity in seen if identity not in committed]
    unlike = [
        f"{_name(row.table, row.place)}: {difference}"
        for row in rows
        if (row.table, row.place) in committed
        for difference in [_difference(row, *committed[row.table, row.place], types[row.table])]
        if difference
    ]
    against_order = [*_logical_disorder(rows), *_physical_disorder(rows)]
    ordinals = _broken_ordinals(rows)
    torn = _torn_transactions(rows)
    outside = _outside_release(rows, manifests)
    return ChangelogFigures(
        changes_committed=len(committed),
        changes_in_changelog=len(rows),
        missing=len(missing),
        duplicates=sum(repeated.values()),
        invented=len(invented),
        unlike_source=len(unlike),
        out_of_order=len(against_order),
        ordinals_broken=len(ordinals),
        torn=len(torn),
        outside_release=len(outside),
        examples=(
            *examples("missing", (_name(*identity) for identity in missing)),
            *examples("duplicate", (_name(*identity) for identity in repeated)),
            *examples("invented", (_name(*identity) for identity in invented)),
            *examples("unlike the source", unlike),
            *examples("out of order", against_order),
            *examples("ordinals", ordinals),
            *examples("torn", torn),
            *examples("outside its release", outside),
        ),
    )


def examples(fault: str, findings: Iterable[str]) -> list[str]:
    """Return the first five findings of one kind, each as a line."""
    return [f"{fault}: {text}" for text, _ in zip(findings, range(_EXAMPLES_MAX), strict=False)]


def _name(table: str, place: Place) -> str:
    return (
        f"{table} at {place.commit_timestamp_us} us, transaction {place.server_transaction_id}, "
        f"record {place.record_sequence[1]}, mod {place.mod_number}"
    )


def _difference(
    row: ChangelogRow,
    change: LoggedChange,
    transaction: LoggedTransaction,
    types: Mapping[str, pa.DataType],
) -> str:
    """Return the first difference between a row and the log, or an empty text."""
    checks: tuple[tuple[str, Any, Any], ...] = (
        ("source's coordinates", change.place, row.source_place),
        ("transaction_tag", transaction.tag, row.tag),
        (
            "number_of_partitions_in_transaction",
            len(transaction.stream_partition_tokens),
            row.partitions_in_transaction,
        ),
        (
            "number_of_records_in_transaction",
            len({change.place.record_sequence for change in transaction.changes}),
            row.records_in_transaction,
        ),
        ("origin", True, row.origin in map(origin_number, transaction.stream_partition_tokens)),
    )
    return value_difference(row, change, types) or _first_difference(checks)


def value_difference(
    row: ChangelogRow, change: LoggedChange, types: Mapping[str, pa.DataType]
) -> str:
    """Return the first difference in kind, key, values and columns, or an empty text.

    `types` are those of the source table's columns.
    """
    keys = _typed(change.keys, types)
    new = _typed(change.new_values, types)
    old = _typed(change.old_values, types)
    is_insert = change.mod_type == "INSERT"
    new_values = _captured(row.new_values, row.new_columns, whole_row=is_insert)
    return _first_difference(
        (
            ("mod_type", change.mod_type, row.mod_type),
            ("key", keys, dict(row.keys)),
            (
                "new_values",
                None if change.mod_type == "DELETE" else _without_nulls(keys | new, change),
                _without_nulls(new_values, change),
            ),
            (
                "old_values",
                keys | old if change.mod_type == "DELETE" or old else None,
                _captured(row.old_values, row.old_columns, whole_row=False),
            ),
        )
    )


def _first_difference(checks: Iterable[tuple[str, Any, Any]]) -> str:
    for name, expected, value in checks:
        if expected != value:
            return f"{name} is {value!r}, committed was {expected!r}"
    return ""


def _typed(values: Mapping[str, Any], types: Mapping[str, pa.DataType]) -> dict[str, Any]:
    return {
        name: canonical_json(value, types[name]) if name in types else value
        for name, value in values.items()
    }


def _captured(
    values: Mapping[str, Any] | None, columns: tuple[str, ...] | None, *, whole_row: bool
) -> dict[str, Any] | None:
    """Return the columns of a row that were captured; null columns means all of them."""
    if values is None:
        return None
    if columns is None or whole_row:
        return dict(values)
    return {name: values[name] for name in columns if name in values}


def _without_nulls(values: dict[str, Any] | None, change: LoggedChange) -> dict[str, Any] | None:
    """Drop the NULLs of an INSERT: a column that it does not name is NULL."""
    if values is not None and change.mod_type == "INSERT":
        return {name: value for name, value in values.items() if value is not None}
    return values


def _logical_disorder(rows: Sequence[ChangelogRow]) -> list[str]:
    ordered = sorted(rows, key=lambda row: (row.release, row.ordinal))
    return [
        f"release {after.release}, ordinal {after.ordinal}: {_name(after.table, after.place)} "
        f"is after {_name(before.table, before.place)}"
        for before, after in pairwise(ordered)
        if before.place > after.place
    ]


def _physical_disorder(rows: Sequence[ChangelogRow]) -> list[str]:
    """Compare neighbours in the files of each table, files in the order of releases."""
    files: defaultdict[tuple[str, str], list[ChangelogRow]] = defaultdict(list)
    for row in rows:
        files[row.table, row.file].append(row)
    for content in files.values():
        content.sort(key=lambda row: row.row_in_file)
    tables: defaultdict[str, list[ChangelogRow]] = defaultdict(list)
    for (table, _), content in sorted(
        files.items(), key=lambda item: (item[0][0], item[1][0].release, item[1][0].ordinal)
    ):
        tables[table].extend(content)
    return [
        f"{after.file}, row {after.row_in_file}: {_name(after.table, after.place)} "
        f"is after {_name(before.table, before.place)}"
        for content in tables.values()
        for before, after in pairwise(content)
        if before.place > after.place
    ]


def _broken_ordinals(rows: Sequence[ChangelogRow]) -> list[str]:
    ordinals: defaultdict[int, list[int]] = defaultdict(list)
    for row in rows:
        ordinals[row.release].append(row.ordinal)
    return [
        f"release {release} has {len(numbers)} rows with ordinals {min(numbers)} to {max(numbers)}"
        for release, numbers in sorted(ordinals.items())
        if sorted(numbers) != list(range(len(numbers)))
    ]


def _torn_transactions(rows: Sequence[ChangelogRow]) -> list[str]:
    releases: defaultdict[tuple[int, str], set[int]] = defaultdict(set)
    for row in rows:
        transaction = (row.place.commit_timestamp_us, row.place.server_transaction_id)
        releases[transaction].add(row.release)
    return [
        f"transaction {transaction_id} at {commit_us} us is in releases {sorted(of_transaction)}"
        for (commit_us, transaction_id), of_transaction in releases.items()
        if len(of_transaction) > 1
    ]


def _outside_release(
    rows: Sequence[ChangelogRow], manifests: Sequence[ReleaseManifest]
) -> list[str]:
    bounds = {manifest.number: manifest for manifest in manifests}
    outside = [
        f"release {row.release}: {_name(row.table, row.place)}"
        for row in rows
        if row.release not in bounds
        or not (
            bounds[row.release].after_us
            < row.place.commit_timestamp_us
            <= bounds[row.release].through_us
        )
    ]
    outside += [
        f"release {after.number} begins after {after.after_us} us, "
        f"release {before.number} ends with {before.through_us} us"
        for before, after in pairwise(manifests)
        if after.number != before.number + 1
        # A watermark that passes no change makes no release: a gap is right, an overlap is not.
        or after.after_us < before.through_us
        or after.through_us < after.after_us
    ]
    counts = Counter(row.release for row in rows)
    outside += [
        f"release {manifest.number} has {counts[manifest.number]} rows, not {manifest.rows}"
        for manifest in manifests
        if manifest.rows != counts[manifest.number]
    ]
    return outside
