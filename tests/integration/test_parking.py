"""Changes that cannot be published: the worker names them and stops their keys' partition or parks
them, nothing is lost, and they come out once they can.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import replace

import fastavro
import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from spanner_simulator.core.schema.information_schema import rows as schema_rows
from spanner_simulator.server.encoding import change_rows_struct

from tests.integration.shared_stack import (
    PATIENCE_S,
    now,
    read_bytes,
    read_published,
    run_producer,
    running,
    until,
)
from tidegate.local_stack.demo.pipeline import Pipeline
from tidegate.program.registry_http import HttpSchemaRegistry
from tidegate.schemas.progress import TableAdded
from tidegate.schemas.progress_decoder import ProgressDecoder
from tidegate.schemas.wire_format import unframe

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]

TABLE = "Things"
TOPIC_PARTITIONS = 2
IDS = range(12)
TOO_LARGE, TOO_EXACT = 3, 7
"""The rows that get a value which is beyond the topic's limit, or has nanoseconds."""
SMALL_LIMIT, LARGE_LIMIT = 3_000, 100_000
AT = "2024-01-02T03:04:05.678901Z"
DDL = [
    f"CREATE TABLE {TABLE} (Id INT64 NOT NULL, V STRING(MAX), Seen TIMESTAMP) PRIMARY KEY (Id)",
    "CREATE CHANGE STREAM Feed FOR ALL OPTIONS (value_capture_type = 'NEW_ROW')",
]
LATER_DDL = [
    f"ALTER TABLE {TABLE} ADD COLUMN Later INT64",
    "CREATE TABLE Others (Id INT64) PRIMARY KEY (Id)",
]
"""What a worker that starts afterwards has to create a topic and schemas for."""


