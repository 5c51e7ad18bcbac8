"""The demo's report: all figures, as JSON and as tables, and the values that they must have.

`Report.wrong_figures` is the only place that decides whether a figure is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from rich.table import Table

if TYPE_CHECKING:
    from tidegate.local_stack.judge.delta import Delivery


@dataclass(frozen=True, slots=True)
class Kill:
    """One SIGKILL: the program, the step of its cycle, and the seconds since the run began."""

    worker: str
    step: str
    at: float


@dataclass(frozen=True, slots=True)
class Latency:
    """From a change's commit timestamp to the Delta commit of its row in the changelog."""

    p50: float | None
    p99: float | None
    rows: int
    releases: int
    """The releases that these rows are in."""
    measured: str


@dataclass(frozen=True, slots=True)
class Asked:
    """What the demo was asked to do; a run that did less is wrong, because it proves less."""

    transfers: int
    undisturbed: int
    """The transfers between the warm-up and the first kill."""
    splits: int
    merges: int
    kill_workers: int
    kill_consumer: int
    first_rows: int | None = None
    """The rows that the stream was asked to begin with; None without a backfill."""


@dataclass(frozen=True, slots=True)
class BackfillFigures:
    """The rows that a stream began with, and what happened while they were read."""

    rows: int
    read_partitions: int
    """The key ranges that the fleet read."""
    seconds: float
    """From the stream's start until every row was published."""
    transactions_meanwhile: int
    """Committed in that time."""
    worker_kills: int
    """Workers that were killed in that time."""


@dataclass(frozen=True, slots=True)
class WrongFigure:
    """A figure with another value than expected."""

    name: str
    found: object
    expected: str


@dataclass(frozen=True, slots=True)
class Report:
    """All figures of one run; counts are changes unless their name says otherwise."""

    changes_committed: int
    changes_in_changelog: int
    missing: int
    duplicates: int
    invented: int
    changes_unlike_source: int
    out_of_order: int
    ordinals_broken: int
    late: int
    transactions: int
    transactions_across_partitions: int
    transactions_torn: int
    splits: int
    merges: int
    stream_partitions_finished: int
    worker_kills: tuple[Kill, ...]
    consumer_kills: tuple[Kill, ...]
    releases: int
    mirror_cuts: int
    """How many of them the mirrors stood at."""
    mirror_behind_s_most: float
    """By how much commit time mirrors were older than the release that names them, at most."""
    rows_outside_release: int
    releases_unlike_source: int
    releases_with_wrong_total: int
    mirror_equals_source: bool
    latency_undisturbed_ms: Latency
    latency_with_kills_ms: Latency
    unclean_stops: int
    """Programs that were stopped at the end and did not exit with code 0."""
    seconds: float
    seed: int
    backfill: BackfillFigures | None = None
    examples: tuple[str, ...] = ()

    def wrong_figures(self, asked: Asked) -> list[WrongFigure]:
        """Return the figures that are wrong, given what the run was asked to do."""
        none = (
            "missing",
            "duplicates",
            "invented",
            "changes_unlike_source",
            "out_of_order",
            "ordinals_broken",
            "late",
            "transactions_torn",
            "rows_outside_release",
            "releases_unlike_source",
            "releases_with_wrong_total",
            "unclean_stops",
        )
        wrong = [WrongFigure(n, getattr(self, n), "0") for n in none if getattr(self, n) != 0]
        at_least = {
            "changes_committed": 3 * asked.transfers,
            "transactions": asked.transfers,
            "transactions_across_partitions": 1,
            "splits": asked.splits,
            "merges": asked.merges,
            "releases": self._releases_min(asked),
        }
        wrong += [
            WrongFigure(name, getattr(self, name), f"at least {least}")
            for name, least in at_least.items()
            if getattr(self, name) < least
        ]
        exactly = {
            "changes_in_changelog": (self.changes_in_changelog, self.changes_committed),
            "mirror_equals_source": (self.mirror_equals_source, True),
            # A transfer changes two accounts and adds a row to the ledger.
            "latency_undisturbed_ms.rows": (
                self.latency_undisturbed_ms.rows,
                3 * asked.undisturbed,
            ),
            # A split ends one stream partition, a merge two.
            "stream_partitions_finished": (
                self.stream_partitions_finished,
                self.splits + 2 * self.merges,
            ),
            "worker_kills": (len(self.worker_kills), asked.kill_workers),
            "consumer_kills": (len(self.consumer_kills), asked.kill_consumer),
        }
        wrong += [
            WrongFigure(name, found, str(expected))
            for name, (found, expected) in exactly.items()
            if found != expected
        ]
        return [*wrong, *self._wrong_backfill(asked)]

    @staticmethod
    def _releases_min(asked: Asked) -> int:
        # The run waits for one after the rows, or the opening, and after each part.
        if asked.first_rows is not None:
            return 3
        return 4 if asked.kill_workers or asked.kill_consumer else 3

    def _wrong_backfill(self, asked: Asked) -> list[WrongFigure]:
        if asked.first_rows is None:
            return []
        found = self.backfill or BackfillFigures(0, 0, 0.0, 0, 0)
        exactly = {"rows": asked.first_rows, "worker_kills": asked.kill_workers}
        wrong = [
            WrongFigure(f"backfill.{name}", getattr(found, name), str(expected))
            for name, expected in exactly.items()
            if getattr(found, name) != expected
        ]
        return wrong + [
            WrongFigure(f"backfill.{name}", getattr(found, name), "at least 1")
            for name in ("read_partitions", "transactions_meanwhile")
            if getattr(found, name) < 1
        ]

    def to_json(self) -> str:
        """Return the report as indented JSON; field names are the ones above."""
        return json.dumps(asdict(self), indent=2) + "\n"


