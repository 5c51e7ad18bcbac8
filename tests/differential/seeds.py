"""One seed from its workload to its differences, sorted into accepted and unexplained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from tests.differential.accepted import accepted_by
from tests.differential.comparing import compare_runs
from tests.differential.difference import Difference
from tests.differential.emulator import Emulator
from tests.differential.kinds import Dialect
from tests.differential.record_rules import by_transaction
from tests.differential.running import run_workload
from tests.differential.side import Side, SideDownError
from tests.differential.stream_reading import StreamReading
from tests.differential.workload import make_workload
from tidegate.spanner_simulator import Simulator, SimulatorConfig

__all__ = ["SeedResult", "run_seed"]


@dataclass(slots=True)
class SeedResult:
    """What a seed has shown."""

    seed: int
    dialect: Dialect
    steps: int = 0
    transactions: int = 0
    records: int = 0
    is_cut_short: bool = False
    crash: str = ""
    unexplained: list[Difference] = field(default_factory=list)
    accepted: list[tuple[str, Difference]] = field(default_factory=list)


def run_seed(
    seed: int,
    emulator: Emulator,
    *,
    dialect: Dialect | None = None,
    without: frozenset[str] = frozenset(),
) -> SeedResult:
    """Run one seed on both; an emulator that ended is started anew for the next one."""
    workload = make_workload(seed, dialect=dialect, without=without)
    result = SeedResult(seed, workload.dialect)
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
            if not emulator.has_ended(within_s=10):
                raise
            result.crash = str(error)
            emulator.stop()
            emulator.start()
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
        meant = accepted_by(difference)
        if meant is None:
            result.unexplained.append(difference)
        else:
            result.accepted.append((meant.name, difference))
    return result


def _churn(simulator: Simulator, database: str, seed: int) -> Callable[[int, list[str]], None]:
    """Splits, merges and moves of the simulator's stream partitions between steps."""
    chance = Random(f"churn {seed}")

    def disturb(_: int, streams: list[str]) -> None:
        if not streams or chance.random() > 0.25:
            return
        stream = chance.choice(streams)
        live = len(simulator.stream_partitions(database, stream))
        if live > 5 or (live > 1 and chance.random() < 0.3):
            simulator.merge(database, stream)
        else:
            simulator.move(database, stream)

    return disturb