class Fleet:
    """Workers as processes, the rows they publish, and what is where."""

    def __init__(self, stack, **settings):
        self.stack, self.topic = stack, stack.topic(TABLE)
        self.dead_letter = f"{stack.prefix}-dead-letter"
        self.database = stack.create_database(DDL)
        self.control = stack.control()
        self.admin = AdminClient({"bootstrap.servers": stack.bootstrap_servers})
        self.start_at = now()
        self.programs = stack.programs(
            PRODUCER_SLOTS=4,
            PRODUCER_TOPIC_PARTITIONS=TOPIC_PARTITIONS,
            PRODUCER_SESSION_TIMEOUT_MS=6000,
            PRODUCER_TRANSACTION_TIMEOUT_MS=5000,
            **settings,
        )
        self.committed = defaultdict(list)
        """Row -> the values of V that it got, in order."""
        self._registry = HttpSchemaRegistry(stack.registry_url, options={})
        self._workers = {}

    # ------------------------------------------------------------ programs

    def start(self, name):
        self._workers[name] = worker = self.programs.worker(name, start=self.start_at)
        worker.start()

    def kill(self, *names):
        for name in names or tuple(self._workers):
            self._workers.pop(name).kill()

    def log(self, name="w1"):
        path = self.programs.folder / "logs" / f"{name}.log"
        return path.read_text() if path.exists() else ""

    def until(self, condition):
        until(condition, lambda: f"{self.everything()}\n{self.log()[-3_000:]}")

    def redrive(self, *arguments):
        """Run a redrive; return its exit code, its report, None if there is none, and its log."""
        done = run_producer(self.programs, "redrive", "--json", *arguments)
        return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr

    def redrive_until(self, step):
        """Kill a redrive at a step; return its exit code."""
        spec = self.programs.worker("redrive", start=self.start_at).spec
        with subprocess.Popen(
            [sys.executable, "-m", "tidegate.producer", "redrive", "--json"],
            env=spec.environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            # Read as it is written: the step is over in a moment.
            for line in process.stderr:
                if f'"step": "{step}"' in line:
                    process.kill()
                    break
        return process.returncode

    # ------------------------------------------------------------ rows

    def write(self, version, *ids, text="", at=AT):
        """Commit a new value for each row, in one transaction."""
        with self.database.batch() as batch:
            rows = [(number, f"{version}:{text}", at) for number in ids]
            batch.insert_or_update(TABLE, columns=("Id", "V", "Seen"), values=rows)
        for number in ids:
            self.committed[number].append(version)

    def limit(self, size):
        """Set the data topic's limit."""
        entry = ConfigEntry(
            "max.message.bytes", str(size), incremental_operation=AlterConfigOpType.SET
        )
        resource = ConfigResource(ResourceType.TOPIC, self.topic, incremental_configs=[entry])
        self.admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)

    # ------------------------------------------------------------ topics

    def created(self):
        """Return the topics, and the subjects with their versions."""
        subjects = [
            f"{self.stack.topic(table)}-{part}"
            for table in (TABLE, "Others")
            for part in ("key", "value")
        ]
        return self.stack.topics(), {
            subject: self._registry.versions(subject) for subject in subjects
        }

    def published(self):
        """Return, for each row, (order key, version, whether it was put back), in log order."""
        found = defaultdict(list)
        for message in self._read(self.topic):
            headers = dict(message.headers())
            version = self._version(self._avro(message.value()))
            number = self._avro(message.key())["Id"]
            found[number].append((headers["order"], version, "redriven" in headers))
        return found

    def parked(self):
        """Return, for each row, (order key, version, reason) of what waits, in log order."""
        found = defaultdict(list)
        for message in self._read(self.dead_letter):
            headers = {name: content or b"" for name, content in message.headers()}
            assert headers["topic"].decode() == self.topic
            number = self._avro(message.key())["Id"]
            if headers["form"] == b"redriven":
                assert message.value() is None
                found[number] = [one for one in found[number] if one[0] > headers["order"]]
                continue
            if headers["form"] == b"record":
                (mod,) = json.loads(message.value())["mods"]
                assert mod["keys"] == {"Id": str(number)}
            else:
                mod = self._avro(message.value())
            found[number].append((headers["order"], self._version(mod), headers["reason"].decode()))
        return found

    def everything(self):
        """Return, for each row, the versions that are published or parked, by order key."""
        found = defaultdict(list)
        for place in (self.published(), self.parked()):
            for number, changes in place.items():
                assert changes == sorted(changes), "out of order"
                found[number] += changes
        return {
            number: [change[1] for change in sorted(changes)] for number, changes in found.items()
        }

    def _read(self, topic):
        return read_bytes(self.stack, topic) if topic in self.stack.topics() else []

    def _version(self, change):
        return int(change["new_values"]["V"].partition(":")[0])

    def _avro(self, framed):
        schema_id, body = unframe(framed)
        schema = fastavro.parse_schema(self._registry.schema(schema_id))
        return fastavro.schemaless_reader(io.BytesIO(body), schema, None)


@contextmanager
def fleet_on(stack, *, limit, **settings):
    """Yield a fleet whose topic has a limit."""
    made = Fleet(stack, **settings)
    new = NewTopic(made.topic, TOPIC_PARTITIONS, 1, config={"max.message.bytes": str(limit)})
    made.admin.create_topics([new])[made.topic].result(PATIENCE_S)
    try:
        yield made
    finally:
        made.kill()
        del made.admin


def test_poison_changes_are_parked_with_their_keys_and_put_back_once(shared_stack):
    with fleet_on(shared_stack, limit=SMALL_LIMIT, PRODUCER_POISON="park") as fleet:
        for worker in ("w1", "w2"):
            fleet.start(worker)
            until(lambda worker=worker: "slots assigned" in fleet.log(worker))
        fleet.write(0, *IDS)
        fleet.until(lambda: len(fleet.published()) == len(IDS))
        poison_is_parked_through_splits_a_merge_and_a_killed_worker(fleet)
        a_redrive_is_refused_beside_workers_and_may_be_killed(fleet)
        a_redrive_puts_back_what_can_be_published(fleet)


