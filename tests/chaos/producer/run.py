"""One run of the fleet alone: work, faults, rescales, new schemas, healing, judgement.

Order: stack, database, first worker; then faults, rescales, schema changes and commits beside each
other; then everything that breaks things ends, the fleet catches up with a last commit, and the
judge reads all topics.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from tests.chaos.breaker import Breaker
from tests.chaos.faults import SESSION_TIMEOUT_MS, TRANSACTION_TIMEOUT_MS
from tests.chaos.fleet import Fleet
from tests.chaos.judge.follower import Follower
from tests.chaos.judge.logged_source import with_first_rows
from tests.chaos.judge.topics import Decoder, Topics, read_published
from tests.chaos.judge.verdict import judge_topics
from tests.chaos.lineage import Lineage
from tests.chaos.opening import run_on_a_stack
from tests.chaos.producer.plan import SIZES, service_faults_of, worker_stages_of
from tests.chaos.producer.source_faults import SourceFaults
from tests.chaos.producer.statements import Statements
from tests.chaos.producer.workload import STREAM, Workload, initial_ddl, initial_layout, is_poison
from tests.chaos.report import Report
from tests.chaos.stage import Stage
from tidegate.local_stack.demo.bank import Dialect
from tidegate.local_stack.demo.bank_database import commit_time_us, create_database
from tidegate.local_stack.demo.conductor import SimulatorControl
from tidegate.local_stack.demo.view import RunView
from tidegate.local_stack.errors import PartFailedError
from tidegate.local_stack.judge.log import LoggedTransaction, fetch_commit_log
from tidegate.local_stack.judge.source import FirstRows
from tidegate.local_stack.judge.topics import registry_schemas
from tidegate.local_stack.parts.programs import DatabaseName, Program, Programs
from tidegate.local_stack.parts.stack import LocalStack

_PREFIX = "chaos"
_RATE = 15.0
_BACKFILLS = 0.5
"""The share of the seeds whose stream begins with rows."""
_FIRST_ROWS = 25_000
"""First rows of each table: about three key ranges."""
_READS_BROKEN = 0.5
"""The share of the run after which reads of tables are no longer broken."""
_POLL_S = 0.2
_CATCH_UP_DEADLINE_S = 240.0
_SETTING = "TIDEGATE_PRODUCER_"
_PROGRESS_VERSION = f"{_SETTING}PROGRESS_VERSION"


@dataclass(frozen=True, slots=True)
class Options:
    """What to run."""

    seed: int
    minutes: float
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of the workers, by name.  Unless it says otherwise, workers park poison changes."""
    is_mixed: bool = False
    """Every second process writes version 1 of the progress records.

    Version 1 cannot hold parked keys, so nothing is committed that cannot be published.
    """
    has_moves: bool = False
    """The change stream has mutable key ranges; nothing can be parked then, either."""

    dialect: Dialect = Dialect.GOOGLESQL
    backfill: bool | None = None
    """Whether the stream begins with rows; without a word of it the seed decides."""
    has_login: bool = False
    """Workers use the broker's listener with TLS and a login; the judge uses the plain one."""

    @property
    def has_backfill(self) -> bool:
        """Whether tables have rows before the stream, and it begins with these."""
        if self.backfill is not None:
            return self.backfill
        return random.Random(f"{self.seed}/backfill").random() < _BACKFILLS

    @property
    def parks(self) -> bool:
        """Whether workers park, unless a setting says otherwise."""
        return not (self.is_mixed or self.has_moves)


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
        has_login=options.has_login,
    )


