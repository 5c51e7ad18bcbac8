"""The judge compares the tables in Delta with the commit log and with the source tables.

It imports neither producer nor consumer nor `schemas`, so that it cannot repeat their mistakes; a
test enforces this.  It only counts: `demo/report.py` decides what a figure must be.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tidegate.local_stack.judge.changelog import ChangelogFigures, compare_changelog
from tidegate.local_stack.judge.cuts import CutFigures, CutRule, SourceReader, compare_cuts
from tidegate.local_stack.judge.delta import ChangelogTable, DeltaReader, ReleaseManifest
from tidegate.local_stack.judge.first_rows import FirstRows, first_transactions
from tidegate.local_stack.judge.log import LoggedTransaction


@dataclass(frozen=True, slots=True)
class Delivery:
    """One changelog row: when it was committed in Spanner, and when in Delta."""

    committed_us: int
    delivered_us: int
    release: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """Every figure that follows from the commit log, the source tables and Delta."""

    changelog: ChangelogFigures
    cuts: CutFigures
    late: int
    transactions: int
    transactions_across_partitions: int
    deliveries: tuple[Delivery, ...]
    first_rows: int = 0
    """The rows that the stream began with."""


def judge_output(
    output: Path,
    *,
    transactions: Sequence[LoggedTransaction],
    source: SourceReader,
    rule: CutRule,
    first: FirstRows | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Verdict:
    """Compare a consumer's output folder with everything that was committed.

    `rule` returns what is wrong with a cut as a whole; `progress` gets a line for each stage.
    With `first` the stream began with the rows of that time, and has the changes after it.
    """
    delta = DeltaReader(output)
    progress("reading the changelog's files")
    manifests = delta.manifests()
    changelogs = [delta.changelog(table) for table in delta.changelog_tables()]
    rows: list[LoggedTransaction] = []
    if first is not None:
        progress("reading the tables as the stream found them")
        rows = first_transactions(first, source, changelogs)
        transactions = [one for one in transactions if one.commit_timestamp_us > first.at_us]
    progress("comparing it with the commit log")
    figures = compare_changelog([*rows, *transactions], changelogs=changelogs, manifests=manifests)
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
        first_rows=sum(len(one.changes) for one in rows),
    )


def _deliveries(
    delta: DeltaReader,
    *,
    changelogs: Sequence[ChangelogTable],
    manifests: Sequence[ReleaseManifest],
) -> list[Delivery]:
    """Return one delivery for each row whose release has a manifest."""
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
            Delivery(row.place.commit_timestamp_us, released_ms[row.release] * 1_000, row.release)
            for row in changelog.rows
            if row.release in released_ms
        ]
    return found
