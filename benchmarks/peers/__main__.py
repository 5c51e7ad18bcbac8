"""Tidegate beside another program that publishes Spanner's changes.

    python -m benchmarks.peers debezium [backlog | steady | lake] [--rounds 3] [--changes 300000]
        [--only NAME …] [--json]

Starts Kafka, a registry and the Spanner simulator (`tidegate.local_stack`), and lets one program
after the other publish, each in every round: the same backlog (CPU time, rate, bytes), or 1,000
changes a second through a split and a SIGKILL (delays, and what is lost, repeated, reordered), and
what consumers make of that in a lake.
Fetches the other program first, once.  Ends with 1 if a program did not publish its backlog.
"""

from __future__ import annotations

import itertools
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.measuring import (
    document,
    options_parser,
    require_known,
    say,
    spread,
    spread_text,
)
from benchmarks.peers import debezium, worker
from benchmarks.peers.backlog import ROWS_AT_ONCE, STREAM, STREAM_PARTITIONS, TABLE, write_backlog
from benchmarks.peers.lake import Lake, Topics
from benchmarks.peers.parts import PeerParts, fetch_peer_parts
from benchmarks.peers.publishing import READ_AT_ONCE, TOPIC_PARTITIONS, publish
from benchmarks.peers.steady import debezium_json, steady, tidegate_avro
from tidegate.local_stack.config import load_config
from tidegate.local_stack.demo.conductor import SimulatorControl
from tidegate.local_stack.errors import FetchError
from tidegate.local_stack.parts.installed_java import find_java
from tidegate.local_stack.parts.process import ProcessSpec
from tidegate.local_stack.parts.programs import DatabaseName
from tidegate.local_stack.parts.stack import LocalStack
from tidegate.producer.accelerator import accelerator
from tidegate.program.java import Java

Figures: TypeAlias = dict[str, float]
Measure: TypeAlias = Callable[[str, int], Figures]
"""Measures a program, by its name, in a round."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What all programs of a comparison have in common."""

    stack: LocalStack
    java: Java
    parts: PeerParts
    database: DatabaseName
    start: str

    @property
    def kafka_log(self) -> Path:
        """The folder in which the broker keeps its topics."""
        return self.stack.config.data_dir.absolute() / "kafka" / "log"

    def debezium(
        self,
        name: str,
        *,
        converter: Mapping[str, str] = debezium.JSON,
        has_low_watermark: bool = False,
    ) -> ProcessSpec:
        """Debezium's connector, by default with JSON without schemas."""
        return debezium.connect_program(
            self.java,
            self.parts,
            self._folder(name),
            name=name,
            bootstrap_servers=self.stack.bootstrap_servers,
            database=self.database,
            start=self.start,
            converter=converter,
            has_low_watermark=has_low_watermark,
        )

    def worker(
        self, name: str, *, is_accelerated: bool = True, settings: Mapping[str, str] | None = None
    ) -> ProcessSpec:
        """One worker of Tidegate, by default with its default settings."""
        return worker.worker_program(
            self.stack,
            self._folder(name),
            prefix=name,
            database=self.database,
            start=self.start,
            topic_partitions=TOPIC_PARTITIONS,
            is_accelerated=is_accelerated,
            settings=settings or {},
        )

    def _folder(self, name: str) -> Path:
        return self.stack.config.data_dir.absolute() / "peers" / name


PEER = "debezium"
PROGRAMS: dict[str, Callable[[Setting, str], ProcessSpec]] = {
    "debezium, JSON": Setting.debezium,
    "debezium, Avro": lambda setting, name: setting.debezium(
        name, converter=debezium.avro(setting.stack.registry_url)
    ),
    "tidegate": Setting.worker,
    "tidegate, no accelerator": lambda setting, name: setting.worker(name, is_accelerated=False),
    "tidegate, JSON of debezium": lambda setting, name: setting.worker(
        name, settings=worker.AS_DEBEZIUM
    ),
}


def main(arguments: list[str]) -> None:
    """Measure what was chosen; print a table, or JSON."""
    options = _options(arguments)
    if accelerator() is None:
        sys.exit("the accelerator is not installed: pip install ./accelerator")
    java = find_java()
    try:
        parts = fetch_peer_parts(java, report=say)
    except FetchError as error:
        sys.exit(str(error))
    rounds: dict[str, list[Figures]] = {name: [] for name in options.only}
    failures: list[str] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalStack(
            load_config(data_dir=Path(folder), stream_partitions=STREAM_PARTITIONS),
            report=say,
            is_patient=True,
            is_lasting=True,
        ) as stack,
    ):
        database = DatabaseName(stack.spanner_address, instance="peers", database="peers")
        changes = options.changes if options.measure == "backlog" else 0
        say(f"writing {changes} changes")
        start = write_backlog(database, changes=changes)
        measure = MEASURES[options.measure](Setting(stack, java, parts, database, start), changes)
        for number in range(options.rounds):
            for name in _in_turn(options.only, number):
                say(f"round {number + 1} of {options.rounds}: {name}")
                try:
                    found = measure(name, number)
                except SystemExit as failed:  # the figures of the others are not lost
                    failures.append(f"{name}: {failed}")
                    say(failures[-1])
                else:
                    rounds[name].append(found)
                    say(f"{found}")
    measured = summaries({name: found for name, found in rounds.items() if found})
    if options.json:
        versions = {
            "java": java.major,
            "kafka_connect": parts.version("connect-runtime"),
            "debezium": parts.version("debezium-connector-spanner"),
            "converter": parts.version("apicurio-registry-utils-converter"),
        }
        print(document(measured, **versions))
    else:
        _show(measured)
    if failures:
        sys.exit(1)


