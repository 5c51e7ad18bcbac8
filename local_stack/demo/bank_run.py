"""The demo's scenarios `bank` and `backfill`: a bank in Spanner under splits, merges and SIGKILL.

Order of a run of `bank`:

1. The stack, the bank, the workers and the consumer start; the opened accounts arrive in Delta.
2. Warm-up: a few transfers create the remaining tables.
3. Undisturbed: three quarters of the transfers, with splits and merges.
4. Kills: the remaining transfers, with splits, merges and SIGKILL of workers and consumer; the last
   transfers wait until every kill has happened.
5. All programs stop in order, and the judge compares Delta with Spanner.

Order of a run of `backfill`:

1. The stack starts, and the bank gets its history: accounts, and a ledger of earlier transfers.
2. The stream begins with these rows.  Half of the transfers are made meanwhile, and workers are
   killed while tables are read: the simulator sends tables slowly until that is done.
3. The rest of the transfers, with splits and merges, in two parts.
4. All programs stop in order, and the judge compares Delta with Spanner: the rows with the tables
   at the stream's start, changes with the commit log, each release with the tables at its time.

The next part begins when Delta has every change of the part before it.  So latency has a figure
without the start of a JVM in it, and no change is between two parts.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from tidegate.local_stack.demo.bank import (
    ACCOUNT_COLUMNS,
    ACCOUNTS,
    LEDGER,
    LEDGER_COLUMNS,
    STREAM,
    Bank,
)
from tidegate.local_stack.demo.bank_database import (
    commit_time_us,
    create_bank_database,
    load_history,
    open_accounts,
)
from tidegate.local_stack.demo.conductor import Conductor, SimulatorControl, schedule
from tidegate.local_stack.demo.customers import Customers
from tidegate.local_stack.demo.report import BackfillFigures, Report, latency_figures
from tidegate.local_stack.demo.run import (
    CATCH_UP_DEADLINE_S,
    CONSUMER_DEADLINE_S,
    DemoOptions,
    DemoRun,
)
from tidegate.local_stack.demo.view import RunView
from tidegate.local_stack.judge.log import LoggedTransaction, fetch_commit_log
from tidegate.local_stack.judge.source import (
    FirstRows,
    SourceTable,
    SpannerSource,
    is_of_backfill,
)
from tidegate.local_stack.judge.topics import finished_stream_partitions
from tidegate.local_stack.judge.verdict import Verdict, judge_output
from tidegate.local_stack.parts.programs import DatabaseName, Programs
from tidegate.local_stack.parts.stack import LocalStack

PREFIX = "bank"
_TABLES = (ACCOUNTS, LEDGER)
_SLOW_MS = 1_500
"""Before each message of a table read; a key range takes two or three."""
_READ_DEADLINE_S = 120.0


def bank_layout(*, commit_timestamps: bool = True) -> dict[str, SourceTable]:
    """Return the bank's tables as the judge reads them."""
    ledger = (*LEDGER_COLUMNS, "CommittedAt") if commit_timestamps else LEDGER_COLUMNS
    return {
        ACCOUNTS: SourceTable(ACCOUNT_COLUMNS, ("AccountId",)),
        LEDGER: SourceTable(ledger, ("TransferId",)),
    }


