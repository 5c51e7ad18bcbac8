"""A seed from its workload to its differences, and the error cases, all sorted by acceptance."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from random import Random

from differential.accepted import accepted_by
from differential.api_cases import API_CASES, run_api_cases
from differential.comparing import compare_runs
from differential.difference import Difference
from differential.emulator import Emulator
from differential.error_cases import CASES, run_case
from differential.kinds import Dialect
from differential.proto_cases import PROTO_CASES, run_proto_cases
from differential.record_rules import by_transaction
from differential.running import run_workload
from differential.shrinking import shrink
from differential.side import RefusedError, Side, SideDownError
from differential.stream_reading import StreamReading
from differential.workload import Workload, make_workload
from spanner_simulator import Simulator, SimulatorConfig
from spanner_simulator.errors import SpannerError

# Shrinking runs a seed many times, each in a database of its own.
_serials = count()


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


def run_seed(
    seed: int,
    emulator: Emulator,
    *,
    dialect: Dialect | None = None,
    without: frozenset[str] = frozenset(),
) -> SeedResult:
    """Run one seed on both; an emulator that ended is started anew for the next one."""
    return run(make_workload(seed, dialect=dialect, without=without), emulator)


def shrunk_seed(
    seed: int,
    emulator: Emulator,
    *,
    dialect: Dialect | None = None,
    without: frozenset[str] = frozenset(),
) -> tuple[Workload, SeedResult]:
    """A seed's workload without what its first unexplained difference does not need."""
    workload = make_workload(seed, dialect=dialect, without=without)
    found = run(workload, emulator).unexplained
    if found:
        wanted = found[0].kind, _outline(found[0])

        def shows(smaller: Workload) -> bool:
            again = run(smaller, emulator).unexplained
            return wanted in ((one.kind, _outline(one)) for one in again)

        workload = shrink(workload, shows)
    return workload, run(workload, emulator)


def _outline(difference: Difference) -> str:
    """What the emulator says, without what depends on the rows; of texts only."""
    if not isinstance(difference.emulator, str):
        return ""
    return re.sub(r"[^A-Za-z ]|\{.*\}", "", difference.emulator)[:60]


def run(workload: Workload, emulator: Emulator) -> SeedResult:
    """Run a workload on both sides, and compare."""
    seed = workload.seed
    result = SeedResult(f"seed {seed} {workload.dialect}", workload.dialect)
    config = SimulatorConfig(seed=seed, stream_partitions=1 if workload.one_partition else 4)
    name = f"seed-{seed}-{next(_serials)}"
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
        except RefusedError as error:
            result.add(Difference("success", 0, "to begin with", str(error), ""))
            return result
        except SideDownError as error:
            if error.side != sides[1].name:
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
        result.add(difference)
    return result


def run_errors(emulator: Emulator, text: str = "", dialect: str = "") -> SeedResult:
    """Run the error cases that have a text in their name, of one dialect or of both."""
    result = SeedResult("error cases")
    with Simulator(SimulatorConfig(stream_partitions=2)) as simulator:
        ours = Side(simulator.grpc_address, "simulator")
        ours.create_instance()
        theirs = _emulator_side(emulator)
        for number, case in enumerate(CASES):
            if text not in case.name or dialect not in case.dialect.lower():
                continue
            result.steps += len(case.asks)
            try:
                for difference in run_case(number, case, ours, theirs):
                    result.add(difference)
            except RefusedError as error:
                result.add(Difference("success", 0, f"case {case.name}", str(error), ""))
            except SideDownError as error:
                if error.side != theirs.name:
                    raise
                result.crash = str(error)
                emulator.stop()
                emulator.start()
                theirs.close()
                theirs = _emulator_side(emulator)
        if not dialect or dialect == "google":
            for difference in run_api_cases(ours, theirs, text):
                result.add(difference)
            for difference in run_proto_cases(ours, theirs, text):
                result.add(difference)
            result.steps += len(API_CASES) + len(PROTO_CASES)
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