class _Run:
    """One run over a started stack."""

    def __init__(self, options: Options, *, stack: LocalStack, folder: Path, view: RunView) -> None:
        self._options, self._stack, self._folder, self._view = options, stack, folder, view
        name = DatabaseName(address=stack.spanner_address)
        self._topics = Topics(_PREFIX)
        self._calm = threading.Event()
        """Nothing breaks any more."""
        self._quiet = threading.Event()
        """Nothing is committed any more."""
        self._has_rows = threading.Event()
        """All rows from before the stream are published, or there are none."""
        settings = {"poison": "park" if options.parks else "stop", **options.settings}
        if options.has_backfill:
            settings["backfill"] = "*"
        self._started = Counter[str]()
        self._programs = Programs(
            folder=folder,
            bootstrap_servers=stack.bootstrap_servers,
            registry_url=stack.registry_url,
            spanner_address=stack.spanner_address,
            database=name,
            stream=STREAM,
            prefix=_PREFIX,
            more={
                f"{_SETTING}SESSION_TIMEOUT_MS": str(SESSION_TIMEOUT_MS),
                f"{_SETTING}TRANSACTION_TIMEOUT_MS": str(TRANSACTION_TIMEOUT_MS),
                **{_SETTING + key.upper(): text for key, text in settings.items()},
            },
            secure=stack.kafka.secure,
        )
        self._decoder = Decoder(self._topics, registry_schemas(stack.registry_url))
        self._follower = Follower(stack.bootstrap_servers, self._decoder)
        view.stage("creating the database")
        statements = Statements(options.dialect)
        self._workload = Workload(
            create_database(
                name, initial_ddl(statements, has_moves=options.has_moves), dialect=options.dialect
            ),
            options.seed,
            _RATE,
            say=view.event,
            has_poison=settings["poison"] == "park",
            statements=statements,
        )
        if options.has_backfill:
            view.stage("filling the tables")
            self._workload.fill(_FIRST_ROWS)
        self._start = datetime.now(UTC)
        control = SimulatorControl(stack.control_address, database=name.path, stream=STREAM)
        self._control = control
        self._lineage = Lineage(options.seed, control)
        self._source = SourceFaults(control, options.seed, say=view.event)
        names = [f"w{number}" for number in range(1, max(SIZES) + 1)]
        self._fleet = Fleet(
            make={one: partial(self._worker, one) for one in names},
            seconds=lambda: view.seconds,
            say=view.event,
            source_fails=lambda: not self._calm.is_set(),
        )
        self._breaker = Breaker(
            self._fleet,
            {"broker": stack.kafka, "registry": stack.registry},
            seconds=lambda: view.seconds,
            say=view.event,
        )
        self._stage = Stage(
            self._fleet, self._breaker, view, look=self._look, figures=self._figures
        )
        self._rescales = 0

    def run(self) -> Report:
        """See `run_chaos`."""
        view, options = self._view, self._options
        seconds = options.minutes * 60
        self._lineage.begin()
        self._backfill_s = 0.0
        view.stage("starting the first worker")
        self._fleet.start("w1")
        self._stage.wait(lambda: self._fleet.current("w1").program.has_begun, what="w1 to work")
        self._follower.start()
        writers = self._workload.writers(self._quiet)
        view.stage(f"{options.minutes:g} minutes of faults")
        began_s = self._began_s = view.seconds
        services = service_faults_of(options.seed, seconds=seconds)
        self._stage.break_for(
            seconds,
            lanes=[
                partial(self._follow_workers, began_s, seconds),
                *(
                    partial(self._breaker.follow, lane, faults, began_s=began_s, for_s=seconds)
                    for lane, faults in services.items()
                ),
            ],
            beside=[
                partial(self._lineage.churn, self._calm),
                partial(self._source.disturb, self._calm),
                self._change_schema,
                partial(self._break_reads, began_s, seconds),
            ],
            end=self._calm.set,
        )
        view.stage("healing")
        self._stage.heal(self._fleet.active)
        self._quiet.set()
        for writer in writers:
            writer.join()
        self._workload.commit_last()
        transactions = self._catch_up()
        view.stage("stopping all workers")
        self._fleet.stop(self._fleet.active)
        self._follower.stop()
        return self._report(transactions)

    def abandon(self) -> None:
        """Stop what this run has started and not yet stopped."""
        self._calm.set()
        self._quiet.set()
        self._breaker.abandoned.set()
        self._fleet.abandon()
        self._follower.stop()

    # ------------------------------------------------------------ stages

    def _worker(self, name: str) -> Program:
        """Return a process of the fleet; in a mixed one versions 1 and 2 take turns.

        The first worker begins with version 1, so that no slot begins with a later one: a slot
        never goes back.  Its neighbours begin with another version than it has.
        """
        programs = self._programs
        number = int(name.removeprefix("w")) + self._started[name]
        self._started[name] += 1
        if self._options.is_mixed and number % 2 == 1:
            programs = replace(programs, more={**programs.more, _PROGRESS_VERSION: "1"})
        start = self._start.isoformat().replace("+00:00", "Z")
        return programs.worker(name, start=start)

    def _change_schema(self) -> None:
        """Change tables once their rows are read: one that is dropped before ends its stream."""
        abandoned = self._breaker.abandoned
        while not self._has_rows.wait(_POLL_S):
            if abandoned.is_set():
                return
        self._workload.change_schema(self._calm, abandoned)

    def _break_reads(self, began_s: float, seconds: float) -> None:
        """Break reads of tables for a part of the run, and notice when they are over."""
        if not self._options.has_backfill:
            self._has_rows.set()
            return
        ended = threading.Event()
        breaking = threading.Thread(target=self._source.break_reads, args=(ended,), daemon=True)
        breaking.start()
        # A reader's watermark passes the stream's start with the first change after all rows.
        while (self._follower.reader.watermark_us or 0) <= self._start_us:
            if self._view.seconds > began_s + seconds * _READS_BROKEN or self._calm.is_set():
                ended.set()
            if self._breaker.abandoned.wait(_POLL_S):
                ended.set()
                return
        ended.set()
        breaking.join()
        self._backfill_s = round(self._view.seconds - began_s, 1)
        self._rescales_meanwhile = self._rescales
        self._view.event(f"all rows are published after {self._backfill_s} s")
        self._has_rows.set()

    @property
    def _start_us(self) -> int:
        return commit_time_us(self._start)

    def _follow_workers(self, began_s: float, seconds: float) -> None:
        """Bring the fleet to each size in turn, and break its workers in between."""
        for stage in worker_stages_of(self._options.seed, seconds=seconds):
            wait_s = began_s + stage.begins_s - self._view.seconds
            if self._breaker.abandoned.wait(max(0.0, wait_s)):
                return
            self._rescale(stage.workers)
            self._breaker.follow("workers", stage.faults, began_s=began_s, for_s=stage.ends_s)

    def _rescale(self, size: int) -> None:
        active = self._fleet.active
        if len(active) == size:
            return
        self._view.event(f"rescale: {len(active)} workers become {size}")
        self._rescales += 1
        for name in active[size:]:
            self._fleet.retire(name)
        for number in range(len(active) + 1, size + 1):
            self._fleet.start(f"w{number}")

    def _catch_up(self) -> list[LoggedTransaction]:
        """Return the commit log, once the reader's watermark has passed all of it."""
        transactions = fetch_commit_log(
            self._stack.control_address, database=self._control.database, stream=STREAM
        )
        last_us = max(transaction.commit_timestamp_us for transaction in transactions)
        self._view.stage("waiting until the watermark has passed the last commit")
        began_s = self._view.seconds
        try:
            self._stage.wait(
                lambda: (self._follower.reader.watermark_us or 0) >= last_us,
                what="the watermark of the last commit",
                deadline_s=_CATCH_UP_DEADLINE_S,
            )
        except PartFailedError as error:
            self._breaker.unhealed.append(str(error))
        self._catch_up_s = round(self._view.seconds - began_s)
        return transactions

    # ------------------------------------------------------------ the judge

    def _report(self, transactions: list[LoggedTransaction]) -> Report:
        view, options = self._view, self._options
        view.stage("reading all topics")
        published = read_published(self._stack.bootstrap_servers, self._decoder)
        view.stage("judging")
        report = Report(options.seed, options.minutes, logs=str(self._folder / "logs"))
        if options.has_backfill:
            tokens = {
                child["token"]
                for body in published.bodies("STREAM_STARTED")
                for child in body["children"]
            }
            layout = initial_layout()
            first = FirstRows(self._start_us, tuple(layout), frozenset(tokens))
            transactions = with_first_rows(transactions, first, layout, published)
        stream = self._lineage.partitions(self._start_us)
        report.add_findings(
            judge_topics(
                published,
                transactions,
                # Stream partitions whose keys move go on, and their children are not Spanner's.
                stream=replace(stream, born={}) if options.has_moves else stream,
                queries=self._fleet.queries({member.name for member in self._fleet.members}),
                seed=options.seed,
                is_poison=is_poison,
            )
        )
        reader = self._follower.reader
        report.add("watermark_violations", [f"live: {text}" for text in reader.violations])
        report.add("refused_by_readers", [f"live: {text}" for text in reader.broken])
        report.add("foreign_records", self._follower.broken)
        report.add_run(
            self._fleet,
            self._breaker,
            self._lineage,
            published=published,
            transactions=transactions,
        )
        dead = sum(entry.topic == self._topics.dead_letters for entry in published.data)
        changes = [change for transaction in transactions for change in transaction.changes]
        first_rows = sum(change.place.commit_timestamp_us == self._start_us for change in changes)
        report.counts |= {
            "changes_published": len(published.data) - dead,
            "changes_parked": dead,
            "poison_changes": sum(map(is_poison, changes)),
            "faults_of_the_source": self._source.done.total(),
            **{f"schema_{verb}": n for verb, n in self._workload.schema_changes.items()},
            "transactions_refused": self._workload.refused,
            **self._backfill_counts(first_rows, report),
            "rescales": self._rescales,
            "seconds_to_catch_up": self._catch_up_s,
        }
        report.seconds = round(view.seconds, 1)
        return report

    def _backfill_counts(self, first_rows: int, report: Report) -> dict[str, int]:
        if not self._options.has_backfill:
            return {}
        ended_s = self._began_s + self._backfill_s
        return {
            "first_rows": first_rows,
            "seconds_of_backfill": round(self._backfill_s),
            "faults_meanwhile": sum(fault.at_s < ended_s for fault in report.faults),
            "rescales_meanwhile": self._rescales_meanwhile,
        }

    # ------------------------------------------------------------ inside

    def _look(self) -> None:
        self._follower.require_alive()
        if self._workload.failure is not None:
            raise PartFailedError("a writer failed", cause=repr(self._workload.failure))

    def _figures(self) -> dict[str, object]:
        return {
            "commits": f"{self._workload.commits:,}",
            "workers": len(self._fleet.active),
            "faults": len(self._breaker.applied),
            "of the source": self._source.done.total(),
            "restarts": self._fleet.restarts,
            **{f"{verb}s": count for verb, count in self._lineage.done.items()},
        }