def poison_is_parked_through_splits_a_merge_and_a_killed_worker(fleet):
    fleet.write(1, TOO_LARGE, text="x" * (2 * SMALL_LIMIT))
    fleet.write(1, TOO_EXACT, at="2024-01-02T03:04:05.678901234Z")
    for version in range(2, 10):
        fleet.write(version, *IDS)
        if version % 3 == 2:
            fleet.control.split()
        if version == 5:
            fleet.kill("w1")
        if version == 7:
            fleet.control.merge()
            fleet.start("w1")
        time.sleep(0.3)
    fleet.until(lambda: fleet.everything() == fleet.committed)
    parked, published = fleet.parked(), fleet.published()
    assert set(parked) == {TOO_LARGE, TOO_EXACT}
    for number, reason in ((TOO_LARGE, "MessageTooLarge"), (TOO_EXACT, "SchemaError")):
        assert [one[1] for one in published[number]] == [0]
        assert [one[2] for one in parked[number]] == [reason] + ["KeyParked"] * 8
    assert '"event": "change parked"' in fleet.log("w1") + fleet.log("w2")


def a_redrive_is_refused_beside_workers_and_may_be_killed(fleet):
    code, _, log = fleet.redrive()
    assert code == 2
    assert f"workers run in group {fleet.stack.prefix}-fleet: w" in log
    fleet.kill()
    fleet.limit(LARGE_LIMIT)
    fleet.database.update_ddl(LATER_DDL).result(timeout=PATIENCE_S)
    before, parked = fleet.created(), fleet.parked()
    code, report, _ = fleet.redrive("--dry-run")
    assert (code, report["changes"]) == (1, {fleet.topic: 9})
    assert fleet.parked() == parked
    assert fleet.created() == before
    for step in ("publish", "fence"):
        assert fleet.redrive_until(step) == -signal.SIGKILL


def a_redrive_puts_back_what_can_be_published(fleet):
    code, report, log = fleet.redrive()
    assert code == 1, log[-3_000:]
    if report["changes"]:  # else one that was killed had just committed
        assert (report["changes"], report["keys"]) == ({fleet.topic: 9}, {fleet.topic: 1})
    (left,) = report["left"]
    assert (left["key"], left["changes"], left["reason"]) == ('{"Id": 7}', 9, "SchemaError")
    assert fleet.everything() == fleet.committed
    assert [one[1:] for one in fleet.published()[TOO_LARGE]] == [
        (version, version > 0) for version in range(10)
    ]
    assert set(fleet.parked()) - {TOO_LARGE} == {TOO_EXACT}
    assert not fleet.parked()[TOO_LARGE]

    # The key goes on where it was, the other one stays parked; a second redrive does nothing.
    fleet.start("w1")
    fleet.write(10, *IDS)
    fleet.until(lambda: fleet.everything() == fleet.committed)
    assert fleet.published()[TOO_LARGE][-1][1:] == (10, False)
    assert len(fleet.parked()[TOO_EXACT]) == 10
    fleet.kill()
    before = fleet.published()
    code, report, _ = fleet.redrive()
    assert (code, report["changes"], len(report["left"])) == (1, {}, 1)
    code, report, _ = fleet.redrive("--table", TABLE, "--dry-run")
    assert (code, report["changes"]) == (1, {})
    assert fleet.published() == before


# ---------------------------------------------------------------- without parking


@pytest.mark.rule("P6")
def test_a_row_beyond_the_limit_is_named_and_comes_out_once_it_is_raised(shared_stack):
    """And a limit that is raised, or lowered, under a running worker is found."""
    with fleet_on(shared_stack, limit=1_048_588, PRODUCER_WORKER="w1") as fleet:
        fleet.start("w1")
        fleet.write(0, 1)
        fleet.until(lambda: fleet.everything() == fleet.committed)
        fleet.write(1, 1, text="x" * 1_100_000)
        fleet.write(2, 1)
        fleet.until(lambda: "stream partition stopped" in fleet.log())
        log = fleet.log()
        assert "a record is larger than its topic takes" in log
        assert f"topic='{fleet.topic}'" in log
        assert "key='Id=1" in log
        assert "size_bytes=110" in log
        assert "limit_bytes=1048588" in log
        assert "commit_timestamp_us=" in log
        assert "Traceback" not in log
        assert fleet.everything() == {1: [0]}

        fleet.limit(2_000_000)
        fleet.kill()
        fleet.start("w1")
        fleet.until(lambda: fleet.everything() == fleet.committed)
        fleet.limit(3_000_000)
        fleet.write(3, 1, text="x" * 2_100_000)
        fleet.until(lambda: fleet.everything() == fleet.committed)
        # Each change fits; the batch that the client makes of them does not.
        fleet.limit(3_000)
        with fleet.database.batch() as batch:  # what does not compress
            rows = [(number, f"4:{os.urandom(250).hex()}", AT) for number in range(100, 160)]
            batch.insert(TABLE, ("Id", "V", "Seen"), rows)
        fleet.committed.update({number: [4] for number in range(100, 160)})
        fleet.until(lambda: fleet.everything() == fleet.committed)
        assert '"failure": "MSG_SIZE_TOO_LARGE"' in fleet.log()


