"""Reports of the demo: all figures, as JSON and as tables, and the values that they must have.

`wrong_figures` of a report is the only place that decides whether a figure is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Protocol

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
    """The requested work of the demo; a run that did less is wrong, because it proves less."""

    transfers: int
    kill_workers: int
    kill_consumer: int
    undisturbed: int = 0
    """The transfers between the warm-up and the first kill."""
    splits: int = 0
    merges: int = 0
    first_rows: int | None = None
    """The rows of the tables when the stream began; None without a backfill."""
    disturbances: int = 1
    """Copies, late changes and deleted rows in files, at least that many of each."""


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


class DemoReport(Protocol):
    """The figures of one run."""

    @property
    def seconds(self) -> float:
        """How long the run took."""

    @property
    def seed(self) -> int:
        """The seed of everything random."""

    @property
    def examples(self) -> tuple[str, ...]:
        """The first faults of each kind, as text."""

    def wrong_figures(self, asked: Asked) -> list[WrongFigure]:
        """Return the figures that are wrong, given what the run was asked to do."""

    def to_json(self) -> str:
        """Return the report as indented JSON."""

    def tables(self, asked: Asked) -> list[Table]:
        """Return what the run proved, and how long changes took."""


def find_wrong(
    figures: object,
    *,
    zero: Iterable[str] = (),
    at_least: Mapping[str, int],
    exactly: Mapping[str, tuple[object, object]],
    prefix: str = "",
) -> list[WrongFigure]:
    """Return the wrong figures: first those that must be 0, then the other kinds.

    `exactly` has the found and the expected value of each.
    """
    return [
        *(
            WrongFigure(prefix + name, getattr(figures, name), "0")
            for name in zero
            if getattr(figures, name) != 0
        ),
        *(
            WrongFigure(prefix + name, getattr(figures, name), f"at least {least}")
            for name, least in at_least.items()
            if getattr(figures, name) < least
        ),
        *(
            WrongFigure(prefix + name, value, str(expected))
            for name, (value, expected) in exactly.items()
            if value != expected
        ),
    ]


class Proof:
    """The table of promises, each with its figures and whether all of them are right."""

    def __init__(self, wrong: Iterable[WrongFigure]) -> None:
        self._wrong = {figure.name for figure in wrong}
        self.table = Table(title="What this run proved", title_justify="left", header_style="bold")
        for column in ("", "promise", "figures"):
            self.table.add_column(column)

    def row(self, promise: str, figures: str, *names: str) -> None:
        """Add a promise that holds if no figure of these names is wrong."""
        mark = "[red]✗" if self._wrong & set(names) else "[green]✓"
        self.table.add_row(mark, promise, figures)

    def kills(self, kills: Iterable[Kill]) -> None:
        """Add the promise about SIGKILL."""
        ordered = sorted(kills, key=lambda kill: kill.at)
        text = ", ".join(f"{kill.worker} in {kill.step} at {kill.at:.0f} s" for kill in ordered)
        self.row(
            "through SIGKILL", text or "none", "worker_kills", "consumer_kills", "unclean_stops"
        )


@dataclass(frozen=True, slots=True)
class Report:
    """All figures of a run with a bank in Spanner.

    Counts are changes unless their name says otherwise.
    """

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
    """The number of different cuts that the mirrors had."""
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
        wrong = find_wrong(
            self,
            zero=(
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
            ),
            at_least={
                "changes_committed": 3 * asked.transfers,
                "transactions": asked.transfers,
                "transactions_across_partitions": 1,
                "splits": asked.splits,
                "merges": asked.merges,
                "releases": self._releases_min(asked),
            },
            exactly={
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
            },
        )
        if asked.first_rows is None:
            return wrong
        figures = self.backfill or BackfillFigures(0, 0, 0.0, 0, 0)
        return wrong + find_wrong(
            figures,
            at_least={"read_partitions": 1, "transactions_meanwhile": 1},
            exactly={
                "rows": (figures.rows, asked.first_rows),
                "worker_kills": (figures.worker_kills, asked.kill_workers),
            },
            prefix="backfill.",
        )

    @staticmethod
    def _releases_min(asked: Asked) -> int:
        # The run waits for one after the rows, or the opening, and after each part.
        if asked.first_rows is not None:
            return 3
        return 4 if asked.kill_workers or asked.kill_consumer else 3

    def to_json(self) -> str:
        """Return the report as indented JSON; field names are the ones above."""
        return json.dumps(asdict(self), indent=2) + "\n"

    def tables(self, asked: Asked) -> list[Table]:
        """Return what the run proved, and how long changes took."""
        return [self._proof(asked), self._latency(asked)]

    def _proof(self, asked: Asked) -> Table:
        proof = Proof(self.wrong_figures(asked))
        if (first := self.backfill) is not None:
            workers = f"{first.worker_kills} worker{'' if first.worker_kills == 1 else 's'}"
            proof.row(
                "every row from before the stream comes before all changes, once, as it was",
                f"{first.rows:,} rows in {first.read_partitions} key ranges within "
                f"{first.seconds:.1f} s; meanwhile {first.transactions_meanwhile:,} transactions "
                f"committed and {workers} killed",
                *(f"backfill.{name}" for name in asdict(first)),
            )
        rows_before = first.rows if first is not None else 0
        before = f" and {rows_before:,} rows before" if rows_before else ""
        proof.row(
            "every committed change is in the changelog exactly once, as it was",
            f"{self.changes_committed - rows_before:,} committed{before}, "
            f"{self.changes_in_changelog:,} in the changelog; missing {self.missing}, "
            f"duplicates {self.duplicates}, invented {self.invented}, "
            f"unlike the source {self.changes_unlike_source}",
            *("changes_committed", "changes_in_changelog", "missing"),
            *("duplicates", "invented", "changes_unlike_source"),
        )
        proof.row(
            "in commit order, by release and ordinal and by the rows' order in the files",
            f"out of order {self.out_of_order}, ordinals broken {self.ordinals_broken}, "
            f"late {self.late}",
            *("out_of_order", "ordinals_broken", "late"),
        )
        proof.row(
            "transactions stay whole, also those over several stream partitions",
            f"{self.transactions:,} transactions, {self.transactions_across_partitions:,} over "
            f"several stream partitions; torn {self.transactions_torn}",
            *("transactions", "transactions_across_partitions", "transactions_torn"),
        )
        proof.row(
            "every release names a consistent cut: both mirrors equal the tables at its time",
            f"{self.releases} releases, {self.mirror_cuts} cuts, {self.mirror_behind_s_most} s "
            f"behind at most; unlike the source {self.releases_unlike_source}, wrong "
            f"total {self.releases_with_wrong_total}, rows outside {self.rows_outside_release}",
            *("releases", "mirror_cuts", "mirror_behind_s_most", "releases_unlike_source"),
            *("releases_with_wrong_total", "rows_outside_release"),
        )
        proof.row(
            "at the end the mirrors equal the tables",
            "yes" if self.mirror_equals_source else "no",
            "mirror_equals_source",
        )
        proof.row(
            "through splits, merges and finished stream partitions",
            f"{self.splits} splits, {self.merges} merges, "
            f"{self.stream_partitions_finished} finished",
            *("splits", "merges", "stream_partitions_finished"),
        )
        proof.kills((*self.worker_kills, *self.consumer_kills))
        return proof.table

    def _latency(self, asked: Asked) -> Table:
        """Return how long changes took, first those that no kill delayed."""
        wrong = {figure.name for figure in self.wrong_figures(asked)}
        table = latency_table(
            "From the commit in Spanner to the commit in Delta",
            ("", "changes", "p50", "p99", "measured on"),
        )
        for figure, name, latency in (
            ("latency_undisturbed_ms", "undisturbed", self.latency_undisturbed_ms),
            ("latency_with_kills_ms", "while programs are killed", self.latency_with_kills_ms),
        ):
            mark = "[red]✗" if f"{figure}.rows" in wrong else "[green]✓"
            add_latency(table, latency, mark, name)
        return table


def latency_table(title: str, columns: Sequence[str]) -> Table:
    """Return a table without rows; `add_latency` adds them."""
    table = Table(title=title, title_justify="left", header_style="bold")
    for column in columns:
        table.add_column(column)
    return table


def add_latency(table: Table, latency: Latency, *head: str) -> None:
    """Add a row that begins with these cells, if anything was measured."""
    if latency.p50 is not None and latency.p99 is not None:
        table.add_row(
            *head,
            f"{latency.p50 / 1_000:.1f} s",
            f"{latency.p99 / 1_000:.1f} s",
            f"{latency.rows:,} changes, {latency.releases} releases",
        )


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
