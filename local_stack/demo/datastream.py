"""The demo's scenario `datastream`: files as Google Datastream writes them, and a fleet of workers.

Order of a run:

1. Kafka and the registry start; the bank's first transfers and rows of a backfill are written as
   files; workers and the consumer start, and make the first release.
2. The rest of the transfers and of the backfill; workers and the consumer are killed meanwhile.
   Files come out of order, late, and twice.
3. The last transfer, once every other event is in a file.  When it is in Delta, everything is.
4. All programs stop in order, and the judge compares Delta with the bank.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import ClassVar

from rich.table import Table

from tidegate.local_stack.demo.bank import ACCOUNTS
from tidegate.local_stack.demo.conductor import Killers
from tidegate.local_stack.demo.event_writer import FilesWriter
from tidegate.local_stack.demo.report import (
    Asked,
    Kill,
    Latency,
    Proof,
    WrongFigure,
    add_latency,
    find_wrong,
    latency_of,
    latency_table,
)
from tidegate.local_stack.demo.run import (
    CATCH_UP_DEADLINE_S,
    CONSUMER_DEADLINE_S,
    DemoOptions,
    DemoRun,
)
from tidegate.local_stack.demo.source_bank import KEY, SourceBank
from tidegate.local_stack.demo.view import RunView
from tidegate.local_stack.judge.delta import DeltaReader
from tidegate.local_stack.judge.events import (
    compare_event_mirrors,
    compare_events,
    event_deliveries,
    event_rows,
)
from tidegate.local_stack.parts.programs import DatabaseName, Program, Programs, StepFollower
from tidegate.local_stack.parts.stack import LocalStack

PREFIX = "files"
LATENESS_S = 10
_HOLD_S = 20.0
"""Longer than the lateness, so that these files are late."""
_CLOCK_STEPS_S = 2.0
"""By this much the times of some sources go backwards."""
_FIRST_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class FilesReport:
    """All figures of a run with Datastream's files.

    Counts are events unless their name says otherwise.
    """

    source: str
    """The kind of database that the files are of."""
    files: int
    events: int
    """The number of different events in files."""
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
    """Late changes that are in the changelog after a newer change of their row."""
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

    def wrong_figures(self, asked: Asked) -> list[WrongFigure]:
        """Return the figures that are wrong, given what the run was asked to do."""
        return find_wrong(
            self,
            zero=(
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
            ),
            at_least={
                # Without these the run would prove nothing.
                "copies": asked.disturbances,
                "late": asked.disturbances,
                "mirror_deleted_rows": asked.disturbances,
                # Every row is read, but for accounts that are closed before.
                "backfill_rows": (asked.first_rows or 0) - asked.transfers,
                "releases": 2,
            },
            exactly={
                # A transfer changes two accounts and adds a row to the ledger.
                "changes": (self.changes, 3 * asked.transfers),
                "events": (self.events, self.changes + self.backfill_rows),
                "events_in_changelog": (self.events_in_changelog, self.events),
                "mirror_equals_source": (self.mirror_equals_source, True),
                "total_is_right": (self.total_is_right, True),
                "worker_kills": (len(self.worker_kills), asked.kill_workers),
                "consumer_kills": (len(self.consumer_kills), asked.kill_consumer),
            },
        )

    def to_json(self) -> str:
        """Return the report as indented JSON; field names are the ones above."""
        return json.dumps(asdict(self), indent=2) + "\n"

    def tables(self, asked: Asked) -> list[Table]:
        """Return what the run proved, and how long events took."""
        return [self._proof(asked), self._latency()]

    def _proof(self, asked: Asked) -> Table:
        proof = Proof(self.wrong_figures(asked))
        proof.row(
            f"files as Datastream writes them of {self.source}: out of order, late, twice",
            f"{self.files:,} files with {self.events:,} events: {self.changes:,} changes, "
            f"{self.backfill_rows:,} rows of a backfill; {self.copies:,} copies, "
            f"{self.late:,} changes late",
            *("copies", "late", "changes", "events", "backfill_rows"),
        )
        proof.row(
            "every event is in the changelog exactly once, as it was",
            f"{self.events:,} written, {self.events_in_changelog:,} in the changelog; "
            f"missing {self.missing}, duplicates {self.duplicates}, invented {self.invented}, "
            f"unlike the source {self.unlike_source}",
            *("events_in_changelog", "missing", "duplicates", "invented", "unlike_source"),
        )
        proof.row(
            "each row's history, by _datastream_order, is that of the source",
            f"{self.keys:,} rows; unlike the source {self.histories_unlike_source}",
            "histories_unlike_source",
        )
        proof.row(
            "in the source's order, but for late events",
            f"out of order {self.in_time_out_of_order}; {self.behind_newer:,} late changes stand "
            "behind a newer one of their row",
            "in_time_out_of_order",
        )
        proof.row(
            "releases are sorted and numbered, and each mirror is what the changelog says",
            f"{self.releases} releases, {self.mirror_cuts} cuts; unlike the changelog "
            f"{self.releases_unlike_changelog}, out of order {self.out_of_order}, ordinals broken "
            f"{self.ordinals_broken}, rows outside {self.rows_outside_release}",
            *("releases", "releases_unlike_changelog", "out_of_order", "ordinals_broken"),
            "rows_outside_release",
        )
        proof.row(
            "at the end the mirrors equal the source's tables",
            f"{'yes' if self.mirror_equals_source else 'no'}: {self.mirror_rows:,} rows, "
            f"{self.mirror_deleted_rows:,} marked as deleted; the balances "
            f"{'add up' if self.total_is_right else 'do not add up'}",
            *("mirror_equals_source", "total_is_right", "mirror_deleted_rows"),
        )
        proof.kills((*self.worker_kills, *self.consumer_kills))
        return proof.table

    def _latency(self) -> Table:
        table = latency_table(
            "From the file to the commit in Delta", ("changes", "p50", "p99", "measured on")
        )
        name = f"in time; {self.lateness_seconds} s of it are `lateness_seconds`"
        add_latency(table, self.latency_in_time_ms, name)
        return table


class DatastreamRun(DemoRun):
    """A run of the scenario `datastream`."""

    starting: ClassVar[str] = "starting Kafka and schema registry"
    has_simulator: ClassVar[bool] = False

    def __init__(
        self, *, options: DemoOptions, stack: LocalStack, folder: Path, view: RunView
    ) -> None:
        began = datetime.now(UTC)
        bank = SourceBank(
            accounts=options.accounts,
            rows=options.rows_before,
            seed=options.seed,
            opened_us=int(began.timestamp()) * 1_000_000,
        )
        self.total = bank.total
        self.writer = FilesWriter(
            location=folder / "files" / "bank",
            source=options.files_of,
            bank=bank,
            transfers=options.transfers,
            rate_max=options.pace,
            pause_at=max(1, int(options.transfers * _FIRST_SHARE)),
            seed=options.seed,
            hold_s=_HOLD_S,
            in_time_s=LATENESS_S - _CLOCK_STEPS_S,
        )
        self.start = (began - timedelta(minutes=1)).isoformat().replace("+00:00", "Z")
        super().__init__(options=options, stack=stack, folder=folder, view=view)
        self.killers = Killers(seed=options.seed, pipeline=self.pipeline, view=view)

    def make_programs(self) -> Programs:
        """Return the programs that read the writer's files."""
        source = {
            "kind": "datastream",
            "location": str(self.writer.location),
            "poll_seconds": 1,
            "lateness_seconds": LATENESS_S,
        }
        return Programs(
            folder=self.folder,
            bootstrap_servers=self.stack.bootstrap_servers,
            registry_url=self.stack.registry_url,
            spanner_address="",
            database=DatabaseName(address=""),
            stream="",
            prefix=PREFIX,
            source=json.dumps(source),
        )

    def run(self) -> FilesReport:
        """Carry out all parts and return the report."""
        view, options, pipeline, writer = self.view, self.options, self.pipeline, self.writer
        view.stage(f"writing files as Datastream does, of a bank in {options.files_of.vendor_name}")
        writer.start()
        view.stage(f"starting {options.workers} workers, then the consumer")
        pipeline.start_workers(options.workers, start=self.start, tick=self.tick)
        pipeline.start_consumer(self.tick)
        view.stage("waiting for the first release")
        pipeline.wait(
            lambda: pipeline.released().releases > 0,
            what="the first release",
            deadline_s=CONSUMER_DEADLINE_S,
            tick=self.tick,
        )
        view.stage("the rest of transfers and backfill, with kills; files come late and twice")
        writer.resume()
        self._kill_programs()
        pipeline.wait(
            lambda: writer.has_written_all_but_last,
            what="all files but the last to be written",
            deadline_s=CATCH_UP_DEADLINE_S + options.transfers / (options.pace or 1_000),
            tick=self.tick,
        )
        writer.finish()
        pipeline.wait(
            lambda: writer.has_finished,
            what="the last file to be written",
            deadline_s=CONSUMER_DEADLINE_S,
            tick=self.tick,
        )
        view.stage("waiting until the last transfer is in Delta")
        pipeline.wait_released(
            writer.last_source_us, deadline_s=CATCH_UP_DEADLINE_S, tick=self.tick
        )
        return self._judge(self.stop_programs())

    def stop_source(self) -> None:
        """Stop writing files."""
        self.writer.stop()

    def _kill_programs(self) -> None:
        """Kill workers, then the consumer."""
        for _ in range(self.options.kill_workers):
            victim = self._busiest()
            self.view.stage(f"killing {victim.name}")
            self.killers.kill_worker(victim)
            self.pipeline.check()
        for _ in range(self.options.kill_consumer):
            if self.pipeline.consumer is not None:
                self.view.stage(f"killing {self.pipeline.consumer.name}")
                self.killers.kill_consumer()
                self.pipeline.check()

    def _busiest(self) -> Program:
        """Return the worker that has published most often: other workers may have no files."""
        return max(
            self.pipeline.workers,
            key=lambda worker: StepFollower(worker.spec.log, 0).new_steps().count("publish"),
        )

    def _judge(self, unclean: list[str]) -> FilesReport:
        view, writer, options = self.view, self.writer, self.options
        view.stage("comparing Delta with the bank")
        delta = DeltaReader(self.pipeline.programs.output)
        manifests = delta.manifests()
        changelogs = [delta.changelog(table) for table in delta.changelog_tables()]
        rows = event_rows(changelogs, key=KEY)
        figures = compare_events(
            writer.events, rows=rows, changelogs=changelogs, manifests=manifests
        )
        view.detail("comparing the mirrors")
        mirrors = compare_event_mirrors(
            manifests,
            mirrors=delta,
            rows=rows,
            events=writer.events,
            tables=writer.final_tables,
            key=KEY,
        )
        counts = writer.event_counts
        return FilesReport(
            source=options.files_of.vendor_name,
            files=writer.files,
            events=len(writer.events),
            changes=counts["changes"],
            backfill_rows=counts["rows"],
            copies=writer.copies,
            late=counts["late"],
            events_in_changelog=figures.events_in_changelog,
            missing=figures.missing,
            duplicates=figures.duplicates,
            invented=figures.invented,
            unlike_source=figures.unlike_source,
            keys=figures.keys,
            histories_unlike_source=figures.histories_unlike_source,
            in_time_out_of_order=figures.in_time_out_of_order,
            behind_newer=figures.behind_newer,
            out_of_order=figures.out_of_order,
            ordinals_broken=figures.ordinals_broken,
            rows_outside_release=figures.outside_release,
            releases=mirrors.releases,
            mirror_cuts=mirrors.cuts,
            releases_unlike_changelog=mirrors.releases_unlike_changelog,
            mirror_rows=mirrors.rows,
            mirror_deleted_rows=mirrors.deleted_rows,
            mirror_equals_source=mirrors.mirror_equals_source,
            total_is_right=self._total_in_mirror(delta) == self.total,
            worker_kills=tuple(self.killers.worker_killer.kills),
            consumer_kills=tuple(self.killers.consumer_killer.kills),
            latency_in_time_ms=latency_of(
                event_deliveries(delta, rows=rows, events=writer.events, manifests=manifests),
                measured="the first file with a change to the Delta commit of its changelog row; "
                "changes that were in time, after the first release",
            ),
            lateness_seconds=LATENESS_S,
            unclean_stops=len(unclean),
            seconds=round(view.seconds, 1),
            seed=options.seed,
            examples=(*figures.examples, *mirrors.examples, *unclean),
        )

    def _total_in_mirror(self, delta: DeltaReader) -> Decimal:
        """Return the sum of the balances of accounts that the mirror does not mark as deleted."""
        table = self.writer.topic_name(ACCOUNTS)
        if table not in delta.mirror_tables():
            return Decimal(0)
        mirror = delta.mirror(table)
        pairs = zip(mirror["balance"], mirror["_datastream_change_type"], strict=True)
        return sum((balance for balance, kind in pairs if not kind.endswith("DELETE")), Decimal(0))

    def figures(self) -> dict[str, object]:
        """Return the newest figures."""
        return {
            "transfers": f"{self.writer.done:,}/{self.options.transfers:,}",
            "files": f"{self.writer.files:,}",
            "events": f"{len(self.writer.events):,}",
            "copies": f"{self.writer.copies:,}",
            "releases": self.pipeline.released().releases,
            "kills": self.killers.count,
        }