# ---------------------------------------------------------------- topics of later tables

LATER = "CREATE TABLE Later (Region STRING(9), Id INT64, V STRING(9)) PRIMARY KEY (Id, Region)"


@pytest.fixture
def bare(shared_stack):
    """A database with a stream over tables that come later, and its programs."""
    database = shared_stack.create_database(["CREATE CHANGE STREAM Feed FOR ALL"])
    return shared_stack, database, shared_stack.programs(PRODUCER_SLOTS=4)


def insert(database, table, columns, *rows):
    with database.batch() as batch:
        batch.insert(table, columns, rows)


def recorded_tables(stack):
    """Return the topics that slot 0 has a `TableAdded` for, in its order."""
    decoder = ProgressDecoder(HttpSchemaRegistry(stack.registry_url).schema)
    messages = [
        one for one in read_bytes(stack, f"{stack.prefix}-progress") if one.partition() == 0
    ]
    bodies = [
        decoder.decode(message.value()).body for message in messages if message.value() is not None
    ]
    return [body.topic for body in bodies if isinstance(body, TableAdded)]


@pytest.mark.rule("spanner-column-types")
def test_a_table_comes_and_goes(bare):
    """Below a running fleet, and around a restart of it."""
    stack, database, programs = bare
    start, columns = now(), ("Region", "Id", "V")

    def rows(pipeline, count):
        published = read_published(stack, pipeline, stack.topic("Later"), count=count)
        return sorted(
            (tuple(one.key().items()), one.value()["new_values"]["V"], one.headers()[1][1])
            for one in published
        )

    first = ((("Id", 1), ("Region", "eu")), "one", b"I")
    second = ((("Id", 2), ("Region", "us")), "two", b"I")
    with running(programs, 2, start=start) as pipeline:
        database.update_ddl([LATER]).result(PATIENCE_S)
        insert(database, "Later", columns, ("eu", 1, "one"))
        assert rows(pipeline, 1) == [first]
        tables = recorded_tables(stack)
        assert {table.topic for table in tables} == {stack.topic("Later")}
        assert len(set(tables)) == 1
    insert(database, "Later", columns, ("us", 2, "two"))
    database.update_ddl(["DROP TABLE Later"]).result(PATIENCE_S)
    with running(programs, 2, start=start) as pipeline:
        assert rows(pipeline, 2) == [first, second]
        assert recorded_tables(stack) == tables


@pytest.mark.rule("spanner-unknown-type")
def test_a_type_that_is_not_known_concerns_only_its_table(bare, monkeypatch):
    """It appears while a fleet runs, which is then restarted; Spanner has no such type yet."""

    def types(columns):
        """Name the type of columns `Odd` by a number, as JSON has an enum that has no name."""
        return encode([
            replace(one, type_json='{"code":99}') if one.name == "Odd" else one for one in columns
        ])  # fmt: skip

    def column(catalogue, table, found):
        shown = describe(catalogue, table, found)
        return shown | ({"spanner_type": "VECTOR<3>"} if found.name == "Odd" else {})

    encode, describe = change_rows_struct._types, schema_rows._column
    monkeypatch.setattr(change_rows_struct, "_types", types)
    monkeypatch.setattr(schema_rows, "_column", column)
    stack, database, programs = bare
    programs = replace(programs, more={**programs.more, "TIDEGATE_PRODUCER_POISON": "park"})
    known, strange = stack.topic("Known"), stack.topic("Strange")
    database.update_ddl(["CREATE TABLE Known (Id INT64) PRIMARY KEY (Id)"]).result(PATIENCE_S)
    start = now()

    def ids(pipeline, count):
        published = read_published(stack, pipeline, known, count=count)
        return [one.key()["Id"] for one in published]

    with running(programs, 2, start=start) as pipeline:
        insert(database, "Known", ("Id",), (1,))
        ddl = ["CREATE TABLE Strange (Id INT64, Odd FLOAT64) PRIMARY KEY (Id)"]
        database.update_ddl(ddl).result(PATIENCE_S)
        insert(database, "Strange", ("Id", "Odd"), (1, 1.5))
        insert(database, "Known", ("Id",), (2,))
        assert sorted(ids(pipeline, 2)) == [1, 2]
    checked = run_producer(programs, "check")
    assert checked.returncode == 0, checked.stderr
    with running(programs, 2, start=start) as pipeline:
        insert(database, "Strange", ("Id", "Odd"), (2, 2.5))
        insert(database, "Known", ("Id",), (3,))
        assert sorted(ids(pipeline, 3)) == [1, 2, 3]
        parked = read_bytes(stack, f"{stack.prefix}-dead-letter", count=2)
    assert {dict(one.headers())["topic"] for one in parked} == {strange.encode()}
    assert read_bytes(stack, strange) == []  # a restart makes it, without the column


