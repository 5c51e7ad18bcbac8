"""The report of the scenario `datastream`: all figures, as JSON and as tables, and what is wrong.

`FilesReport.wrong_figures` is the only place that decides whether a figure is wrong.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from rich.table import Table

from tidegate.local_stack.demo.report import Kill, Latency, WrongFigure

_NONE = (
    "missing",
    "duplicates",
    "invented",
    "unlike_source",
    "histories_unlike_source",
    "in_time_out_of_order",
    "out_of_order",
    "ordinals_broken",
    "rows_outside_release",
    "releases_unlike_changelog",
    "unclean_stops",
)


@dataclass(frozen=True, slots=True)
class FilesAsked:
    """What the demo was asked to do; a run that did less is wrong, because it proves less."""

    transfers: int
    rows: int
    """The rows of the tables when the run began."""
    kill_workers: int
    kill_consumer: int
    disturbances: int = 1
    """Copies, late changes and deleted rows, at least so many of each."""


@dataclass(frozen=True, slots=True)
class FilesReport:
    """All figures of one run; counts are events unless their name says otherwise."""

    source: str
    """The kind of database that the files are of."""
    files: int
    events: int
    """Different ones, in files."""
    changes: int
    backfill_rows: int
    copies: int
    """Events in files beyond the first of each."""
    late: int
    """Changes that no file had early enough to be released in the source's order."""
    events_in_changelog: int
    missing: int
    duplicates: int
    invented: int
    unlike_source: int
    keys: int
    histories_unlike_source: int
    """Keys whose events, by `_datastream_order`, are not the source's in its order."""
    in_time_out_of_order: int
    behind_newer: int
    """Late changes that stand in the changelog behind a newer change of their row."""
    out_of_order: int
    ordinals_broken: int
    rows_outside_release: int
    releases: int
    mirror_cuts: int
    releases_unlike_changelog: int
    mirror_rows: int
    mirror_deleted_rows: int
    mirror_equals_source: bool
    total_is_right: bool
    """Whether the balances in the mirror add up to those that the bank began with."""
    worker_kills: tuple[Kill, ...]
    consumer_kills: tuple[Kill, ...]
    latency_in_time_ms: Latency
    lateness_seconds: int
    unclean_stops: int
    seconds: float
    seed: int
    examples: tuple[str, ...] = ()

    def wrong_figures(self, asked: FilesAsked) -> list[WrongFigure]:
        """Return the figures that are wrong, given what the run was asked to do."""
        wrong = [WrongFigure(n, getattr(self, n), "0") for n in _NONE if getattr(self, n) != 0]
        at_least = {
            # Without these the run shows nothing of what it is about.
            "copies": asked.disturbances,
            "late": asked.disturbances,
            "mirror_deleted_rows": asked.disturbances,
            # Every row is read, but for accounts that are closed before.
            "backfill_rows": asked.rows - asked.transfers,
            "releases": 2,
        }
        wrong += [
            WrongFigure(name, getattr(self, name), f"at least {least}")
            for name, least in at_least.items()
            if getattr(self, name) < least
        ]
        exactly = {
            # A transfer changes two accounts and adds a row to the ledger.
            "changes": (self.changes, 3 * asked.transfers),
            "events": (self.events, self.changes + self.backfill_rows),
            "events_in_changelog": (self.events_in_changelog, self.events),
            "mirror_equals_source": (self.mirror_equals_source, True),
            "total_is_right": (self.total_is_right, True),
            "worker_kills": (len(self.worker_kills), asked.kill_workers),
            "consumer_kills": (len(self.consumer_kills), asked.kill_consumer),
        }
        return wrong + [
            WrongFigure(name, found, str(expected))
            for name, (found, expected) in exactly.items()
            if found != expected
        ]

    def to_json(self) -> str:
        """Return the report as indented JSON; field names are the ones above."""
        return json.dumps(asdict(self), indent=2) + "\n"

    def tables(self, asked: FilesAsked) -> list[Table]:
        """Return what the run proved, and how long events took."""
        return [self._proof(asked), self._latency()]

    def _proof(self, asked: FilesAsked) -> Table:
        wrong = {figure.name for figure in self.wrong_figures(asked)}
        table = Table(title="What this run proved", title_justify="left", header_style="bold")
        for column in ("", "promise", "figures"):
            table.add_column(column)

        def row(promise: str, figures: str, *names: str) -> None:
            table.add_row("[red]✗" if wrong & set(names) else "[green]✓", promise, figures)

        row(
            f"files as Datastream writes them of {self.source}: out of order, late, twice",
            f"{self.files:,} files with {self.events:,} events: {self.changes:,} changes, "
            f"{self.backfill_rows:,} rows of a backfill; {self.copies:,} copies, "
            f"{self.late:,} changes late",
            "copies", "late", "changes", "events", "backfill_rows",
        )  # fmt: skip
        row(
            "every event is in the changelog exactly once, as it was",
            f"{self.events:,} written, {self.events_in_changelog:,} in the changelog; "
            f"missing {self.missing}, duplicates {self.duplicates}, invented {self.invented}, "
            f"unlike the source {self.unlike_source}",
            "events_in_changelog", "missing", "duplicates", "invented", "unlike_source",
        )  # fmt: skip
        row(
            "each row's history, by _datastream_order, is that of the source",
            f"{self.keys:,} rows; unlike the source {self.histories_unlike_source}",
            "histories_unlike_source",
        )
        row(
            "in the source's order, but for late events",
            f"out of order {self.in_time_out_of_order}; {self.behind_newer:,} late changes stand "
            "behind a newer one of their row",
            "in_time_out_of_order",
        )
        row(
            "releases are sorted and numbered, and each mirror is what the changelog says",
            f"{self.releases} releases, {self.mirror_cuts} cuts; unlike the changelog "
            f"{self.releases_unlike_changelog}, out of order {self.out_of_order}, ordinals broken "
            f"{self.ordinals_broken}, rows outside {self.rows_outside_release}",
            "releases", "releases_unlike_changelog", "out_of_order", "ordinals_broken",
            "rows_outside_release",
        )  # fmt: skip
        row(
            "at the end the mirrors equal the source's tables",
            f"{'yes' if self.mirror_equals_source else 'no'}: {self.mirror_rows:,} rows, "
            f"{self.mirror_deleted_rows:,} marked as deleted; the balances "
            f"{'add up' if self.total_is_right else 'do not add up'}",
            "mirror_equals_source", "total_is_right", "mirror_deleted_rows",
        )  # fmt: skip
        kills = sorted((*self.worker_kills, *self.consumer_kills), key=lambda kill: kill.at)
        row(
            "through SIGKILL",
            ", ".join(f"{kill.worker} in {kill.step} at {kill.at:.0f} s" for kill in kills)
            or "none",
            "worker_kills", "consumer_kills", "unclean_stops",
        )  # fmt: skip
        return table

    def _latency(self) -> Table:
        table = Table(
            title="From the file to the commit in Delta", title_justify="left", header_style="bold"
        )
        for column in ("changes", "p50", "p99", "measured on"):
            table.add_column(column)
        latency = self.latency_in_time_ms
        if latency.p50 is not None and latency.p99 is not None:
            table.add_row(
                f"in time; {self.lateness_seconds} s of it are `lateness_seconds`",
                f"{latency.p50 / 1_000:.1f} s",
                f"{latency.p99 / 1_000:.1f} s",
                f"{latency.rows:,} changes, {latency.releases} releases",
            )
        return table
