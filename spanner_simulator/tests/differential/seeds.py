"""A seed from its workload to its differences, and the error cases, all sorted by acceptance."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

from differential.accepted import accepted_by
from differential.comparing import compare_runs
from differential.difference import Difference
from differential.emulator import Emulator
from differential.kinds import Dialect
from differential.record_rules import by_transaction
from differential.refusals import CASES, run_case
from differential.running import run_workload
from differential.side import Side, SideDownError
from differential.stream_reading import StreamReading
from differential.workload import make_workload
from spanner_simulator import Simulator, SimulatorConfig
from spanner_simulator.errors import SpannerError


@dataclass(slots=True)
class SeedResult:
    """What a seed has shown, or the error cases, which have no dialect."""

    name: str
    dialect: Dialect | None = None
    steps: int = 0
    transactions: int = 0
    records: int = 0
    is_cut_short: bool = False
    crash: str = ""
    unexplained: list[Difference] = field(default_factory=list)
    accepted: list[tuple[str, Difference]] = field(default_factory=list)

    def add(self, difference: Difference) -> None:
        """Sort a difference into accepted and unexplained."""
        meant = accepted_by(difference)
        if meant is None:
            self.unexplained.append(difference)
        else:
            self.accepted.append((meant.name, difference))


def run_seed(seed: int, emulator: Emulator, *, dialect: Dialect | None = None) -> SeedResult:
    """Run one seed on both sides; an emulator that ended is restarted for the next one."""
    workload = make_workload(seed, dialect=dialect)
    result = SeedResult(f"seed {seed} {workload.dialect}", workload.dialect)
    config = SimulatorConfig(seed=seed, stream_partitions=1 if workload.one_partition else 4)
    name = f"seed-{seed}"
    with Simulator(config) as simulator:
        sides = Side(simulator.grpc_address, "simulator"), Side(emulator.address, "emulator")
        try:
            for side in sides:
                side.create_instance()
                side.create_database(name, workload.dialect)
            disturb = None
            if not workload.one_partition:
                disturb = _churn(simulator, sides[0].database, seed)
            runs = run_workload(workload, sides, disturb)
            sides[1].drop_database()
        except SideDownError as error:
            if error.side != sides[1].name:
                raise
            result.crash = str(error)
            emulator.restart()
            return result
        finally:
            for side in sides:
                side.close()
    result.steps = len(runs[0].outcomes)
    result.is_cut_short = result.steps < len(workload.steps)
    for reading in runs[0].streams.values():
        if isinstance(reading, StreamReading):
            result.records += len(reading.records)
            result.transactions += len(by_transaction(reading))
    for difference in compare_runs(workload, *runs):
        result.add(difference)
    return result


def run_refusals(emulator: Emulator) -> SeedResult:
    """Run the cases of `refusals`."""
    result = SeedResult("refusals")
    with Simulator(SimulatorConfig(stream_partitions=2)) as simulator:
        ours = Side(simulator.grpc_address, "simulator")
        ours.create_instance()
        theirs = _emulator_side(emulator)
        for number, case in enumerate(CASES):
            result.steps += len(case.ddl) + 1
            try:
                for difference in run_case(number, case, ours, theirs):
                    result.add(difference)
            except SideDownError as error:
                if error.side != theirs.name:
                    raise
                result.crash = str(error)
                emulator.restart()
                theirs.close()
                theirs = _emulator_side(emulator)
        for side in (ours, theirs):
            side.close()
    return result


def _emulator_side(emulator: Emulator) -> Side:
    side = Side(emulator.address, "emulator")
    side.create_instance()
    return side


def _churn(simulator: Simulator, database: str, seed: int) -> Callable[[int, list[str]], None]:
    """Splits, merges and moves of the simulator's stream partitions between steps."""
    chance = Random(f"churn {seed}")

    def disturb(_: int, streams: list[str]) -> None:
        if not streams or chance.random() > 0.25:
            return
        stream = chance.choice(streams)
        live = len(simulator.stream_partitions(database, stream))
        turn = chance.random()
        if live > 5 or (live > 1 and turn < 0.3):
            simulator.merge(database, stream)
        elif turn < 0.7:
            # Where there is a key to split at, which a change must have shown.
            with suppress(SpannerError):
                simulator.split(database, stream)
        else:
            simulator.move(database, stream)

    return disturb