def test_a_later_table_whose_topic_kafka_refuses_concerns_only_its_changes(bare):
    """Kafka treats `.` and `_` as the same; parking lets the others go on."""
    stack, database, programs = bare
    start = now()
    with running(programs, start=start) as pipeline:
        statements = [
            "CREATE SCHEMA shop",
            "CREATE TABLE shop.Items (Id INT64) PRIMARY KEY (Id)",
            "CREATE TABLE shop_Items (Id INT64) PRIMARY KEY (Id)",
        ]
        database.update_ddl(statements).result(PATIENCE_S)
        topic = stack.topic("shop.Items")
        insert(database, "shop.Items", ("Id",), (1,))
        read_published(stack, pipeline, topic, count=1)
        insert(database, "shop_Items", ("Id",), (1,))
        pipeline.wait(
            lambda: f"{stack.topic('shop_Items')}: Topic" in pipeline.log_tails(),
            what="the refusal", deadline_s=PATIENCE_S,
        )  # fmt: skip
    parking = stack.programs(PRODUCER_SLOTS=4, PRODUCER_POISON="park")
    with running(parking, start=start) as pipeline:
        insert(database, "shop_Items", ("Id",), (2,))
        insert(database, "shop.Items", ("Id",), (2,))
        assert len(read_published(stack, pipeline, topic, count=2)) == 2
        dead = read_bytes(stack, f"{stack.prefix}-dead-letter", count=2)
        assert {dict(one.headers())["reason"] for one in dead} == {b"TopicRefused"}


def test_a_later_topic_that_grows_stops_every_worker(bare):
    """Also the one that has read no change of the table, and whatever is inserted meanwhile."""
    stack, database, programs = bare
    topic, pipeline = stack.topic("Later"), Pipeline(programs)
    try:
        pipeline.start_workers(2, start=now())
        database.update_ddl([LATER]).result(PATIENCE_S)
        insert(database, "Later", ("Region", "Id"), ("eu", 1))
        read_published(stack, pipeline, topic, count=1)
        (table,) = set(recorded_tables(stack))
        admin = AdminClient({"bootstrap.servers": stack.bootstrap_servers})
        more = NewPartitions(topic, table.topic_partitions + 1)
        admin.create_partitions([more])[topic].result(PATIENCE_S)
        workers, numbers = list(pipeline.workers), itertools.count(2)

        def have_ended():
            insert(database, "Later", ("Region", "Id"), ("eu", next(numbers)))
            return all(worker.process.exit_code is not None for worker in workers)

        until(have_ended, pipeline.log_tails)
    finally:
        pipeline.stop()
    assert [worker.process.exit_code for worker in workers] == [2, 2]
    for worker in workers:
        grown = f"topic {topic} had {table.topic_partitions} topic partitions"
        tail = worker.process.log_tail(20)
        # One that meets the table only now compares the topic with what is recorded of it.
        assert grown in tail or f"topic {topic}: recorded is" in tail
    content = read_bytes(stack, topic)
    assert table.topic_partitions not in {message.partition() for message in content}
