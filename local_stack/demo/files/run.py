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
import time
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.local_stack.config import load_config
from tidegate.local_stack.demo.bank import ACCOUNTS
from tidegate.local_stack.demo.files.report import FilesAsked, FilesReport
from tidegate.local_stack.demo.files.source_bank import KEY, SourceBank
from tidegate.local_stack.demo.files.writer import FilesWriter
from tidegate.local_stack.demo.kills import CONSUMER_STEPS, WORKER_STEPS, Killer
from tidegate.local_stack.demo.pipeline import Pipeline
from tidegate.local_stack.demo.report import latency_of
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

if TYPE_CHECKING:
    from tidegate.local_stack.demo.run import DemoOptions


PREFIX = "files"
LATENESS_S = 10
_HOLD_S = 20.0
"""Longer than the lateness, so that these files are late."""
_CLOCK_STEPS_S = 2.0
"""By so much the times of some sources go backwards."""
_FIRST_SHARE = 0.1
_MANY_TRANSFERS, _SOME = 100, 5
_CONSUMER_DEADLINE_S = 300.0
_CATCH_UP_DEADLINE_S = 600.0
_FIGURES_EVERY_S = 0.5


def files_asked(options: DemoOptions) -> FilesAsked:
    """Return what a report is compared with."""
    return FilesAsked(
        transfers=options.transfers,
        rows=options.accounts + options.rows_before,
        kill_workers=options.kill_workers,
        kill_consumer=options.kill_consumer,
        # A few transfers may all come in time, and a few accounts are not closed.
        disturbances=int(options.transfers >= _MANY_TRANSFERS and options.accounts >= _SOME),
    )


def run_files_demo(options: DemoOptions, *, folder: Path, view: RunView) -> FilesReport:
    """Run the scenario below `folder` and return its report, right or wrong.

    Raises PartFailedError when a part fails or a deadline passes; stops everything in any case.
    """
    with ExitStack() as cleanup:
        view.stage("starting Kafka and schema registry")
        config = load_config(data_dir=folder / "stack", seed=options.seed)
        stack = cleanup.enter_context(
            LocalStack(config, report=view.detail, with_simulator=False, is_patient=True)
        )
        run = FilesRun(options=options, stack=stack, folder=folder, view=view)
        cleanup.callback(run.stop)
        return run.run()


