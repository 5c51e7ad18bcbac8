"""One run: a bank at work, faults, healing, and then everything that was left behind is checked.

Order: stack, bank, workers, consumer; faults begin when the opened accounts have arrived in Delta;
the customers work from then until everything has healed, and through a stretch without faults if
one was asked for; the judge begins when the consumer has released the last commit and all programs
have ended in order.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from tests.chaos.breaker import Breaker
from tests.chaos.faults import (
    LANES,
    SESSION_TIMEOUT_MS,
    TRANSACTION_TIMEOUT_MS,
    FaultKind,
    faults_of,
)
from tests.chaos.fleet import Fleet
from tests.chaos.growth import Sampler, growth_in
from tests.chaos.judge.plans import PlanRecorder, compare_plans
from tests.chaos.judge.sinks import judge_sinks
from tests.chaos.judge.topics import Decoder, Topics, read_published
from tests.chaos.judge.verdict import judge_topics
from tests.chaos.lineage import Lineage
from tests.chaos.opening import run_on_a_stack
from tests.chaos.report import Report
from tests.chaos.stage import Stage
from tidegate.local_stack.demo.bank import STREAM, Bank
from tidegate.local_stack.demo.bank_database import create_bank_database, open_accounts
from tidegate.local_stack.demo.bank_run import PREFIX, bank_layout
from tidegate.local_stack.demo.conductor import SimulatorControl
from tidegate.local_stack.demo.customers import Customers
from tidegate.local_stack.demo.pipeline import Pipeline
from tidegate.local_stack.demo.view import RunView
from tidegate.local_stack.errors import PartFailedError
from tidegate.local_stack.judge.log import LoggedTransaction, fetch_commit_log
from tidegate.local_stack.judge.source import SpannerSource
from tidegate.local_stack.judge.topics import registry_schemas
from tidegate.local_stack.judge.verdict import judge_output
from tidegate.local_stack.parts.programs import DatabaseName, Program, Programs
from tidegate.local_stack.parts.stack import LocalStack
from tidegate.spark_consumer.commands.status import status

_ACCOUNTS = 60
_LATENESS_S = 600.0
"""The customers' transfers last so long, twice, beyond the time that was asked for."""

_FIRST_DEADLINE_S = 300.0
_CATCH_UP_DEADLINE_S = 240.0
_VERSIONS_KEPT_S = 3_000.0
"""Spanner keeps rows as they were for an hour; the judge takes some minutes of it."""
_PROGRESS_VERSION = "TIDEGATE_PRODUCER_PROGRESS_VERSION"
_SMALL_RELEASE = "TIDEGATE_CONSUMER_SMALL_RELEASE_ROWS_MAX"
_ORDERED_TOPIC = "everything-in-order"
_FIRST = "changelog,mirror,changelog_by_key,mirror_by_key"
_FIRST_SETTINGS = {"TIDEGATE_CONSUMER_SINKS": _FIRST}
"""Of the first consumer: a mirror by key cannot join."""
_SETTINGS = {
    "TIDEGATE_CONSUMER_SINKS": f"{_FIRST},history,parquet,iceberg_changelog,iceberg_mirror,"
    "topic,transactions,parquet_transactions,datastream_files",
    "TIDEGATE_CONSUMER_ORDERED_TOPIC": _ORDERED_TOPIC,
}
"""Of a consumer that writes to all sinks."""
_READS_LITTLE = {"TIDEGATE_CONSUMER_BYTES_PER_BATCH_MAX": "4000000"}
"""So little that the first query is started again once the size of a change is known."""


@dataclass(frozen=True, slots=True)
class Options:
    """What to run."""

    seed: int
    minutes: float
    workers: int = 3
    only: tuple[FaultKind, ...] = ()
    """Kinds of faults; none: all."""
    rate: float = 15.0
    """Transfers per second; each changes four rows or more."""
    query_transport: str = "h2"
    calm: float = 0.0
    """The share of the minutes, at their end, that has load and churn, and no faults."""
    pause_s: float = 0.0
    """More seconds between two faults of a lane."""

    @property
    def faults_s(self) -> float:
        """How long faults go on."""
        return self.minutes * 60 * (1 - self.calm)

    @property
    def calm_s(self) -> float:
        """How long nothing is broken after that."""
        return self.minutes * 60 * self.calm