def latency_of(deliveries: Sequence[Delivery], *, measured: str) -> Latency:
    """Return median and 99th percentile (nearest rank), or nulls if there are no deliveries."""
    ordered = sorted((way.delivered_us - way.committed_us) / 1_000 for way in deliveries)
    if not ordered:
        return Latency(p50=None, p99=None, rows=0, releases=0, measured=measured)

    def rank(percent: int) -> float:
        return round(ordered[max(0, -(-len(ordered) * percent // 100) - 1)], 1)

    return Latency(
        p50=rank(50),
        p99=rank(99),
        rows=len(ordered),
        releases=len({way.release for way in deliveries}),
        measured=measured,
    )


def latency_figures(
    deliveries: Sequence[Delivery], *, warm_us: int, undisturbed_us: int
) -> tuple[Latency, Latency]:
    """Return the latency of the undisturbed changes, and of those with kills.

    The warm-up's last commit was at `warm_us`, the last one before the kills at `undisturbed_us`
    (microseconds since 1970); the run kills nothing until all changes up to it are in Delta.
    """
    what = "commit timestamp in Spanner to the Delta commit of the change's changelog row"
    return (
        latency_of(
            [way for way in deliveries if warm_us < way.committed_us <= undisturbed_us],
            measured=f"{what}; all changes after the warm-up and before the kills",
        ),
        latency_of(
            [way for way in deliveries if way.committed_us > undisturbed_us],
            measured=f"{what}; the changes while programs are killed and restarted",
        ),
    )


def proof_table(report: Report, asked: Asked) -> Table:
    """Return what the run proved: a row for each promise, with its figures."""
    wrong = {figure.name for figure in report.wrong_figures(asked)}
    table = Table(title="What this run proved", title_justify="left", header_style="bold")
    table.add_column("")
    table.add_column("promise")
    table.add_column("figures")

    def row(promise: str, figures: str, *names: str) -> None:
        table.add_row("[red]✗" if wrong & set(names) else "[green]✓", promise, figures)

    if report.backfill is not None:
        first = report.backfill
        row(
            "every row from before the stream comes before all changes, once, as it was",
            f"{first.rows:,} rows in {first.read_partitions} key ranges within "
            f"{first.seconds:.1f} s; meanwhile {first.transactions_meanwhile:,} transactions "
            f"committed and {_counted(first.worker_kills, 'worker')} killed",
            *(f"backfill.{name}" for name in asdict(first)),
        )
    rows_before = report.backfill.rows if report.backfill is not None else 0
    before = f" and {rows_before:,} rows before" if rows_before else ""
    row(
        "every committed change is in the changelog exactly once, as it was",
        f"{report.changes_committed - rows_before:,} committed{before}, "
        f"{report.changes_in_changelog:,} in the "
        f"changelog; missing {report.missing}, duplicates {report.duplicates}, "
        f"invented {report.invented}, unlike the source {report.changes_unlike_source}",
        "changes_committed",
        "changes_in_changelog",
        "missing",
        "duplicates",
        "invented",
        "changes_unlike_source",
    )
    row(
        "in commit order, by release and ordinal and by the rows' order in the files",
        f"out of order {report.out_of_order}, ordinals broken {report.ordinals_broken}, "
        f"late {report.late}",
        "out_of_order",
        "ordinals_broken",
        "late",
    )
    row(
        "transactions stay whole, also those over several stream partitions",
        f"{report.transactions:,} transactions, {report.transactions_across_partitions:,} over "
        f"several stream partitions; torn {report.transactions_torn}",
        "transactions",
        "transactions_across_partitions",
        "transactions_torn",
    )
    row(
        "every release names a consistent cut: both mirrors equal the tables at its time",
        f"{report.releases} releases, {report.mirror_cuts} cuts, {report.mirror_behind_s_most} s "
        f"behind at most; unlike the source {report.releases_unlike_source}, wrong "
        f"total {report.releases_with_wrong_total}, rows outside {report.rows_outside_release}",
        "releases",
        "mirror_cuts",
        "mirror_behind_s_most",
        "releases_unlike_source",
        "releases_with_wrong_total",
        "rows_outside_release",
    )
    row(
        "at the end the mirrors equal the tables",
        "yes" if report.mirror_equals_source else "no",
        "mirror_equals_source",
    )
    row(
        "through splits, merges and finished stream partitions",
        f"{report.splits} splits, {report.merges} merges, "
        f"{report.stream_partitions_finished} finished",
        "splits",
        "merges",
        "stream_partitions_finished",
    )
    kills = sorted((*report.worker_kills, *report.consumer_kills), key=lambda kill: kill.at)
    row(
        "through SIGKILL",
        ", ".join(f"{kill.worker} in {kill.step} at {kill.at:.0f} s" for kill in kills) or "none",
        "worker_kills",
        "consumer_kills",
        "unclean_stops",
    )
    return table


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def latency_table(report: Report, asked: Asked) -> Table:
    """Return how long changes took, those that no kill delayed first."""
    wrong = {figure.name for figure in report.wrong_figures(asked)}
    table = Table(
        title="From the commit in Spanner to the commit in Delta",
        title_justify="left",
        header_style="bold",
    )
    for column in ("", "changes", "p50", "p99", "measured on"):
        table.add_column(column)
    for figure, name, latency in (
        ("latency_undisturbed_ms", "undisturbed", report.latency_undisturbed_ms),
        ("latency_with_kills_ms", "while programs are killed", report.latency_with_kills_ms),
    ):
        if latency.p50 is not None and latency.p99 is not None:
            table.add_row(
                "[red]✗" if f"{figure}.rows" in wrong else "[green]✓",
                name,
                f"{latency.p50 / 1_000:.1f} s",
                f"{latency.p99 / 1_000:.1f} s",
                f"{latency.rows:,} changes, {latency.releases} releases",
            )
    return table