def _program(name: str, number: int) -> str:
    """Return the name of a program in a round, which its topics begin with."""
    return f"{name.replace(',', '').replace(' ', '-')}-{number}"


def _backlog(setting: Setting, changes: int) -> Measure:
    def measure(name: str, number: int) -> Figures:
        program = _program(name, number)
        return publish(
            PROGRAMS[name](setting, program),
            topic=f"{program}.{TABLE}",
            bootstrap_servers=setting.stack.bootstrap_servers,
            changes=changes,
            kafka_log=setting.kafka_log,
        )

    return measure


def _steady(setting: Setting, _changes: int) -> Measure:
    runs = itertools.count(1)

    def measure(name: str, number: int) -> Figures:
        start = PROGRAMS[name]
        return _steady_run(setting, name, _program(name, number), start, run=next(runs))[0]

    return measure


def _lake(setting: Setting, _changes: int) -> Measure:
    """Let both programs publish first, each with a kill."""
    say("publishing")
    topics, committed_us = {}, {}
    starts: Mapping[str, Callable[[Setting, str], ProcessSpec]] = {
        PEER: partial(Setting.debezium, has_low_watermark=True),
        "tidegate": Setting.worker,
    }
    for run, (name, start) in enumerate(starts.items()):
        topics[name] = _program(name, 0)
        figures, committed_us[name] = _steady_run(setting, name, topics[name], start, run=run + 1)
        say(f"{name}: {figures}")
    lake = Lake(
        setting.stack,
        setting.database,
        setting.stack.config.data_dir.absolute(),
        Topics(f"{topics[PEER]}.{TABLE}", topics["tidegate"]),
        committed_us,
    )
    return lambda name, _number: lake.measure(name)


def _steady_run(
    setting: Setting,
    name: str,
    program: str,
    start: Callable[[Setting, str], ProcessSpec],
    *,
    run: int,
) -> tuple[Figures, Mapping[int, int]]:
    now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    stack = setting.stack
    return steady(
        start(replace(setting, start=now), program),
        topic=f"{program}.{TABLE}",
        decode=debezium_json if name.startswith(PEER) else tidegate_avro(stack.registry_url),
        bootstrap_servers=stack.bootstrap_servers,
        database=setting.database,
        control=SimulatorControl(
            stack.control_address, database=setting.database.path, stream=STREAM
        ),
        first=run * 100_000,
    )


MEASURES: Mapping[str, Callable[[Setting, int], Measure]] = {
    "backlog": _backlog,
    "steady": _steady,
    "lake": _lake,
}
NAMES: Mapping[str, Sequence[str]] = {
    "backlog": tuple(PROGRAMS),
    # Those whose records are read there.
    "steady": ("debezium, JSON", "tidegate"),
    "lake": ("debezium, a plain copy", "debezium, sorted", "tidegate"),
}


def _options(arguments: list[str]) -> Any:
    every = list(dict.fromkeys(name for names in NAMES.values() for name in names))
    parser = options_parser("benchmarks.peers", __doc__, every, [], 3)
    parser.add_argument("peer", choices=[PEER], help="what Tidegate is compared with")
    parser.add_argument("measure", nargs="?", choices=list(MEASURES), default="backlog")
    parser.add_argument("--changes", type=int, default=300_000, help="the backlog")
    options = parser.parse_args(arguments)
    names = NAMES[options.measure]
    options.only = options.only or list(names)
    require_known(parser, options.only, names)
    least = 3 * READ_AT_ONCE
    if options.changes < least or options.changes % ROWS_AT_ONCE:
        parser.error(f"--changes is a multiple of {ROWS_AT_ONCE}, {least} or more")
    return options


def _in_turn(names: list[str], number: int) -> list[str]:
    """Return the names of a round: each round begins with another one."""
    first = number % len(names)
    return names[first:] + names[:first]


def summaries(rounds: Mapping[str, list[Figures]]) -> list[dict[str, Any]]:
    """Return of each program the median, least and most of its figures.

    `times` has how many changes a program of ours publishes in a CPU second for each of a peer's,
    by their medians: with the start, and warm.
    """
    peers = {name: found for name, found in rounds.items() if name.startswith(PEER)}
    summaries = []
    for name, found in rounds.items():
        one: dict[str, Any] = {"name": name, "rounds": len(found)}
        one |= {figure: spread([each[figure] for each in found]) for figure in found[0]}
        one["raw"] = found
        if name not in peers and "warm_cpu_us" in found[0]:
            one["times"] = {
                peer: {
                    figure: round(_median(theirs, figure) / _median(found, figure), 2)
                    for figure in ("cpu_us", "warm_cpu_us")
                }
                for peer, theirs in peers.items()
            }
        summaries.append(one)
    return summaries


def _median(rounds: list[Figures], figure: str) -> float:
    return statistics.median(one[figure] for one in rounds)


def _show(measured: list[dict[str, Any]]) -> None:
    """Print a row for each figure: the median, and the least and the most of all rounds."""
    for one in measured:
        for figure, value in one.items():
            if isinstance(value, dict) and "median" in value:
                print(f"| {one['name']} | {figure} | {spread_text(value)} |")
        for peer, times in one.get("times", {}).items():
            text = f"{times['cpu_us']} with the start, {times['warm_cpu_us']} warm"
            print(f"| {one['name']} | changes a CPU second, of those of {peer} | {text} |")


if __name__ == "__main__":
    main(sys.argv[1:])
