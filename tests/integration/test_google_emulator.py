"""Producer and consumer against Google's own emulator, where the Cloud SDK has installed it.

The emulator runs one read-write transaction at a time, keeps all writes in one stream partition at
a time, and splits, merges and moves stream partitions by its own clock (every 3 to 6 s here).  It
has no commit log, so the oracle is its tables: the mirrors must equal them, the changelog folded
row by row must give them, and at every release the bank's total and ledger must hold.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.shared_stack import gate, new_prefix, now, running, until, wait_released
from tidegate.local_stack.demo.bank import ACCOUNTS, LEDGER, STREAM, Bank
from tidegate.local_stack.demo.bank_database import (
    create_bank_database,
    open_accounts,
)
from tidegate.local_stack.demo.bank_run import bank_layout
from tidegate.local_stack.demo.customers import Customers
from tidegate.local_stack.judge.cuts import compare_cuts, table_difference
from tidegate.local_stack.judge.delta import DeltaReader
from tidegate.local_stack.judge.source import SpannerSource
from tidegate.local_stack.judge.topics import finished_stream_partitions
from tidegate.local_stack.parts.process import ChildProcess, ProcessSpec, choose_ports
from tidegate.local_stack.parts.programs import DatabaseName, Programs
from tidegate.local_stack.parts.stack import LocalStack

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]

ABSENT = (
    "Google's Spanner emulator is not installed beside gcloud, and "
    "SPANNER_EMULATOR_PROGRAM does not name it"
)

BANK = Bank(accounts=20, seed=17)
TRANSFERS = 300
LIFE_S = 3


def find_emulator() -> Path | None:
    """The emulator's program: named by the environment, or a part of the Cloud SDK."""
    if named := os.environ.get("SPANNER_EMULATOR_PROGRAM"):
        return Path(named)
    gcloud = shutil.which("gcloud")
    if gcloud is None:
        return None
    below = Path("cloud_spanner_emulator") / "emulator_main"
    beside = Path(gcloud).parent
    places = (
        Path(gcloud).resolve().parent / below,
        beside / below,
        beside.parent / "lib" / "google-cloud-sdk" / "bin" / below,
    )
    return next((place for place in places if place.is_file()), None)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    program = find_emulator()
    if program is None:
        pytest.skip(ABSENT)
    port = choose_ports({"emulator": 0})["emulator"]
    spec = ProcessSpec(
        name="Google's emulator",
        command=[
            str(program),
            "--host_port",
            f"127.0.0.1:{port}",
            f"--override_change_stream_partition_token_alive_seconds={LIFE_S}",
        ],
        log=tmp_path_factory.mktemp("emulator") / "emulator.log",
    )

    def answers() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    with ChildProcess(spec) as running:
        running.wait_ready(answers, deadline_s=60)
        yield f"127.0.0.1:{port}"


@pytest.fixture(scope="module")
def carried(
    address: str, kafka_and_registry: LocalStack, spark: Any, tmp_path_factory: Any
) -> tuple[Programs, SpannerSource, DeltaReader, int]:
    """A bank's life on the emulator, carried to Delta by two workers and the consumer."""
    name, folder = DatabaseName(address=address), tmp_path_factory.mktemp("google")
    database, start = create_bank_database(name, commit_timestamps=False), now()
    opened_us = open_accounts(database, BANK)
    programs = Programs(
        folder=folder,
        bootstrap_servers=kafka_and_registry.bootstrap_servers,
        registry_url=kafka_and_registry.registry_url,
        spanner_address=address,
        database=name,
        stream=STREAM,
        prefix=new_prefix(),
    )
    customers = Customers(
        name,
        bank=BANK,
        transfers=TRANSFERS,
        # Slow enough for several lives of the emulator's stream partitions.
        rate_max=TRANSFERS / (6 * LIFE_S),
        reserve=0,
        log=folder / "logs" / "customers.log",
        threads=1,
        commit_timestamps=False,
    )
    with running(programs, 2, start=start) as pipeline, gate(spark, programs) as query:
        # A release of its own for the opening, so that there are several cuts to compare.
        wait_released(query, pipeline, opened_us)
        try:
            customers.start()
            until(lambda: customers.has_finished)
        finally:
            customers.stop()
        wait_released(query, pipeline, customers.last_commit_us)
    source = SpannerSource(database, bank_layout(commit_timestamps=False))
    return programs, source, DeltaReader(programs.output), opened_us


def test_every_release_is_a_consistent_cut(carried: Any):
    _, source, delta, opened_us = carried
    figures = compare_cuts(
        delta.manifests(),
        mirrors=delta,
        source=source,
        rule=lambda cut, through_us: BANK.faults(cut, opened=through_us >= opened_us),
    )

    assert figures.examples == ()
    assert figures.releases > 1
    assert (figures.unlike_source, figures.with_wrong_total) == (0, 0)
    assert figures.mirror_equals_source


def test_the_changelog_holds_each_change_once_in_order(carried: Any):
    _, source, delta, _ = carried
    rows = [row for table in (ACCOUNTS, LEDGER) for row in delta.changelog(table).rows]
    places = [(row.table, row.place) for row in rows]
    ordered = [row.place for row in sorted(rows, key=lambda row: (row.release, row.ordinal))]

    assert len(places) == len(set(places)) == BANK.accounts + 3 * TRANSFERS
    assert ordered == sorted(ordered)
    assert delta.late_rows() == 0
    for table in (ACCOUNTS, LEDGER):
        state: dict[Any, dict[str, Any]] = {}
        own = [row for row in rows if row.table == table]
        for row in sorted(own, key=lambda row: row.place):
            key = tuple(row.keys.values())
            captured = row.new_columns or tuple(row.new_values)
            assert (key in state) == (row.mod_type == "UPDATE")
            state[key] = state.get(key, {}) | {name: row.new_values[name] for name in captured}
        names = source.layout[table].columns
        folded = {name: tuple(row[name] for row in state.values()) for name in names}
        now = source.read(table, at_us=None)

        assert (
            table_difference(table, mirror=folded, source=now, key=source.primary_key(table)) == ""
        )


def test_stream_partitions_came_and_went(carried: Any):
    programs, *_ = carried
    finished = finished_stream_partitions(
        programs.prefix,
        bootstrap_servers=programs.bootstrap_servers,
        registry_url=programs.registry_url,
    )
    assert len(finished) >= 4