class BankRun(DemoRun):
    """A run of the scenario `bank`."""

    environment: ClassVar[Mapping[str, str]] = {}
    """Further environment variables of its programs."""

    def __init__(
        self, *, options: DemoOptions, stack: LocalStack, folder: Path, view: RunView
    ) -> None:
        self.name = DatabaseName(address=stack.spanner_address)
        super().__init__(options=options, stack=stack, folder=folder, view=view)
        self.bank = Bank(accounts=options.accounts, seed=options.seed)
        self.control = SimulatorControl(
            stack.control_address, database=self.name.path, stream=STREAM
        )
        self.customers = Customers(
            self.name,
            bank=self.bank,
            transfers=options.transfers,
            rate_max=options.pace,
            pauses=options.pauses,
            reserve=self.reserve,
            log=folder / "logs" / "customers.log",
        )
        self.conductor = Conductor(
            seed=options.seed,
            customers=self.customers,
            control=self.control,
            pipeline=self.pipeline,
            view=view,
        )
        self._rate_from = (0.0, 0)

    @property
    def reserve(self) -> int:
        """How many of the last transfers wait for the last kill."""
        # A tenth at most: the plan has steps up to 0.9 of the transfers.
        return max(1, self.options.transfers // 10) if self.options.has_kills else 0

    def make_programs(self) -> Programs:
        """Return the programs that read the bank's change stream."""
        return Programs(
            folder=self.folder,
            bootstrap_servers=self.stack.bootstrap_servers,
            registry_url=self.stack.registry_url,
            spanner_address=self.stack.spanner_address,
            database=self.name,
            stream=STREAM,
            prefix=PREFIX,
            more=self.environment,
        )

    def run(self) -> Report:
        """Carry out all parts and return the report."""
        view, customers, options = self.view, self.customers, self.options
        kills_share = options.kills_from / options.transfers
        plan = schedule(
            options.seed,
            splits=options.splits,
            merges=options.merges,
            kill_workers=options.kill_workers,
            kill_consumer=options.kill_consumer,
            kills_from=kills_share,
        )
        database, opened_us = self._start_pipeline()
        view.stage(f"warming up: {options.warm_up:,} transfers")
        customers.start()
        warm_us = self.wait_delivered(options.warm_up)
        view.stage(
            f"{options.kills_from - options.warm_up:,} transfers with splits and merges, no kills"
        )
        customers.resume()
        self.conductor.conduct([p for p in plan if p.at_share < kills_share], self.tick)
        undisturbed_us = self.wait_delivered(options.kills_from)
        if options.has_kills:
            left = options.transfers - options.kills_from
            view.stage(f"{left:,} transfers with splits, merges and kills")
            customers.resume()
            self.conductor.conduct([p for p in plan if p.at_share >= kills_share], self.tick)
            customers.finish()
            self.wait_delivered(options.transfers)
        unclean = self.stop_programs()
        verdict = self.judge(database, opened_us=opened_us)
        return self.report(
            verdict,
            warm_us=warm_us,
            undisturbed_us=undisturbed_us,
            unclean=unclean,
            finished=self.finished(),
        )

    def _start_pipeline(self) -> tuple[Any, int]:
        """Return the bank's database and when its accounts were opened; Delta has them."""
        view, options = self.view, self.options
        view.stage("creating the bank")
        database = create_bank_database(
            self.name, dialect=options.dialect, key_ranges=options.key_ranges
        )
        start = datetime.now(UTC)
        opened_us = open_accounts(database, self.bank)
        view.stage(f"starting {options.workers} workers, then the consumer")
        self.start_programs(start)
        view.stage("waiting for the opened accounts to arrive in Delta")
        self.pipeline.wait_released(opened_us, deadline_s=CONSUMER_DEADLINE_S, tick=self.tick)
        return database, opened_us

    def start_programs(self, start: datetime) -> None:
        """Start workers and consumer of a stream that begins at an instant."""
        text = start.isoformat().replace("+00:00", "Z")
        self.pipeline.start_workers(self.options.workers, start=text, tick=self.tick)
        self.pipeline.start_consumer(self.tick)

    def wait_delivered(self, transfers: int) -> int:
        """Wait until that many transfers are made and in Delta; return when the last committed.

        The time is the commit timestamp in microseconds since 1970.
        """
        self.pipeline.wait(
            lambda: self.customers.has_finished or self.customers.done >= transfers,
            what=f"the bank's customers to make {transfers:,} transfers",
            deadline_s=CATCH_UP_DEADLINE_S,
            tick=self.tick,
        )
        committed_us = self.customers.last_commit_us
        self.view.stage(f"waiting until the first {transfers:,} transfers are in Delta")
        self.pipeline.wait_released(committed_us, deadline_s=CATCH_UP_DEADLINE_S, tick=self.tick)
        return committed_us

    def stop_source(self) -> None:
        """Stop the customers."""
        self.customers.stop()

    def commit_log(self) -> list[LoggedTransaction]:
        """Return everything that was committed."""
        return fetch_commit_log(self.stack.control_address, database=self.name.path, stream=STREAM)

    def judge(self, database: Any, *, opened_us: int, first: FirstRows | None = None) -> Verdict:
        """Compare the output with the commit log and the source tables."""
        self.view.stage("comparing Delta with the commit log and the source tables")
        return judge_output(
            self.pipeline.programs.output,
            transactions=self.commit_log(),
            source=SpannerSource(database, bank_layout()),
            rule=lambda cut, through_us: self.bank.faults(cut, opened=through_us >= opened_us),
            first=first,
            progress=self.view.detail,
        )

    def finished(self) -> dict[str, int]:
        """Return the finished stream partitions, and when each was, in ms since 1970."""
        return finished_stream_partitions(
            PREFIX,
            bootstrap_servers=self.stack.bootstrap_servers,
            registry_url=self.stack.registry_url,
        )

    def report(
        self,
        verdict: Verdict,
        *,
        warm_us: int,
        undisturbed_us: int,
        unclean: list[str],
        finished: Mapping[str, int],
        backfill: BackfillFigures | None = None,
    ) -> Report:
        """Return all figures."""
        conductor = self.conductor
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
            seconds=round(self.view.seconds, 1),
            seed=self.options.seed,
            backfill=backfill,
            examples=(*changelog.examples, *cuts.examples, *unclean),
        )

    def figures(self) -> dict[str, object]:
        """Return the newest figures; those of transfers once there are any."""
        now, done = time.monotonic(), self.customers.done
        then, before = self._rate_from
        rate = (done - before) / (now - then) if then else 0.0
        self._rate_from = (now, done)
        figures: dict[str, object] = {"releases": self.pipeline.released().releases}
        if done:
            figures |= {
                "transfers": f"{done:,}/{self.options.transfers:,}",
                "per_second": f"{rate:.0f}",
                "stream_partitions": len(self.control.stream_partitions()),
                "splits": self.conductor.splits,
                "merges": self.conductor.merges,
                "kills": self.conductor.count,
            }
        return figures


