"""The default pipeline: a bank's life under splits and merges, read in every way that there is.

By confluent-kafka's own consumer with none of our code in it, by the audit, by the program of
docs/library.md, and by a query that gets more sinks.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import deltalake
import pyarrow.parquet
import pytest
import xxhash
from google.cloud.spanner_v1 import KeySet

import tidegate as tg
from tests.integration.shared_stack import (
    PATIENCE_S,
    SharedStack,
    gate,
    now,
    open_shared_stack,
    read_bytes,
    read_everything,
    rows_of,
    running,
    until,
    wait_for,
    wait_released,
)
from tests.tidy.printed_commands import blocks
from tidegate.local_stack.demo.bank import ACCOUNTS, LEDGER, STREAM, Bank
from tidegate.local_stack.demo.bank_database import (
    commit_time_us,
    create_bank_database,
    open_accounts,
)
from tidegate.local_stack.demo.customers import Customers
from tidegate.local_stack.demo.pipeline import Pipeline
from tidegate.local_stack.judge.log import LoggedTransaction, fetch_commit_log, origin_number
from tidegate.local_stack.judge.topics import finished_stream_partitions
from tidegate.local_stack.parts.programs import Programs
from tidegate.producer.datastream.event_file import EventFile
from tidegate.producer.datastream.file_store import LocalStore
from tidegate.producer.datastream.listing import all_files
from tidegate.schemas.topics import HEADER_ORDER

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]

BANK = Bank(accounts=30, seed=5)
TRANSFERS = 300
SPLITS, MERGES = 3, 2
TABLES = (ACCOUNTS, LEDGER)
MORE = [
    f"ALTER CHANGE STREAM {STREAM} SET FOR ALL",
    "CREATE TABLE Orders (Id INT64, Amount INT64) PRIMARY KEY (Id)",
    "CREATE TABLE Lines (Id INT64, Text STRING(MAX)) PRIMARY KEY (Id)",
]


@dataclass
class World:
    """The pipeline while its workers run, with what was committed and what is in the topics."""

    stack: SharedStack
    pipeline: Pipeline
    database: Any
    log: list[LoggedTransaction] = field(init=False)
    messages: dict[str, list[Any]] = field(init=False)

    def __post_init__(self) -> None:
        self.log = self.committed()
        counts = {
            table: sum(change.table == table for one in self.log for change in one.changes)
            for table in TABLES
        }
        self.messages = {
            table: read_everything(self.stack, self.stack.topic(table), count=count)
            for table, count in counts.items()
        }

    def committed(self) -> list[LoggedTransaction]:
        """Return all transactions so far."""
        path = self.stack.database_name.path
        return fetch_commit_log(self.stack.control_address, database=path, stream=STREAM)

    def reader(self, folder: Path, **settings: object) -> Pipeline:
        """Return the pipeline with a consumer of its own: another output and checkpoint."""
        programs = replace(self.stack.programs(STREAM, **settings), folder=folder)
        return Pipeline(programs, workers=self.pipeline.workers)


@pytest.fixture(scope="module")
def world(kafka_and_registry, tmp_path_factory) -> Iterator[World]:
    folder: Path = tmp_path_factory.mktemp("bank")
    with open_shared_stack(kafka_and_registry, folder) as stack:
        database = create_bank_database(stack.database_name)
        database.update_ddl(MORE).result(PATIENCE_S)
        start = now()
        open_accounts(database, BANK)
        customers = Customers(
            stack.database_name,
            bank=BANK,
            transfers=TRANSFERS,
            rate_max=60.0,
            reserve=2,
            log=folder / "logs" / "customers.log",
            threads=3,
        )
        with running(stack.programs(STREAM), 2, start=start) as pipeline:
            try:
                customers.start()
                control = stack.control(STREAM)
                churn = [control.split] * SPLITS + [control.merge] * MERGES
                for number, act in enumerate(churn, 1):
                    due = TRANSFERS * number // (len(churn) + 2)
                    until(lambda due=due: customers.done >= due)
                    act()
                customers.finish()
                until(lambda: customers.has_finished)
            finally:
                customers.stop()
            yield World(stack, pipeline, database)


def instant(us: int) -> datetime:
    return datetime.fromtimestamp(us // 1_000_000, UTC).replace(microsecond=us % 1_000_000)


def place(value: dict[str, Any]) -> tuple[Any, ...]:
    source = value["source"]
    return (
        source["commit_timestamp"],
        source["server_transaction_id"],
        int(source["record_sequence"]),
        source["mod_number"],
    )


# ---------------------------------------------------------------- a plain subscriber


@pytest.mark.rule("spanner-split-and-merge", "P1")
def test_every_committed_change_is_there_once(world: World):
    for table in TABLES:
        committed = [
            (
                instant(change.place.commit_timestamp_us),
                change.place.server_transaction_id,
                change.place.record_sequence[1],
                change.place.mod_number,
            )
            for one in world.log
            for change in one.changes
            if change.table == table
        ]
        assert sorted(place(one.value()) for one in world.messages[table]) == sorted(committed)


@pytest.mark.rule("spanner-key-order", "P2")
def test_the_changes_of_one_key_are_in_commit_order(world: World):
    for table in TABLES:
        homes: defaultdict[tuple[Any, ...], set[int]] = defaultdict(set)
        places: defaultdict[tuple[Any, ...], list[tuple[Any, ...]]] = defaultdict(list)
        for message in world.messages[table]:
            key = tuple(message.key().values())
            homes[key].add(message.partition())
            places[key].append(place(message.value()))
        assert all(len(topic_partitions) == 1 for topic_partitions in homes.values())
        assert all(found == sorted(found) for found in places.values())
        changes_of_a_key = max(map(len, places.values()))
        assert changes_of_a_key == 1 if table == LEDGER else changes_of_a_key > 1


@pytest.mark.rule("spanner-mod-type", "P3")
def test_keys_and_values_are_the_rows(world: World):
    owed: defaultdict[str, int] = defaultdict(int)
    for message in world.messages[LEDGER]:
        value = message.value()
        row = value["new_values"]
        assert value["mod_type"] == "INSERT"
        assert value["old_values"] is None
        assert message.key() == {"TransferId": row["TransferId"]}
        assert row["CommittedAt"] == value["source"]["commit_timestamp"]
        owed[row["FromAccount"]] -= row["Amount"]
        owed[row["ToAccount"]] += row["Amount"]
    balances: dict[str, int] = {}
    for message in sorted(
        world.messages[ACCOUNTS], key=lambda one: (one.partition(), one.offset())
    ):
        value = message.value()
        account = message.key()["AccountId"]
        new, old = value["new_values"], value["old_values"]
        assert new["AccountId"] == account
        assert (value["mod_type"] == "INSERT") == (old is None)
        assert old is None or old["Balance"] == balances[account]
        balances[account] = new["Balance"]

    assert len(world.messages[LEDGER]) == TRANSFERS
    assert sum(balances.values()) == BANK.total
    assert balances == {
        account: BANK.opening_balance + owed[account] for account, *_ in BANK.opening_rows()
    }
    tags = {message.value()["source"]["transaction_tag"] for message in world.messages[LEDGER]}
    assert tags == {one.tag for one in world.log if one.tag}


@pytest.mark.rule("spanner-mod-type")
def test_the_order_header_sorts_like_commit_order(world: World):
    for table in TABLES:
        messages = world.messages[table]
        headers = [dict(message.headers()) for message in messages]
        by_header = sorted(messages, key=lambda one: dict(one.headers())["order"])
        assert [message.headers()[0][0] for message in messages] == ["order"] * len(headers)
        assert [place(one.value()) for one in by_header] == sorted(
            place(message.value()) for message in messages
        )
        assert {header["mod"] for header in headers} <= {b"I", b"U", b"D"}


def test_the_origin_header_is_sparks_hash_of_the_token(world: World):
    tokens = {one.server_transaction_id: one.stream_partition_tokens for one in world.log}
    for message in world.messages[LEDGER]:
        source, (name, origin) = message.value()["source"], message.headers()[2]
        own = tokens[source["server_transaction_id"]]
        assert (name, source["partition_token"]) == ("origin", "")
        assert origin in {xxhash.xxh64_digest(token.encode(), 42) for token in own}


def finished(world: World) -> set[str]:
    return finished_stream_partitions(
        world.stack.prefix,
        bootstrap_servers=world.stack.bootstrap_servers,
        registry_url=world.stack.registry_url,
    )


@pytest.mark.rule("P4")
def test_every_ended_stream_partition_has_its_marker(world: World):
    assert len(finished(world)) == SPLITS + 2 * MERGES


# ---------------------------------------------------------------- the consumer


def audit(spark: Any, programs: Programs) -> dict[str, Any]:
    report = tg.audit(
        spark,
        str(programs.output),
        prefix=programs.prefix,
        checkpoint=str(programs.checkpoint),
        bootstrap_servers=programs.bootstrap_servers,
        registry_url=programs.registry_url,
    )
    assert report.is_proved == (not report.content()["mismatches"])
    return report.content()


def test_markers_on_kafka_prove_the_changelogs_and_name_what_is_missing(world, spark, tmp_path):
    reader = world.reader(tmp_path, CONSUMER_SINKS="changelog")
    log = world.committed()
    last_us = log[-1].commit_timestamp_us
    with gate(spark, reader.programs) as query:
        wait_for(
            query, reader, lambda: reader.released().through_us >= last_us, what="the changelogs"
        )
    report = audit(spark, reader.programs)
    assert report["mismatches"] == []
    assert report["changes"] == sum(len(one.changes) for one in log)
    # A split finishes one stream partition and a merge two.
    assert report["stream_partitions"]["proved"] == SPLITS + 2 * MERGES
    assert report["stream_partitions"]["open"] > 0
    assert report["transactions"] == {"proved": len(log), "mismatched": 0}
    assert (report["without_checksum"], report["without_value_bytes"]) == (0, 0)

    proved = {origin_number(token) for token in finished(world)}
    first = next(
        row for row in rows_of(reader.programs, f"changelog/{LEDGER}") if row["origin"] in proved
    )
    table = deltalake.DeltaTable(reader.programs.output / "changelog" / LEDGER)
    at = "topic_partition = {topic_partition} AND offset = {offset}".format(**first)
    assert table.delete(at)["num_deleted_rows"] == 1
    mismatches = audit(spark, reader.programs)["mismatches"]
    (pair,) = [mismatch for mismatch in mismatches if mismatch["what"] == "stream partition"]
    assert (pair["topic"], pair["fault"]) == (world.stack.topic(LEDGER), "changes are missing")
    assert pair["found"]["mods"] == pair["expected"]["mods"] - 1


AFTER = """
import time
from tidegate.schemas.errors import ConfigError

