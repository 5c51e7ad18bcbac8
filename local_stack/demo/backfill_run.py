"""The demo's scenario `backfill`: a bank that was open before its change stream is read.

Order of a run:

1. The stack starts, and the bank gets its history: accounts, and a ledger of earlier transfers.
2. The stream begins with these rows.  Half of the transfers are made meanwhile, and workers are
   killed while tables are read: the simulator sends tables slowly until that is done.
3. The rest of the transfers, with splits and merges, in two parts of which each waits until Delta
   has the one before.
4. All programs stop in order, and the judge compares Delta with Spanner: the rows with the tables
   at the stream's start, changes with the commit log, each release with the tables at its time.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar

from tidegate.local_stack.demo.bank import ACCOUNTS, LEDGER
from tidegate.local_stack.demo.bank_database import (
    commit_time_us,
    create_bank_database,
    load_history,
)
from tidegate.local_stack.demo.churn import schedule
from tidegate.local_stack.demo.report import BackfillFigures, Report
from tidegate.local_stack.demo.run import PREFIX, BankRun
from tidegate.local_stack.judge.log import fetch_commit_log
from tidegate.local_stack.judge.source import FirstRows, is_of_backfill

_TABLES = (ACCOUNTS, LEDGER)
_SLOW_MS = 1_500
"""Before each message of a table read; a key range takes two or three."""
_READ_DEADLINE_S = 120.0
_BACKFILL_DEADLINE_S = 600.0


class BackfillRun(BankRun):
    """One run on a started stack."""

    settings: ClassVar[Mapping[str, str]] = {"TIDEGATE_PRODUCER_BACKFILL": ",".join(_TABLES)}

    @property
    def _reserve(self) -> int:
        return 0

    def run(self) -> Report:
        """Carry out all parts and return the report."""
        view, options, customers = self._view, self._options, self._customers
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
        self._control.slow_reads(_SLOW_MS)
        customers.start()
        view.stage(f"starting {options.workers} workers with a backfill of {' and '.join(_TABLES)}")
        self._pipeline.start_workers(
            options.workers, start=start.isoformat().replace("+00:00", "Z"), tick=self._tick
        )
        self._pipeline.start_consumer(self._tick)
        kills_s = self._kill_readers()
        self._control.clear_faults()
        self._conductor.conduct([one for one in plan if one.at_share < first_pause], self._tick)
        view.stage("waiting until the rows are in Delta")
        began_us = commit_time_us(start)
        self._pipeline.wait_released(began_us, deadline_s=_BACKFILL_DEADLINE_S, tick=self._tick)
        for _ in range(options.kill_consumer):
            self._conductor.kill_consumer()
        warm_us = self._wait_delivered(options.meanwhile)
        view.stage("the rest of the transfers, with splits and merges")
        customers.resume()
        self._conductor.conduct(
            [one for one in plan if first_pause <= one.at_share < last_pause], self._tick
        )
        self._wait_delivered(options.pauses[-1])
        customers.resume()
        self._conductor.conduct([one for one in plan if one.at_share >= last_pause], self._tick)
        undisturbed_us = self._wait_delivered(options.transfers)
        self._tick(at_once=True)
        view.stage("stopping workers and consumer")
        unclean = self._pipeline.stop()
        finished = self._finished()
        first = FirstRows(
            began_us, _TABLES, frozenset(token for token in finished if is_of_backfill(token))
        )
        verdict = self._judge(database, opened_us=began_us, first=first)
        return self._report(
            verdict,
            warm_us=warm_us,
            undisturbed_us=undisturbed_us,
            unclean=unclean,
            finished=finished,
            backfill=self._backfill(verdict.first_rows, first, finished, kills_s),
        )

    def _create_bank(self) -> Any:
        options = self._options
        self._view.stage(f"creating a bank with {options.rows_before:,} transfers")
        database = create_bank_database(
            self._name, dialect=options.dialect, key_ranges=options.key_ranges
        )
        # The numbers after those of the run's own transfers: no two have one id.
        numbers = range(options.transfers, options.transfers + options.rows_before)
        load_history(database, self._bank.after(numbers))
        return database

    def _kill_readers(self) -> list[float]:
        """Kill workers in turn once the first rows are published; return when, since 1970."""
        self._view.stage("killing workers while tables are read, and transfers are made")
        self._pipeline.wait(
            lambda: any(self._pipeline.records_in(f"{PREFIX}.{table}") for table in _TABLES),
            what="the first rows to be published",
            deadline_s=_READ_DEADLINE_S,
            tick=self._tick,
        )
        kills = []
        workers = list(self._pipeline.workers)
        for number in range(self._options.kill_workers):
            self._conductor.kill_worker(workers[number % len(workers)])
            kills.append(datetime.now(UTC).timestamp())
        return kills

    def _backfill(
        self, rows: int, first: FirstRows, finished: Mapping[str, int], kills_s: list[float]
    ) -> BackfillFigures:
        ended_ms = max((finished[token] for token in first.tokens), default=0)
        transactions = fetch_commit_log(
            self._stack.control_address, database=self._name.path, stream=self._control.stream
        )
        return BackfillFigures(
            rows=rows,
            read_partitions=sum("/read/" in token for token in first.tokens),
            seconds=round(ended_ms / 1_000 - first.at_us / 1_000_000, 1),
            transactions_meanwhile=sum(
                first.at_us < one.commit_timestamp_us <= ended_ms * 1_000 for one in transactions
            ),
            worker_kills=sum(at_s * 1_000 < ended_ms for at_s in kills_s),
        )
