"""The demo: a bank under splits, merges and SIGKILL, and the proof that its changes arrive right.

It only arranges: parts, workload, disturbances, then the judge.  Order of a run: stack, bank,
workers, consumer; transfers begin when the opened accounts have arrived in Delta, so that the
consumer's start is not measured; the last transfers wait until everything planned has happened;
the judge begins when the consumer's W has passed the last commit and all programs have ended in
order.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tidegate.local_stack.bank import (
    ACCOUNT_COLUMNS,
    ACCOUNTS,
    LEDGER,
    LEDGER_COLUMNS,
    STREAM,
    Bank,
)
from tidegate.local_stack.bank_database import (
    DatabaseName,
    create_bank_database,
    open_accounts,
)
from tidegate.local_stack.churn import SimulatorControl, schedule
from tidegate.local_stack.conductor import Conductor
from tidegate.local_stack.config import load_config
from tidegate.local_stack.customers import Customers
from tidegate.local_stack.judge import Verdict, judge_output
from tidegate.local_stack.judge_log import fetch_commit_log
from tidegate.local_stack.judge_progress import finished_stream_partitions
from tidegate.local_stack.judge_source import SourceTable, SpannerSource
from tidegate.local_stack.pipeline import Pipeline
from tidegate.local_stack.programs import Programs
from tidegate.local_stack.report import Asked, Report, latency_figures
from tidegate.local_stack.stack import LocalStack

if TYPE_CHECKING:
    from pathlib import Path

    from tidegate.local_stack.view import RunView

__all__ = ["PREFIX", "DemoOptions", "bank_layout", "run_demo"]

PREFIX = "bank"
_CONSUMER_DEADLINE_S = 300.0
_CATCH_UP_DEADLINE_S = 600.0
_FIGURES_EVERY_S = 0.5
_RATE_SMALL = 80.0
_BIG_RUN_S = 90.0


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What to run; the defaults end within two minutes on two cores."""

    accounts: int = 200
    transfers: int = 2_000
    workers: int = 2
    splits: int = 6
    merges: int = 4
    kill_workers: int = 1
    kill_consumer: int = 1
    seed: int = 1
    rate_max: float | None = None
    """Transfers per second at most; 0 is as fast as it goes, None leaves it to `pace`."""

    @property
    def pace(self) -> float:
        """Slow enough that a small run sees its kills under work, and a big one ends in time."""
        if self.rate_max is not None:
            return self.rate_max
        return max(_RATE_SMALL, self.transfers / _BIG_RUN_S)

    @property
    def asked(self) -> Asked:
        """What the report is held against."""
        return Asked(
            transfers=self.transfers,
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


def run_demo(options: DemoOptions, *, folder: Path, view: RunView) -> Report:
    """Run the whole demo below `folder` and return its report, right or wrong.

    Raises PartFailedError when a part fails or a deadline passes; everything is stopped either way.
    """
    bank = Bank(accounts=options.accounts, seed=options.seed)
    with ExitStack() as cleanup:
        view.stage("starting Kafka, schema registry and the Spanner simulator")
        config = load_config(data_dir=folder / "stack", seed=options.seed)
        stack = cleanup.enter_context(LocalStack(config, report=view.detail))
        run = _Run(options=options, bank=bank, stack=stack, folder=folder, view=view)
        cleanup.callback(run.stop)
        return run.run()


class _Run:
    """One run over a started stack."""

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
            )
        )
        self._customers = Customers(
            self._name,
            bank=bank,
            transfers=options.transfers,
            rate_max=options.pace,
            reserve=max(2, options.transfers // 10),
            log=folder / "logs" / "customers.log",
        )
        self._conductor: Conductor | None = None
        self._figures_at = 0.0
        self._rate_from = (0.0, 0)

    def run(self) -> Report:
        view, pipeline, customers, options = (
            self._view,
            self._pipeline,
            self._customers,
            self._options,
        )
        view.stage("creating the bank")
        database = create_bank_database(self._name)
        start = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        opened_us = open_accounts(database, self._bank)
        view.stage(f"starting {options.workers} workers, then the consumer")
        pipeline.start_workers(options.workers, start=start, tick=self._tick)
        pipeline.start_consumer(self._tick)
        view.stage("waiting for the opened accounts to arrive in Delta")
        pipeline.wait_released(opened_us, deadline_s=_CONSUMER_DEADLINE_S, tick=self._tick)
        view.stage(f"{options.transfers:,} transfers, with splits, merges and kills")
        conductor = self._conductor = Conductor(
            seed=options.seed,
            plan=schedule(
                options.seed,
                splits=options.splits,
                merges=options.merges,
                kill_workers=options.kill_workers,
                kill_consumer=options.kill_consumer,
            ),
            customers=customers,
            control=self._control,
            pipeline=pipeline,
            view=view,
        )
        customers.start()
        conductor.conduct(self._tick)
        customers.finish()
        pipeline.wait(
            lambda: customers.has_finished,
            what="the bank's customers to finish",
            deadline_s=_CATCH_UP_DEADLINE_S,
            tick=self._tick,
        )
        view.stage("waiting until the consumer's watermark has passed the last commit")
        pipeline.wait_released(
            customers.last_commit_us, deadline_s=_CATCH_UP_DEADLINE_S, tick=self._tick
        )
        self._tick(at_once=True)
        view.stage("stopping workers and consumer")
        unclean = pipeline.stop()
        verdict = self._judge(database, opened_us=opened_us)
        return self._report(verdict, conductor=conductor, opened_us=opened_us, unclean=unclean)

    def stop(self) -> None:
        """Stop what this run has started and not yet stopped."""
        self._customers.stop()
        self._pipeline.stop()

    def _judge(self, database: Any, *, opened_us: int) -> Verdict:
        self._view.stage("judging: commit log and source tables against Delta")
        return judge_output(
            self._pipeline.programs.output,
            transactions=fetch_commit_log(
                self._stack.control_address, database=self._name.path, stream=STREAM
            ),
            source=SpannerSource(database, bank_layout()),
            rule=lambda cut, through_us: self._bank.faults(cut, opened=through_us >= opened_us),
            progress=self._view.detail,
        )

    def _report(
        self, verdict: Verdict, *, conductor: Conductor, opened_us: int, unclean: list[str]
    ) -> Report:
        finished = finished_stream_partitions(
            PREFIX,
            bootstrap_servers=self._stack.bootstrap_servers,
            registry_url=self._stack.registry_url,
        )
        worker_kills = conductor.worker_killer.kills
        consumer_kills = conductor.consumer_killer.kills
        changelog, cuts = verdict.changelog, verdict.cuts
        with_kills, undisturbed = latency_figures(
            [way for way in verdict.deliveries if way.committed_us > opened_us],
            kills_us=[killed.at_us for killed in (*worker_kills, *consumer_kills)],
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
            stream_partitions_finished=len(finished),
            worker_kills=tuple(killed.kill for killed in worker_kills),
            consumer_kills=tuple(killed.kill for killed in consumer_kills),
            releases=cuts.releases,
            rows_outside_release=changelog.outside_release,
            releases_unlike_source=cuts.unlike_source,
            releases_with_wrong_total=cuts.with_wrong_total,
            mirror_equals_source=cuts.mirror_equals_source,
            end_to_end_latency_ms=with_kills,
            end_to_end_latency_undisturbed_ms=undisturbed,
            unclean_stops=len(unclean),
            seconds=round(self._view.seconds, 1),
            seed=self._options.seed,
            examples=(*changelog.examples, *cuts.examples, *unclean),
        )

    def _tick(self, *, at_once: bool = False) -> None:
        """Show the newest figures, now and then."""
        now = time.monotonic()
        if now - self._figures_at < _FIGURES_EVERY_S and not at_once:
            return
        done = self._customers.done
        then, before = self._rate_from
        rate = (done - before) / (now - then) if then else 0.0
        self._figures_at, self._rate_from = now, (now, done)
        conductor = self._conductor
        figures: dict[str, object] = {
            "transfers": f"{done:,}/{self._options.transfers:,}",
            "per_second": f"{rate:.0f}",
            "stream_partitions": len(self._control.stream_partitions()),
            "releases": self._pipeline.released().releases,
        }
        if conductor:
            kills = len(conductor.worker_killer.kills) + len(conductor.consumer_killer.kills)
            figures |= {"splits": conductor.splits, "merges": conductor.merges, "kills": kills}
        self._view.figures(**figures)