def is_done(checkpoint):
    try:
        found = tg.status(checkpoint)
    except ConfigError:  # no state yet
        return False
    return found["watermark_us"] >= THROUGH_US and found["mirror"]["releases_behind"] == 0

def wait(query, checkpoint):
    observed = {}
    end = time.monotonic() + PATIENCE_S
    while not is_done(checkpoint):
        assert not query.awaitTermination(0.5), query.exception()
        assert time.monotonic() < end, tg.status(checkpoint)
        observed.update({one.batchId: one.observedMetrics for one in query.recentProgress})
    last = tg.status(checkpoint)["batch"]
    while (query.lastProgress or {"batchId": -1})["batchId"] < last:
        assert time.monotonic() < end, query.lastProgress
        time.sleep(0.1)
    observed.update({one.batchId: one.observedMetrics for one in query.recentProgress})
    query.stop()
    assert not query.isActive and query.exception() is None
    return observed.values()

observed = [one["tidegate"].released_changes for one in wait(query, "/lake/_checkpoint")]
tables = tg.as_of(spark, "/lake", "2999-01-01T00:00:00Z")
report = tg.audit(spark, "/lake", prefix="bank", **address)

# A query of a function alone, which writes no table.
transactions = []

def keep(changes, release):
    transactions.extend(row[0] for row in changes.selectExpr("size(changes)").collect())