def run_chaos(options: Options, *, folder: Path, view: RunView) -> Report:
    """Run below `folder` and return the report, right or wrong.

    Raises LocalStackError when a part fails or the run cannot go on; everything is stopped either
    way.
    """
    return run_on_a_stack(
        lambda stack: _Run(options, stack=stack, folder=folder, view=view),
        seed=options.seed,
        folder=folder,
        view=view,
    )


class _Run:
    """One run over a started stack."""

    def __init__(self, options: Options, *, stack: LocalStack, folder: Path, view: RunView) -> None:
        self._options, self._stack, self._folder, self._view = options, stack, folder, view
        self._name = DatabaseName(address=stack.spanner_address)
        self._bank = Bank(accounts=_ACCOUNTS, seed=options.seed)
        self._start = datetime.now(UTC)
        self._programs = Programs(
            folder=folder,
            bootstrap_servers=stack.bootstrap_servers,
            registry_url=stack.registry_url,
            spanner_address=stack.spanner_address,
            database=self._name,
            stream=STREAM,
            prefix=PREFIX,
            more={
                "TIDEGATE_PRODUCER_QUERY_TRANSPORT": options.query_transport,
                "TIDEGATE_PRODUCER_SESSION_TIMEOUT_MS": str(SESSION_TIMEOUT_MS),
                "TIDEGATE_PRODUCER_TRANSACTION_TIMEOUT_MS": str(TRANSACTION_TIMEOUT_MS),
            },
        )
        self._workers = [f"w{number}" for number in range(1, options.workers + 1)]
        self._one_more = f"w{options.workers + 1}"
        self._released = Pipeline(self._programs).released
        self._recorder = PlanRecorder(self._programs.checkpoint)
        self._lineage = Lineage(
            options.seed,
            SimulatorControl(stack.control_address, database=self._name.path, stream=STREAM),
        )
        self._customers = Customers(
            self._name,
            bank=self._bank,
            transfers=int(options.rate * (options.minutes * 60 + 2 * _LATENESS_S)),
            rate_max=options.rate,
            reserve=1,
            log=folder / "logs" / "customers.log",
        )
        self._sampler = Sampler(
            seconds=lambda: view.seconds,
            programs=self._running,
            folders={
                "topics": stack.config.data_dir.absolute() / "kafka" / "log",
                "checkpoint": self._programs.checkpoint,
                "output": self._programs.output,
            },
            progress=lambda: (self._customers.done, self._lag_s()),
        )
        self._calm_from_s = self._calm_until_s = 0.0
        self._begun: set[str] = set()
        """Workers that had a process."""
        self._consumers = 0
        """Processes of the consumer."""
        self._calm = threading.Event()
        self._is_open = False

    def run(self) -> Report:
        """See `run_chaos`."""
        view = self._view
        view.stage("creating the bank")
        self._database = create_bank_database(self._name)
        self._start = datetime.now(UTC)
        self._make_fleet()
        self._opened_us = open_accounts(self._database, self._bank)
        self._lineage.begin()
        view.stage("starting workers and consumer")
        for name in self._workers:
            self._fleet.start(name)
            self._stage.wait(lambda name=name: self._has_begun(name), what=f"{name} to work")
        self._fleet.start("consumer")
        self._stage.wait(
            lambda: self._released().through_us >= self._opened_us,
            what="the opened accounts to arrive in Delta",
            deadline_s=_FIRST_DEADLINE_S,
        )
        self._customers.start()
        self._is_open = True
        self._break()
        self._heal()
        self._calm_down()
        self._is_open = False
        self._customers.stop()
        transactions = self._last_commits()
        view.stage("stopping all programs")
        self._fleet.stop(["consumer", *self._active_workers])
        self._recorder.look()
        return self._report(transactions)

    def abandon(self) -> None:
        """Stop what this run has started and not yet stopped."""
        self._calm.set()
        if hasattr(self, "_breaker"):
            self._breaker.abandoned.set()
            self._fleet.abandon()
        self._customers.stop()

    # ------------------------------------------------------------ stages

    def _make_fleet(self) -> None:
        self._fleet = Fleet(
            make={
                **{
                    name: lambda name=name: self._worker(name)
                    for name in (*self._workers, self._one_more)
                },
                "consumer": self._consumer,
            },
            seconds=lambda: self._view.seconds,
            say=self._view.event,
        )
        self._breaker = Breaker(
            self._fleet,
            {"broker": self._stack.kafka, "registry": self._stack.registry},
            seconds=lambda: self._view.seconds,
            say=self._view.event,
            rescale=self._rescale,
        )
        self._stage = Stage(
            self._fleet, self._breaker, self._view, look=self._look, figures=self._figures
        )

    def _worker(self, name: str) -> Program:
        """Return a process of a fleet that is upgraded while it runs.

        The first of each name writes version 1 of the progress records, later ones the newest.
        """
        programs = self._programs
        if name not in self._begun:
            self._begun.add(name)
            programs = replace(programs, more={**programs.more, _PROGRESS_VERSION: "1"})
        start = self._start.isoformat().replace("+00:00", "Z")
        return programs.worker(name, start=start)

    def _consumer(self) -> Program:
        """Return a process of the consumer, whose settings change over its restarts.

        The first has changelog and mirror, and both by key; the other sinks join with the second.
        Every second one lets Spark write small releases as well; what the one before had planned is
        replayed as it was planned.
        """
        self._consumers += 1
        joins = self._consumers > 1
        more = {**self._programs.more, **_READS_LITTLE, **(_SETTINGS if joins else _FIRST_SETTINGS)}
        programs = replace(self._programs, more=more, has_iceberg=joins)
        if self._consumers % 2 == 0:
            programs = replace(programs, more={**programs.more, _SMALL_RELEASE: "0"})
        return programs.consumer()

    def _break(self) -> None:
        """Carry out all faults; returns when the last one is over."""
        options, for_s = self._options, self._options.faults_s
        self._view.stage(f"{for_s / 60:g} minutes of faults")
        plan = faults_of(options.seed, seconds=for_s, only=options.only, pause_s=options.pause_s)
        began_s = self._view.seconds
        self._stage.break_for(
            for_s,
            lanes=[
                partial(self._breaker.follow, lane, plan[lane], began_s=began_s, for_s=for_s)
                for lane in LANES
            ],
            beside=[partial(self._lineage.churn, self._calm)],
            end=self._calm.set,
        )

    def _heal(self) -> None:
        """Wait until every program has gone through a cycle and something was committed after."""
        self._view.stage("healing")
        self._stage.heal(self._fleet.active)

    def _calm_down(self) -> None:
        """Let everything work without faults, while stream partitions split, merge and move."""
        for_s = self._options.calm_s
        if not for_s:
            return
        self._view.stage(f"{for_s / 60:g} minutes without faults")
        self._calm_from_s = self._view.seconds
        over = threading.Event()
        self._stage.break_for(
            for_s, lanes=[], beside=[partial(self._lineage.churn, over)], end=over.set
        )
        self._calm_until_s = self._view.seconds

    def _last_commits(self) -> list[LoggedTransaction]:
        """Return the commit log, once all of it is released or the deadline has passed."""
        transactions = fetch_commit_log(
            self._stack.control_address, database=self._name.path, stream=STREAM
        )
        last_us = max(transaction.commit_timestamp_us for transaction in transactions)
        self._view.stage("waiting until the consumer has released the last commit")
        try:
            self._stage.wait(
                lambda: self._has_released(last_us),
                what="the last commit to be released, and merged into the mirrors",
                deadline_s=_CATCH_UP_DEADLINE_S,
            )
        except PartFailedError as error:
            self._breaker.unhealed.append(str(error))
        return transactions

    def _report(self, transactions: list[LoggedTransaction]) -> Report:
        view, options, output = self._view, self._options, self._programs.output
        view.stage("reading all topics")
        decoder = Decoder(Topics(PREFIX), registry_schemas(self._stack.registry_url))
        published = read_published(self._stack.bootstrap_servers, decoder)
        view.stage("judging")
        report = Report(options.seed, options.minutes, logs=str(self._folder / "logs"))
        report.add_findings(
            judge_topics(
                published,
                transactions,
                stream=self._lineage.partitions(int(self._start.timestamp() * 1_000_000)),
                queries=self._fleet.queries([*self._workers, self._one_more]),
                seed=options.seed,
            )
        )
        plans = self._recorder.plans
        report.add("plans", compare_plans(plans, published.data))
        source = SpannerSource(self._database, bank_layout())
        cuts_from_us = int((time.time() - _VERSIONS_KEPT_S) * 1_000_000)
        verdict = judge_output(
            output,
            transactions=transactions,
            source=source,
            rule=lambda cut, at_us: self._bank.faults(cut, opened=at_us >= self._opened_us),
            progress=view.detail,
            cuts_from_us=cuts_from_us,
        )
        report.add_output(verdict)
        sinks = judge_sinks(
            output,
            status(self._programs.checkpoint)["begins"],
            bootstrap_servers=self._stack.bootstrap_servers,
            ordered_topic=_ORDERED_TOPIC,
            transactions=transactions,
            source=source,
            cuts_from_us=cuts_from_us,
        )
        for name, faults in sinks.items():
            report.add(name, faults if self._consumers > 1 else [])
        report.add_run(
            self._fleet,
            self._breaker,
            self._lineage,
            published=published,
            transactions=transactions,
        )
        report.samples = self._sampler.samples
        report.add(
            "growth",
            list(
                growth_in(
                    report.samples,
                    from_s=self._calm_from_s,
                    until_s=self._calm_until_s,
                    state=["checkpoint"],
                )
            ),
        )
        report.counts |= {
            "kafka_records": len(published.data),
            "watermark_claims": len(plans),
            "releases": verdict.cuts.releases,
            "mirror_cuts": verdict.cuts.cuts,
        }
        report.seconds = round(view.seconds, 1)
        return report

    # ------------------------------------------------------------ inside

    def _has_begun(self, name: str) -> bool:
        return self._fleet.current(name).program.has_begun

    @property
    def _active_workers(self) -> list[str]:
        return [name for name in self._fleet.active if name != "consumer"]

    def _rescale(self) -> str:
        """Start one more worker, or end it; returns its name."""
        name = self._one_more
        if name in self._fleet.active:
            self._view.event(f"rescale: {name} is taken away")
            self._fleet.retire(name)
        else:
            self._view.event(f"rescale: {name} joins")
            self._fleet.start(name)
        return name

    def _lag_s(self) -> float | None:
        through_us = self._released().through_us
        return time.time() - through_us / 1_000_000 if through_us else None

    def _running(self) -> dict[str, int]:
        """Return the pids of all programs, those of the stack included."""
        stack = self._stack
        services = {"broker": stack.kafka, "registry": stack.registry, "spanner": stack.simulator}
        processes = {name: one.process for name, one in services.items() if one is not None}
        running = {name: one.pid for name, one in processes.items() if one and one.is_running}
        return {**self._fleet.pids(), **running}

    def _look(self) -> None:
        self._recorder.look()
        self._sampler.look()
        if self._is_open and self._customers.has_finished:
            raise PartFailedError("the bank's customers have finished too early")

    def _has_released(self, through_us: int) -> bool:
        released = self._released()
        return released.through_us >= through_us and released.is_mirrored

    def _figures(self) -> dict[str, object]:
        return {
            "transfers": f"{self._customers.done:,}",
            "releases": self._released().releases,
            "faults": len(self._breaker.applied),
            "restarts": self._fleet.restarts,
            **{f"{verb}s": count for verb, count in self._lineage.done.items()},
        }
