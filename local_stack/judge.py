"""The judge: what the simulator committed and what the source holds, against what lies in Delta.

Shares nothing with producer, consumer or their contract: it imports none of them, and a test holds
it to that. It only counts; what a figure must be is decided in `report`.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.local_stack.judge_changelog import ChangelogFigures, compare_changelog
from tidegate.local_stack.judge_cuts import CutFigures, compare_cuts
from tidegate.local_stack.judge_delta import DeltaReader

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tidegate.local_stack.judge_cuts import CutRule, SourceReader
    from tidegate.local_stack.judge_delta import ChangelogTable, ReleaseManifest
    from tidegate.local_stack.judge_log import LoggedTransaction

__all__ = ["Delivery", "Verdict", "judge_output"]


@dataclass(frozen=True, slots=True)
class Delivery:
    """One changelog row on its way: committed in Spanner, committed in Delta."""

    committed_us: int
    delivered_us: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """Every figure that can be had from the commit log, the source tables and Delta."""

    changelog: ChangelogFigures
    cuts: CutFigures
    late: int
    transactions: int
    transactions_across_partitions: int
    deliveries: tuple[Delivery, ...]


def judge_output(
    output: Path,
    *,
    transactions: Sequence[LoggedTransaction],
    source: SourceReader,
    rule: CutRule,
    progress: Callable[[str], None] = lambda _: None,
) -> Verdict:
    """Judge a consumer's output folder against everything that was committed.

    `rule` says what is wrong with a cut as a whole; `progress` gets a line for each stage.
    """
    delta = DeltaReader(output)
    progress("reading the changelog's files")
    manifests = delta.manifests()
    changelogs = [delta.changelog(table) for table in delta.changelog_tables()]
    progress("comparing it with the commit log")
    figures = compare_changelog(transactions, changelogs=changelogs, manifests=manifests)
    cuts = compare_cuts(
        manifests,
        mirrors=delta,
        source=source,
        rule=rule,
        progress=lambda done: progress(f"comparing release {done + 1} of {len(manifests)}"),
    )
    return Verdict(
        changelog=figures,
        cuts=cuts,
        late=delta.late_rows(),
        transactions=len(transactions),
        transactions_across_partitions=sum(
            len(transaction.stream_partition_tokens) > 1 for transaction in transactions
        ),
        deliveries=tuple(_deliveries(delta, changelogs=changelogs, manifests=manifests)),
    )


def _deliveries(
    delta: DeltaReader,
    *,
    changelogs: Sequence[ChangelogTable],
    manifests: Sequence[ReleaseManifest],
) -> list[Delivery]:
    """Return each row's way; a row of a release without a manifest has none."""
    versions: defaultdict[str, dict[int, int]] = defaultdict(dict)
    for manifest in manifests:
        for table, entry in manifest.tables.items():
            if entry.changelog_version is not None:
                versions[table][manifest.number] = entry.changelog_version
    found = []
    for changelog in changelogs:
        times_ms = delta.commit_times_ms(changelog.table)
        released_ms = {
            release: times_ms[version]
            for release, version in versions[changelog.table].items()
            if version in times_ms
        }
        found += [
            Delivery(row.place.commit_timestamp_us, released_ms[row.release] * 1_000)
            for row in changelog.rows
            if row.release in released_ms
        ]
    return found