class FilesRun:
    """One run on a started stack."""

    def __init__(
        self, *, options: DemoOptions, stack: LocalStack, folder: Path, view: RunView
    ) -> None:
        self._options, self._view = options, view
        began = datetime.now(UTC)
        bank = SourceBank(
            accounts=options.accounts,
            rows=options.rows_before,
            seed=options.seed,
            opened_us=int(began.timestamp()) * 1_000_000,
        )
        self._total = bank.total
        self._writer = FilesWriter(
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
        source = {
            "kind": "datastream",
            "location": str(self._writer.location),
            "poll_seconds": 1,
            "lateness_seconds": LATENESS_S,
        }
        self._start = (began - timedelta(minutes=1)).isoformat().replace("+00:00", "Z")
        self._pipeline = Pipeline(
            Programs(
                folder=folder,
                bootstrap_servers=stack.bootstrap_servers,
                registry_url=stack.registry_url,
                spanner_address="",
                database=DatabaseName(address=""),
                stream="",
                prefix=PREFIX,
                source=json.dumps(source),
            )
        )
        self._worker_killer = Killer(options.seed, WORKER_STEPS, lambda: view.seconds)
        self._consumer_killer = Killer(options.seed, CONSUMER_STEPS, lambda: view.seconds)
        self._figures_at = 0.0

    def run(self) -> FilesReport:
        """Carry out all parts and return the report."""
        view, options, pipeline, writer = self._view, self._options, self._pipeline, self._writer
        view.stage(f"writing files as Datastream does, of a bank in {options.files_of.vendor_name}")
        writer.start()
        view.stage(f"starting {options.workers} workers, then the consumer")
        pipeline.start_workers(options.workers, start=self._start, tick=self._tick)
        pipeline.start_consumer(self._tick)
        view.stage("waiting for the first release")
        pipeline.wait(
            lambda: pipeline.released().releases > 0,
            what="the first release",
            deadline_s=_CONSUMER_DEADLINE_S,
            tick=self._tick,
        )
        view.stage("the rest of transfers and backfill, with kills; files come late and twice")
        writer.resume()
        for _ in range(options.kill_workers):
            self._kill(self._busiest(), self._worker_killer)
        for _ in range(options.kill_consumer):
            if pipeline.consumer is not None:
                self._kill(pipeline.consumer, self._consumer_killer)
        pipeline.wait(
            lambda: writer.has_written_all_but_last,
            what="all files but the last to be written",
            deadline_s=_CATCH_UP_DEADLINE_S + options.transfers / (options.pace or 1_000),
            tick=self._tick,
        )
        writer.finish()
        pipeline.wait(
            lambda: writer.has_finished,
            what="the last file to be written",
            deadline_s=_CONSUMER_DEADLINE_S,
            tick=self._tick,
        )
        view.stage("waiting until the last transfer is in Delta")
        pipeline.wait_released(
            writer.last_source_us, deadline_s=_CATCH_UP_DEADLINE_S, tick=self._tick
        )
        self._tick(at_once=True)
        view.stage("stopping workers and consumer")
        unclean = pipeline.stop()
        return self._judge(unclean)

    def stop(self) -> None:
        """Stop what this run has started; does nothing for what has stopped already."""
        self._writer.stop()
        self._pipeline.stop()

    def _kill(self, victim: Program, killer: Killer) -> None:
        self._view.stage(f"killing {victim.name}")
        killed = killer.kill_and_restart(
            victim, before=self._pipeline.going_down, after=self._pipeline.is_up_again
        )
        self._view.event(f"killed {killed.worker} in step {killed.step}, restarted it")
        self._pipeline.check()

    def _busiest(self) -> Program:
        """Return the worker that has published most often: the others may have no files."""
        return max(
            self._pipeline.workers,
            key=lambda one: StepFollower(one.spec.log, 0).new_steps().count("publish"),
        )

    def _judge(self, unclean: list[str]) -> FilesReport:
        view, writer, options = self._view, self._writer, self._options
        view.stage("comparing Delta with the bank")
        delta = DeltaReader(self._pipeline.programs.output)
        manifests = delta.manifests()
        changelogs = [delta.changelog(table) for table in delta.changelog_tables()]
        rows = event_rows(changelogs, key=KEY)
        found = compare_events(writer.events, rows=rows, changelogs=changelogs, manifests=manifests)
        view.detail("comparing the mirrors")
        tables = writer.final_tables
        mirrors = compare_event_mirrors(
            manifests, mirrors=delta, rows=rows, events=writer.events, tables=tables, key=KEY
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
            events_in_changelog=found.events_in_changelog,
            missing=found.missing,
            duplicates=found.duplicates,
            invented=found.invented,
            unlike_source=found.unlike_source,
            keys=found.keys,
            histories_unlike_source=found.histories_unlike_source,
            in_time_out_of_order=found.in_time_out_of_order,
            behind_newer=found.behind_newer,
            out_of_order=found.out_of_order,
            ordinals_broken=found.ordinals_broken,
            rows_outside_release=found.outside_release,
            releases=mirrors.releases,
            mirror_cuts=mirrors.cuts,
            releases_unlike_changelog=mirrors.releases_unlike_changelog,
            mirror_rows=mirrors.rows,
            mirror_deleted_rows=mirrors.deleted_rows,
            mirror_equals_source=mirrors.mirror_equals_source,
            total_is_right=self._total_in_mirror(delta) == self._total,
            worker_kills=tuple(self._worker_killer.kills),
            consumer_kills=tuple(self._consumer_killer.kills),
            latency_in_time_ms=latency_of(
                event_deliveries(delta, rows=rows, events=writer.events, manifests=manifests),
                measured="the first file with a change to the Delta commit of its changelog row; "
                "changes that were in time, after the first release",
            ),
            lateness_seconds=LATENESS_S,
            unclean_stops=len(unclean),
            seconds=round(view.seconds, 1),
            seed=options.seed,
            examples=(*found.examples, *mirrors.examples, *unclean),
        )

    def _total_in_mirror(self, delta: DeltaReader) -> Decimal:
        """Return the sum of the balances of accounts that the mirror does not mark as deleted."""
        table = self._writer.topic_name(ACCOUNTS)
        if table not in delta.mirror_tables():
            return Decimal(0)
        mirror = delta.mirror(table)
        pairs = zip(mirror["balance"], mirror["_datastream_change_type"], strict=True)
        return sum((one for one, kind in pairs if not kind.endswith("DELETE")), Decimal(0))

    def _tick(self, *, at_once: bool = False) -> None:
        """Show the newest figures, every half second at most unless `at_once`."""
        now = time.monotonic()
        if now - self._figures_at < _FIGURES_EVERY_S and not at_once:
            return
        self._figures_at = now
        kills = len(self._worker_killer.kills) + len(self._consumer_killer.kills)
        self._view.figures(
            transfers=f"{self._writer.done:,}/{self._options.transfers:,}",
            files=f"{self._writer.files:,}",
            events=f"{len(self._writer.events):,}",
            copies=f"{self._writer.copies:,}",
            releases=self._pipeline.released().releases,
            kills=kills,
        )
