"""The judge compares a consumer's output with the commit log and with the source tables.

It imports neither producer nor consumer nor `schemas`, so that it cannot repeat their mistakes; a
test enforces this.  It only counts: `demo/report.py` has the expected figures.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tidegate.local_stack.judge.changelog import ChangelogFigures, compare_changelog
from tidegate.local_stack.judge.cuts import CutFigures, CutRule, SourceReader, compare_cuts
from tidegate.local_stack.judge.delta import Delivery, DeltaReader, release_times_us
from tidegate.local_stack.judge.log import LoggedTransaction
from tidegate.local_stack.judge.source import FirstRows, first_transactions, places_in_changelogs


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


def judge_output(
    output: Path,
    *,
    transactions: Sequence[LoggedTransaction],
    source: SourceReader,
    rule: CutRule,
    first: FirstRows | None = None,
    cuts_from_us: int = 0,
    progress: Callable[[str], None] = lambda _: None,
) -> Verdict:
    """Compare a consumer's output folder with everything that was committed.

    `rule` returns the faults of a whole cut; `progress` gets a line for each stage.  With `first`
    the stream began with the rows of that time, and has the changes after it.  Releases before
    `cuts_from_us` are not compared with the source, which keeps rows as they were for an hour.
    """
    delta = DeltaReader(output)
    progress("reading the changelog's files")
    manifests = delta.manifests()
    changelogs = [delta.changelog(table) for table in delta.changelog_tables()]
    rows: list[LoggedTransaction] = []
    if first is not None:
        progress("reading the tables as the stream found them")
        rows = first_transactions(first, source, places_in_changelogs(first, source, changelogs))
        transactions = [
            transaction
            for transaction in transactions
            if transaction.commit_timestamp_us > first.at_us
        ]
    progress("comparing it with the commit log")
    figures = compare_changelog([*rows, *transactions], changelogs=changelogs, manifests=manifests)
    cut = [manifest for manifest in manifests if manifest.through_us >= cuts_from_us]
    cuts = compare_cuts(
        cut,
        mirrors=delta,
        source=source,
        rule=rule,
        bounds=manifests,
        progress=lambda done: progress(f"comparing release {done + 1} of {len(cut)}"),
    )
    times_us = release_times_us(delta, manifests)
    return Verdict(
        changelog=figures,
        cuts=cuts,
        late=delta.late_rows(),
        transactions=len(transactions),
        transactions_across_partitions=sum(
            len(transaction.stream_partition_tokens) > 1 for transaction in transactions
        ),
        deliveries=tuple(
            Delivery(row.place.commit_timestamp_us, times_us[row.table, row.release], row.release)
            for changelog in changelogs
            for row in changelog.rows
            if (row.table, row.release) in times_us
        ),
        first_rows=sum(len(transaction.changes) for transaction in rows),
    )
