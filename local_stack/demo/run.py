"""Options of the demo, and the base of the runs of all its scenarios."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tidegate.local_stack.demo.bank import Dialect, FilesOf, KeyRanges, Scenario
from tidegate.local_stack.demo.pipeline import Pipeline
from tidegate.local_stack.demo.report import Asked, DemoReport
from tidegate.local_stack.demo.view import RunView
from tidegate.local_stack.parts.programs import Programs
from tidegate.local_stack.parts.stack import LocalStack

CONSUMER_DEADLINE_S = 300.0
CATCH_UP_DEADLINE_S = 600.0
_FIGURES_EVERY_S = 0.5
_RATE_SMALL = 40.0
_BIG_RUN_S = 90.0
_WARM_UP_MAX = 20
_UNDISTURBED_SHARE = 0.75
_ROWS = {Scenario.BANK: 0, Scenario.BACKFILL: 40_000, Scenario.DATASTREAM: 2_000}
_MANY_TRANSFERS, _SOME_ACCOUNTS = 100, 5


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
    """Transfers before the stream, for scenarios other than `bank`; None: see `rows_before`."""
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
        """The requested work, with which the report is compared."""
        is_backfill = self.scenario is Scenario.BACKFILL
        # A few transfers may all come in time, and a few accounts are not closed.
        is_large = self.transfers >= _MANY_TRANSFERS and self.accounts >= _SOME_ACCOUNTS
        return Asked(
            transfers=self.transfers,
            kill_workers=self.kill_workers,
            kill_consumer=self.kill_consumer,
            undisturbed=(
                self.transfers - self.meanwhile if is_backfill else self.kills_from - self.warm_up
            ),
            splits=self.splits,
            merges=self.merges,
            first_rows=(
                None if self.scenario is Scenario.BANK else self.accounts + self.rows_before
            ),
            disturbances=int(is_large),
        )


class DemoRun(ABC):
    """One run on a started stack."""

    starting: ClassVar[str] = "starting Kafka, schema registry and the Spanner simulator"
    has_simulator: ClassVar[bool] = True

    def __init__(
        self, *, options: DemoOptions, stack: LocalStack, folder: Path, view: RunView
    ) -> None:
        self.options, self.stack, self.folder, self.view = options, stack, folder, view
        self.pipeline = Pipeline(self.make_programs())
        self._figures_at = 0.0

    @abstractmethod
    def make_programs(self) -> Programs:
        """Return the programs of the run."""

    @abstractmethod
    def run(self) -> DemoReport:
        """Carry out all parts and return the report."""

    @abstractmethod
    def figures(self) -> dict[str, object]:
        """Return the newest figures of the source."""

    @abstractmethod
    def stop_source(self) -> None:
        """Stop the source of transfers; does nothing if it has stopped already."""

    def stop(self) -> None:
        """Stop the programs that this run has started, if they run."""
        self.stop_source()
        self.pipeline.stop()

    def stop_programs(self) -> list[str]:
        """Show the last figures, and stop all programs; return an error text per failed exit."""
        self.tick(at_once=True)
        self.view.stage("stopping workers and consumer")
        return self.pipeline.stop()

    def tick(self, *, at_once: bool = False) -> None:
        """Show the newest figures, every half second at most unless `at_once`."""
        now = time.monotonic()
        if at_once or now - self._figures_at >= _FIGURES_EVERY_S:
            self._figures_at = now
            self.view.figures(**self.figures())