class BackfillRun(BankRun):
    """A run of the scenario `backfill`."""

    environment: ClassVar[Mapping[str, str]] = {"TIDEGATE_PRODUCER_BACKFILL": ",".join(_TABLES)}

    @property
    def reserve(self) -> int:
        """No transfer waits: all kills happen before the second half of them."""
        return 0

    def run(self) -> Report:
        """Carry out all parts and return the report."""
        view, options, customers = self.view, self.options, self.customers
        plan = schedule(
            options.seed,
            splits=options.splits,
            merges=options.merges,
            kill_workers=0,
            kill_consumer=0,
            kills_from=1.0,
        )
        # The customers pause before these shares: steps beyond a pause come after its end.
        first_pause, last_pause = (pause / options.transfers for pause in options.pauses)
        database = self._create_bank()
        start = datetime.now(UTC)
        self.control.slow_reads(_SLOW_MS)
        customers.start()
        view.stage(f"starting {options.workers} workers with a backfill of {' and '.join(_TABLES)}")
        self.start_programs(start)
        kills_s = self._kill_readers()
        self.control.clear_faults()
        self.conductor.conduct([step for step in plan if step.at_share < first_pause], self.tick)
        view.stage("waiting until the rows are in Delta")
        began_us = commit_time_us(start)
        self.pipeline.wait_released(began_us, deadline_s=CATCH_UP_DEADLINE_S, tick=self.tick)
        for _ in range(options.kill_consumer):
            self.conductor.kill_consumer()
        warm_us = self.wait_delivered(options.meanwhile)
        view.stage("the rest of the transfers, with splits and merges")
        customers.resume()
        self.conductor.conduct(
            [step for step in plan if first_pause <= step.at_share < last_pause], self.tick
        )
        self.wait_delivered(options.pauses[-1])
        customers.resume()
        self.conductor.conduct([step for step in plan if step.at_share >= last_pause], self.tick)
        undisturbed_us = self.wait_delivered(options.transfers)
        unclean = self.stop_programs()
        finished = self.finished()
        first = FirstRows(
            began_us, _TABLES, frozenset(token for token in finished if is_of_backfill(token))
        )
        verdict = self.judge(database, opened_us=began_us, first=first)
        return self.report(
            verdict,
            warm_us=warm_us,
            undisturbed_us=undisturbed_us,
            unclean=unclean,
            finished=finished,
            backfill=self._backfill(verdict.first_rows, first, finished, kills_s),
        )

    def _create_bank(self) -> Any:
        options = self.options
        self.view.stage(f"creating a bank with {options.rows_before:,} transfers")
        database = create_bank_database(
            self.name, dialect=options.dialect, key_ranges=options.key_ranges
        )
        # The numbers after those of the run's own transfers: no two have one id.
        numbers = range(options.transfers, options.transfers + options.rows_before)
        load_history(database, self.bank.after(numbers))
        return database

    def _kill_readers(self) -> list[float]:
        """Kill workers in turn once the first rows are published.

        Returns the time of each kill, in seconds since 1970.
        """
        self.view.stage("killing workers while tables are read, and transfers are made")
        self.pipeline.wait(
            lambda: any(self.pipeline.records_in(f"{PREFIX}.{table}") for table in _TABLES),
            what="the first rows to be published",
            deadline_s=_READ_DEADLINE_S,
            tick=self.tick,
        )
        kills = []
        workers = list(self.pipeline.workers)
        for number in range(self.options.kill_workers):
            self.conductor.kill_worker(workers[number % len(workers)])
            kills.append(datetime.now(UTC).timestamp())
        return kills

    def _backfill(
        self, rows: int, first: FirstRows, finished: Mapping[str, int], kills_s: list[float]
    ) -> BackfillFigures:
        ended_ms = max((finished[token] for token in first.tokens), default=0)
        return BackfillFigures(
            rows=rows,
            read_partitions=sum("/read/" in token for token in first.tokens),
            seconds=round(ended_ms / 1_000 - first.at_us / 1_000_000, 1),
            transactions_meanwhile=sum(
                first.at_us < transaction.commit_timestamp_us <= ended_ms * 1_000
                for transaction in self.commit_log()
            ),
            worker_kills=sum(at_s * 1_000 < ended_ms for at_s in kills_s),
        )
