"""The demo: a bank under splits, merges and SIGKILL, and the proof that its changes arrive right.

Order of a run:

1. The stack, the bank, the workers and the consumer start; the opened accounts arrive in Delta.
2. Warm-up: a few transfers create the remaining tables.
3. Undisturbed: three quarters of the transfers, with splits and merges.
4. Kills: the remaining transfers, with splits, merges and SIGKILL of workers and consumer; the last
   transfers wait until every kill has happened.
5. All programs stop in order, and the judge compares Delta with Spanner.

The next part begins when Delta has every change of the part before it.  So latency has a figure
without the start of a JVM in it, and no change is between two parts.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from tidegate.local_stack.config import load_config
from tidegate.local_stack.demo.bank import (
    ACCOUNT_COLUMNS,
    ACCOUNTS,
    LEDGER,
    LEDGER_COLUMNS,
    STREAM,
    Bank,
    Dialect,
    FilesOf,
    KeyRanges,
    Scenario,
)
from tidegate.local_stack.demo.bank_database import (
    create_bank_database,
    open_accounts,
)
from tidegate.local_stack.demo.churn import SimulatorControl, schedule
from tidegate.local_stack.demo.conductor import Conductor
from tidegate.local_stack.demo.customers import Customers
from tidegate.local_stack.demo.pipeline import Pipeline
from tidegate.local_stack.demo.report import Asked, BackfillFigures, Report, latency_figures
from tidegate.local_stack.demo.view import RunView
from tidegate.local_stack.judge.log import fetch_commit_log
from tidegate.local_stack.judge.source import FirstRows, SourceTable, SpannerSource, is_of_backfill
from tidegate.local_stack.judge.topics import finished_stream_partitions
from tidegate.local_stack.judge.verdict import Verdict, judge_output
from tidegate.local_stack.parts.programs import DatabaseName, Programs
from tidegate.local_stack.parts.stack import LocalStack

PREFIX = "bank"
_CONSUMER_DEADLINE_S = 300.0
_CATCH_UP_DEADLINE_S = 600.0
_FIGURES_EVERY_S = 0.5
_RATE_SMALL = 40.0
_BIG_RUN_S = 90.0
_WARM_UP_MAX = 20
_UNDISTURBED_SHARE = 0.75
_ROWS = {Scenario.BANK: 0, Scenario.BACKFILL: 40_000, Scenario.DATASTREAM: 2_000}


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What to run; the defaults take about two minutes on two cores."""

    accounts: int = 200
    transfers: int = 2_000
    workers: int = 2
    splits: int = 6
    merges: int = 4
    kill_workers: int = 1
    kill_consumer: int = 1
    seed: int = 1
    rate_max: float | None = None
    """Transfers per second at most; 0: no limit; None: see `pace`."""
    dialect: Dialect = Dialect.GOOGLESQL
    """The dialect of the bank's database."""
    key_ranges: KeyRanges = KeyRanges.IMMUTABLE
    """The partition mode of its change stream."""
    scenario: Scenario = Scenario.BANK
    rows: int | None = None
    """Transfers that were made before the stream, but for the scenario `bank`; None: some."""
    files_of: FilesOf = FilesOf.MYSQL
    """The database of the scenario `datastream`."""

    @property
    def rows_before(self) -> int:
        """`rows`; by default the scenario's number."""
        return _ROWS[self.scenario] if self.rows is None else self.rows

    @property
    def pace(self) -> float:
        """Transfers per second: by default slow enough for several releases in a small run."""
        if self.rate_max is not None:
            return self.rate_max
        return max(_RATE_SMALL, self.transfers / _BIG_RUN_S)

    @property
    def warm_up(self) -> int:
        """How many transfers come before the undisturbed ones."""
        return min(_WARM_UP_MAX, self.transfers // 10)

    @property
    def has_kills(self) -> bool:
        """Whether the run ends with a part in which programs are killed."""
        return bool(self.kill_workers or self.kill_consumer)

    @property
    def kills_from(self) -> int:
        """The number of the first transfer after the undisturbed ones."""
        return int(self.transfers * _UNDISTURBED_SHARE) if self.has_kills else self.transfers

    @property
    def meanwhile(self) -> int:
        """How many transfers are made while the rows before them are read, with `backfill`."""
        return self.transfers // 2

    @property
    def pauses(self) -> tuple[int, ...]:
        """The numbers of the transfers that wait until all before them are in Delta."""
        if self.scenario is Scenario.BACKFILL:
            return (self.meanwhile, (self.meanwhile + self.transfers) // 2)
        return (self.warm_up, *([self.kills_from] if self.has_kills else []))

    @property
    def asked(self) -> Asked:
        """What the report is compared with."""
        is_backfill = self.scenario is Scenario.BACKFILL
        return Asked(
            transfers=self.transfers,
            undisturbed=(
                self.transfers - self.meanwhile if is_backfill else self.kills_from - self.warm_up
            ),
            first_rows=self.accounts + self.rows_before if is_backfill else None,
            splits=self.splits,
            merges=self.merges,
            kill_workers=self.kill_workers,
            kill_consumer=self.kill_consumer,
        )


def bank_layout(*, commit_timestamps: bool = True) -> dict[str, SourceTable]:
    """Return the bank's tables as the judge reads them."""
    ledger = (*LEDGER_COLUMNS, "CommittedAt") if commit_timestamps else LEDGER_COLUMNS
    return {
        ACCOUNTS: SourceTable(ACCOUNT_COLUMNS, ("AccountId",)),
        LEDGER: SourceTable(ledger, ("TransferId",)),
    }


def run_demo(
    options: DemoOptions, *, folder: Path, view: RunView, kind: type[BankRun] | None = None
) -> Report:
    """Run the whole demo below `folder` and return its report, right or wrong.

    `kind` is the scenario's; the bank's without one.

    Raises PartFailedError when a part fails or a deadline passes; stops everything in any case.
    """
    bank = Bank(accounts=options.accounts, seed=options.seed)
    with ExitStack() as cleanup:
        view.stage("starting Kafka, schema registry and the Spanner simulator")
        config = load_config(data_dir=folder / "stack", seed=options.seed)
        stack = cleanup.enter_context(LocalStack(config, report=view.detail, is_patient=True))
        run = (kind or BankRun)(options=options, bank=bank, stack=stack, folder=folder, view=view)
        cleanup.callback(run.stop)
        return run.run()


class BankRun:
    """One run on a started stack."""

    settings: ClassVar[Mapping[str, str]] = {}
    """Further environment variables of its programs."""

    def __init__(
        self, *, options: DemoOptions, bank: Bank, stack: LocalStack, folder: Path, view: RunView
    ) -> None:
        self._options, self._bank, self._stack, self._view = options, bank, stack, view
        self._name = DatabaseName(address=stack.spanner_address)
        self._control = SimulatorControl(
            stack.control_address, database=self._name.path, stream=STREAM
        )
        self._pipeline = Pipeline(
            Programs(
                folder=folder,
                bootstrap_servers=stack.bootstrap_servers,
                registry_url=stack.registry_url,
                spanner_address=stack.spanner_address,
                database=self._name,
                stream=STREAM,
                prefix=PREFIX,
                more=self.settings,
            )
        )
        self._customers = Customers(
            self._name,
            bank=bank,
            transfers=options.transfers,
            rate_max=options.pace,
            pauses=options.pauses,
            reserve=self._reserve,
            log=folder / "logs" / "customers.log",
        )
        self._conductor = Conductor(
            seed=options.seed,
            customers=self._customers,
            control=self._control,
            pipeline=self._pipeline,
            view=view,
        )
        self._figures_at = 0.0
        self._rate_from = (0.0, 0)

    @property
    def _reserve(self) -> int:
        """How many of the last transfers wait for the last kill."""
        # A tenth at most: the plan has steps up to 0.9 of the transfers.
        return max(1, self._options.transfers // 10) if self._options.has_kills else 0

    def run(self) -> Report:
        """Carry out all parts and return the report."""
        view, customers, options = self._view, self._customers, self._options
        plan = schedule(
            options.seed,
            splits=options.splits,
            merges=options.merges,
            kill_workers=options.kill_workers,
            kill_consumer=options.kill_consumer,
            kills_from=options.kills_from / options.transfers,
        )
        kills_share = options.kills_from / options.transfers
        database, opened_us = self._start_pipeline()
        view.stage(f"warming up: {options.warm_up:,} transfers")
        customers.start()
        warm_us = self._wait_delivered(options.warm_up)
        view.stage(
            f"{options.kills_from - options.warm_up:,} transfers with splits and merges, no kills"
        )
        customers.resume()
        self._conductor.conduct([p for p in plan if p.at_share < kills_share], self._tick)
        undisturbed_us = self._wait_delivered(options.kills_from)
        if options.has_kills:
            left = options.transfers - options.kills_from
            view.stage(f"{left:,} transfers with splits, merges and kills")
            customers.resume()
            self._conductor.conduct([p for p in plan if p.at_share >= kills_share], self._tick)
            customers.finish()
            self._wait_delivered(options.transfers)
        self._tick(at_once=True)
        view.stage("stopping workers and consumer")
        unclean = self._pipeline.stop()
        verdict = self._judge(database, opened_us=opened_us)
        return self._report(
            verdict,
            warm_us=warm_us,
            undisturbed_us=undisturbed_us,
            unclean=unclean,
            finished=self._finished(),
        )

    def _start_pipeline(self) -> tuple[Any, int]:
        """Return the bank's database and when its accounts were opened; Delta has them."""
        view, options = self._view, self._options
        view.stage("creating the bank")
        database = create_bank_database(
            self._name, dialect=options.dialect, key_ranges=options.key_ranges
        )
        start = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        opened_us = open_accounts(database, self._bank)
        view.stage(f"starting {options.workers} workers, then the consumer")
        self._pipeline.start_workers(options.workers, start=start, tick=self._tick)
        self._pipeline.start_consumer(self._tick)
        view.stage("waiting for the opened accounts to arrive in Delta")
        self._pipeline.wait_released(opened_us, deadline_s=_CONSUMER_DEADLINE_S, tick=self._tick)
        return database, opened_us

    def _wait_delivered(self, transfers: int) -> int:
        """Wait until so many transfers are made and in Delta; return when the last one committed.

        The time is the commit timestamp in microseconds since 1970.
        """
        self._pipeline.wait(
            lambda: self._customers.has_finished or self._customers.done >= transfers,
            what=f"the bank's customers to make {transfers:,} transfers",
            deadline_s=_CATCH_UP_DEADLINE_S,
            tick=self._tick,
        )
        committed_us = self._customers.last_commit_us
        self._view.stage(f"waiting until the first {transfers:,} transfers are in Delta")
        self._pipeline.wait_released(committed_us, deadline_s=_CATCH_UP_DEADLINE_S, tick=self._tick)
        return committed_us

    def stop(self) -> None:
        """Stop what this run has started; does nothing for what has stopped already."""
        self._customers.stop()
        self._pipeline.stop()

    def _judge(self, database: Any, *, opened_us: int, first: FirstRows | None = None) -> Verdict:
        self._view.stage("comparing Delta with the commit log and the source tables")
        return judge_output(
            self._pipeline.programs.output,
            transactions=fetch_commit_log(
                self._stack.control_address, database=self._name.path, stream=STREAM
            ),
            source=SpannerSource(database, bank_layout()),
            rule=lambda cut, through_us: self._bank.faults(cut, opened=through_us >= opened_us),
            first=first,
            progress=self._view.detail,
        )

    def _finished(self) -> dict[str, int]:
        """Return the finished stream partitions, and when each was, in ms since 1970."""
        return finished_stream_partitions(
            PREFIX,
            bootstrap_servers=self._stack.bootstrap_servers,
            registry_url=self._stack.registry_url,
        )

    def _report(
        self,
        verdict: Verdict,
        *,
        warm_us: int,
        undisturbed_us: int,
        unclean: list[str],
        finished: Mapping[str, int],
        backfill: BackfillFigures | None = None,
    ) -> Report:
        conductor = self._conductor
        changelog, cuts = verdict.changelog, verdict.cuts
        undisturbed, with_kills = latency_figures(
            verdict.deliveries, warm_us=warm_us, undisturbed_us=undisturbed_us
        )
        return Report(
            changes_committed=changelog.changes_committed,
            changes_in_changelog=changelog.changes_in_changelog,
            missing=changelog.missing,
            duplicates=changelog.duplicates,
            invented=changelog.invented,
            changes_unlike_source=changelog.unlike_source,
            out_of_order=changelog.out_of_order,
            ordinals_broken=changelog.ordinals_broken,
            late=verdict.late,
            transactions=verdict.transactions,
            transactions_across_partitions=verdict.transactions_across_partitions,
            transactions_torn=changelog.torn,
            splits=conductor.splits,
            merges=conductor.merges,
            stream_partitions_finished=sum(not is_of_backfill(token) for token in finished),
            worker_kills=tuple(conductor.worker_killer.kills),
            consumer_kills=tuple(conductor.consumer_killer.kills),
            releases=cuts.releases,
            mirror_cuts=cuts.cuts,
            mirror_behind_s_most=round(cuts.behind_us_most / 1_000_000, 1),
            rows_outside_release=changelog.outside_release,
            releases_unlike_source=cuts.unlike_source,
            releases_with_wrong_total=cuts.with_wrong_total,
            mirror_equals_source=cuts.mirror_equals_source,
            latency_undisturbed_ms=undisturbed,
            latency_with_kills_ms=with_kills,
            unclean_stops=len(unclean),
            seconds=round(self._view.seconds, 1),
            seed=self._options.seed,
            backfill=backfill,
            examples=(*changelog.examples, *cuts.examples, *unclean),
        )

    def _tick(self, *, at_once: bool = False) -> None:
        """Show the newest figures, every half second at most unless `at_once`."""
        now = time.monotonic()
        if now - self._figures_at < _FIGURES_EVERY_S and not at_once:
            return
        done, conductor = self._customers.done, self._conductor
        then, before = self._rate_from
        rate = (done - before) / (now - then) if then else 0.0
        self._figures_at, self._rate_from = now, (now, done)
        figures: dict[str, object] = {"releases": self._pipeline.released().releases}
        if done:
            figures |= {
                "transfers": f"{done:,}/{self._options.transfers:,}",
                "per_second": f"{rate:.0f}",
                "stream_partitions": len(self._control.stream_partitions()),
                "splits": conductor.splits,
                "merges": conductor.merges,
                "kills": len(conductor.worker_killer.kills) + len(conductor.consumer_killer.kills),
            }
        self._view.figures(**figures)