alone = tg.stream(spark, prefix="bank", **address).output("/lake/alone")
alone.for_each_release(keep, mode="transaction")
last = wait(alone.start("/lake/alone/_checkpoint"), "/lake/alone/_checkpoint")
taken = [one["tidegate_sink_function"].changes for one in last]
sinks = [tg.status(one)["sinks"] for one in ("/lake/_checkpoint", "/lake/alone/_checkpoint")]
"""


def test_the_printed_program_runs_and_its_output_is_read_and_proved(world, spark, tmp_path, capsys):
    log, stack = world.committed(), world.stack
    page = next(block for block in blocks("python") if block.page == "docs/library.md")
    program = page.content + AFTER
    for printed, here in (
        ("spark = tg.session()\n", ""),
        ("query.awaitTermination()", "query"),
        ('prefix="bank"', f"prefix={stack.prefix!r}"),
        ("broker:9092", stack.bootstrap_servers),
        ("https://registry.example/", stack.registry_url),
        ("/lake", str(tmp_path / "lake")),
    ):
        assert printed in program
        program = program.replace(printed, here)
    found = {
        "spark": spark, "THROUGH_US": log[-1].commit_timestamp_us, "PATIENCE_S": PATIENCE_S,
    }  # fmt: skip
    exec(compile(program, "docs/library.md", "exec"), found)

    changes = [len(one.changes) for one in log]
    balances = {row["AccountId"]: row["Balance"] for row in found["tables"][ACCOUNTS].collect()}
    assert sum(balances.values()) == BANK.total
    assert found["tables"].table(LEDGER).count() == TRANSFERS
    assert found["report"].is_proved
    assert found["report"].changes == sum(changes)
    assert found["transactions"] == changes
    assert sum(found["observed"]) == sum(found["taken"]) == sum(changes)
    assert found["sinks"] == [["changelog", "mirror", "function"], ["function"]]
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert sum(int(line[-1]) for line in printed) == sum(changes)


ALL = "changelog,mirror,history,parquet,topic,transactions,parquet_transactions,datastream_files"


def change(database, rows=(), *, gone=(), lines=()):
    with database.batch() as batch:
        batch.insert_or_update("Orders", ("Id", "Amount"), rows)
        if lines:
            batch.insert("Lines", ("Id", "Text"), lines)
        if gone:
            batch.delete("Orders", KeySet(keys=[[key] for key in gone]))
    return commit_time_us(batch.committed)


@pytest.mark.rule("sink-joins-by-release")
def test_each_sink_is_exact_from_the_release_on_with_which_it_joins(world, spark, tmp_path):
    database, in_order = world.database, f"{world.stack.prefix}-in-order"
    change(database, [(key, key) for key in range(10)], lines=[(1, "a")])
    first_us = change(database, [(key, -key) for key in range(5)], gone=[9])
    reader = world.reader(tmp_path)
    output = reader.programs.output
    with gate(spark, reader.programs, sinks="changelog") as query:
        wait_for(
            query,
            reader,
            lambda: reader.released().through_us >= first_us,
            what="the first releases",
        )
    change(database, [(3, 30)], lines=[(2, "b")])
    change(database, [(9, 90)], gone=[0])
    last_us = change(database, [(4, 40)])
    with gate(spark, reader.programs, sinks=ALL, ordered_topic=in_order) as query:
        wait_released(query, reader, last_us)
    figures = tg.status(str(reader.programs.checkpoint))
    begun = figures["begins"]["topic"]
    joined = ("parquet", "topic", "transactions", "parquet_transactions", "datastream_files")
    assert figures["begins"] == dict.fromkeys(joined, begun)
    assert begun > 0
    changes = {one: rows_of(reader.programs, f"changelog/{one}") for one in ("Orders", "Lines")}
    own = [row for rows in changes.values() for row in rows]
    later = sorted((row for row in own if row["release"] >= begun), key=_place)

    # The mirrors have everything, also from before they joined.
    expected = {1: -1, 2: -2, 3: 30, 4: 40, **{key: key for key in range(5, 9)}, 9: 90}
    mirror = {row["Id"]: row["Amount"] for row in rows_of(reader.programs, "mirror/Orders")}
    assert mirror == expected
    versions = rows_of(reader.programs, "history/Orders")
    assert {row["Id"]: row["Amount"] for row in versions if row["valid_to"] is None} == expected
    assert sorted(row["Amount"] for row in versions if row["Id"] == 3) == [-3, 3, 30]

    # The others have each change after that once, in commit order.
    assert len(later) == 5
    assert published(world.stack, in_order) == [
        (
            row["order_key"], row["release"],
            "Lines" if "Text" in (row["new_values"] or {}) else "Orders",
        )
        for row in later
    ]  # fmt: skip
    assert parquet_keys(output) == sorted(row["order_key"] for row in later)
    stream_name = f"{world.stack.database_name.path}/changeStreams/{STREAM}"
    # The same events as Datastream's files, each table in commit order.
    for table, rows in changes.items():
        keys = {row["order_key"] for row in rows}
        events = events_of(output / "datastream_files" / table)
        assert [event.order_key[1:] for event in events] == [
            row["order_key"] for row in later if row["order_key"] in keys
        ]
        assert {event.stream_name for event in events} == {stream_name}

    # Two transactions of two changes each, and one of one.
    of_parquet = pyarrow.parquet.read_table(output / "parquet_transactions", partitioning=None)
    for found in (rows_of(reader.programs, "transactions"), of_parquet.to_pylist()):
        found.sort(key=lambda row: (row["release"], row["first_ordinal"]))
        assert [len(row["changes"]) for row in found] == [2, 2, 1]
        assert [
            (row["release"], change["ordinal"]) for row in found for change in row["changes"]
        ] == [_place(row) for row in later]


def published(stack, topic):
    """Return order key, release and table of every record of the ordered topic."""
    headers = [dict(message.headers()) for message in read_bytes(stack, topic)]
    return [
        (header[HEADER_ORDER], int(header["release"]), header["topic"].decode().rpartition(".")[2])
        for header in headers
    ]


def events_of(folder):
    """Return the events of an object's files, by path."""
    store, found = LocalStore(), []
    for file in all_files(store, str(folder)):
        with store.open(file.path) as stream:
            found += EventFile(file.path, stream)
    return found


def parquet_keys(output):
    """Return the order keys of the Parquet files that manifests name."""
    manifests = [json.loads(file.read_text()) for file in (output / "_releases").glob("0*.json")]
    folders = [
        sinks["parquet"]["path"]
        for manifest in manifests
        for sinks in manifest["tables"].values()
        if "parquet" in sinks
    ]
    return sorted(
        row["order_key"]
        for folder in folders
        for row in pyarrow.parquet.read_table(Path(output, folder), partitioning=None).to_pylist()
    )


def _place(row):
    return row["release"], row["ordinal"]
