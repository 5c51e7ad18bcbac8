"""The judge compares topics and tables with the commit log and with the source tables.

The demo and chaos tell it what was published, what a consumer wrote and what was committed.  It
imports neither producer nor consumer nor `schemas`, so that it cannot repeat their mistakes; a test
enforces this.  It only counts: `demo/report.py` decides what a figure must be.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tidegate.local_stack.judge.changelog import ChangelogFigures, compare_changelog
from tidegate.local_stack.judge.cuts import CutFigures, CutRule, SourceReader, compare_cuts
from tidegate.local_stack.judge.delta import ChangelogTable, DeltaReader, ReleaseManifest
from tidegate.local_stack.judge.first_rows import (
    FirstRows,
    first_transactions,
    places_in_changelogs,
)
from tidegate.local_stack.judge.log import LoggedChange, LoggedTransaction
from tidegate.local_stack.judge.partitions import (
    Query,
    StreamPartitions,
    compare_markers,
    compare_queries,
    compare_revisions,
)
from tidegate.local_stack.judge.published import Findings, compare_published, is_never_poison
from tidegate.local_stack.judge.topics import Published
from tidegate.local_stack.judge.watermark import late_changes


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

    def faults(self) -> dict[str, int]:
        """Return every figure that must be 0."""
        log, cuts = self.changelog, self.cuts
        return {
            "missing": log.missing,
            "duplicates": log.duplicates,
            "invented": log.invented,
            "unlike_source": log.unlike_source,
            "out_of_order": log.out_of_order,
            "ordinals_broken": log.ordinals_broken,
            "torn": log.torn,
            "outside_release": log.outside_release,
            "late": self.late,
            "cuts_unlike_source": cuts.unlike_source,
            "cuts_with_wrong_total": cuts.with_wrong_total,
            "mirror_unlike_source": int(not cuts.mirror_equals_source),
        }


def judge_topics(
    published: Published,
    transactions: Sequence[LoggedTransaction],
    *,
    stream: StreamPartitions,
    queries: Sequence[Query] = (),
    seed: int,
    is_poison: Callable[[LoggedChange], bool] = is_never_poison,
) -> Findings:
    """Compare all topics of a stream with everything that was committed.

    `queries` are those that workers have begun; `seed` decides in which orders topics are read.
    """
    found = compare_published(published.topics, transactions, published.data, is_poison=is_poison)
    last_us = max((one.commit_timestamp_us for one in transactions), default=0)
    return {
        **found,
        **late_changes(published, seed=seed, last_us=last_us),
        "revisions": compare_revisions(published),
        "markers": compare_markers(published, stream),
        "lineage": compare_queries(published, queries, stream),
        "foreign_records": list(published.foreign),
    }


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
        rows = first_transactions(first, source, places_in_changelogs(first, source, changelogs))
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
