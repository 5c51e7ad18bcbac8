"""Tidegate beside another program that publishes Spanner's changes: CPU time for the same backlog.

    python -m benchmarks.peers debezium [--rounds 3] [--changes 300000] [--only NAME …] [--json]

Starts Kafka, a registry and the Spanner simulator (`tidegate.local_stack`), writes the backlog, and
lets one program after the other publish all of it, each in every round.  Fetches the other program
first, once.  Ends with 1 if a program did not publish everything.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.measuring import (
    machine,
    options_parser,
    require_known,
    say,
    spread,
    spread_text,
)
from benchmarks.peers import debezium, worker
from benchmarks.peers.backlog import ROWS_AT_ONCE, STREAM_PARTITIONS, TABLE, write_backlog
from benchmarks.peers.parts import PeerParts, fetch_peer_parts
from benchmarks.peers.publishing import READ_AT_ONCE, TOPIC_PARTITIONS, publish
from tidegate.local_stack.config import load_config
from tidegate.local_stack.errors import FetchError
from tidegate.local_stack.parts.installed_java import find_java
from tidegate.local_stack.parts.process import ProcessSpec
from tidegate.local_stack.parts.programs import DatabaseName
from tidegate.local_stack.parts.stack import LocalStack
from tidegate.producer.accelerator import accelerator
from tidegate.program.java import Java

Figures: TypeAlias = dict[str, float]


@dataclass(frozen=True, slots=True)
class Setting:
    """What all programs of a comparison have in common."""

    stack: LocalStack
    java: Java
    parts: PeerParts
    database: DatabaseName
    start: str

    def debezium(self, name: str, *, converter: Mapping[str, str] = debezium.JSON) -> ProcessSpec:
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
        say(f"writing {options.changes} changes")
        start = write_backlog(database, changes=options.changes)
        setting = Setting(stack, java, parts, database, start)
        for number in range(options.rounds):
            for name in _in_turn(options.only, number):
                say(f"round {number + 1} of {options.rounds}: {name}")
                program = f"{name.replace(',', '').replace(' ', '-')}-{number}"
                try:
                    found = publish(
                        PROGRAMS[name](setting, program),
                        topic=f"{program}.{TABLE}",
                        bootstrap_servers=stack.bootstrap_servers,
                        changes=options.changes,
                    )
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
        print(json.dumps({"machine": machine(**versions), "measured": measured}))
    else:
        _show(measured)
    if failures:
        sys.exit(1)


def _options(arguments: list[str]) -> Any:
    names = list(PROGRAMS)
    parser = options_parser("benchmarks.peers", __doc__, names, names, 3)
    parser.add_argument("peer", choices=[PEER], help="what Tidegate is compared with")
    parser.add_argument("--changes", type=int, default=300_000, help="the backlog")
    options = parser.parse_args(arguments)
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
        if name not in peers:
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
