"""Changes that cannot be published are parked with their keys, and put back once they can be."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from datetime import UTC, datetime

import fastavro
import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from tests.command_server import run_module
from tidegate.local_stack.config import load_config
from tidegate.local_stack.demo.bank_database import create_bank_database
from tidegate.local_stack.demo.churn import SimulatorControl
from tidegate.local_stack.parts.database_name import DatabaseName
from tidegate.local_stack.parts.stack import LocalStack
from tidegate.program.registry_http import HttpSchemaRegistry
from tidegate.schemas.wire_format import unframe

pytestmark = [pytest.mark.integration, pytest.mark.slow]

PREFIX, TABLE, STREAM = "parking", "Things", "Feed"
TOPIC, DEAD_LETTER = f"{PREFIX}.{TABLE}", f"{PREFIX}-dead-letter"
PARTS = ("key", "value")
TOPIC_PARTITIONS = 2
IDS = range(12)
TOO_LARGE, TOO_EXACT = 3, 7
"""The rows that get a value which is beyond the topic's limit, or has nanoseconds."""
SMALL_LIMIT, LARGE_LIMIT = 3_000, 100_000
PATIENCE_S = 120
DDL = [
    f"CREATE TABLE {TABLE} (Id INT64 NOT NULL, V STRING(MAX), Seen TIMESTAMP) PRIMARY KEY (Id)",
    f"CREATE CHANGE STREAM {STREAM} FOR {TABLE} OPTIONS (value_capture_type = 'NEW_ROW')",
]

LATER_DDL = [
    f"ALTER TABLE {TABLE} ADD COLUMN Later INT64",
    "CREATE TABLE Others (Id INT64) PRIMARY KEY (Id)",
    f"ALTER CHANGE STREAM {STREAM} SET FOR {TABLE}, Others",
]
"""What a worker that starts afterwards has to create a topic and schemas for."""


class Fleet:
    """Workers as processes, the rows they publish, and what is where."""

    def __init__(self, stack, folder):
        self.name = DatabaseName(address=stack.spanner_address)
        self.database = create_bank_database(self.name)
        self.database.update_ddl(DDL).result(timeout=PATIENCE_S)
        self.control = SimulatorControl(stack.control_address, self.name.path, STREAM)
        self.admin = AdminClient({"bootstrap.servers": stack.bootstrap_servers})
        self._begin = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        self.committed = defaultdict(list)
        """Row -> the values of V that it got, in order."""
        self._stack, self._folder = stack, folder
        self._registry = HttpSchemaRegistry(stack.registry_url, options={})
        self._workers = {}

    # ------------------------------------------------------------ programs

    def _environment(self, **more):
        settings = {
            "BOOTSTRAP_SERVERS": self._stack.bootstrap_servers,
            "REGISTRY_URL": self._stack.registry_url,
            "PROJECT": self.name.project,
            "INSTANCE": self.name.instance,
            "DATABASE": self.name.database,
            "CHANGE_STREAM": STREAM,
            "START": self._begin,
            "PREFIX": PREFIX,
            "SLOTS": "4",
            "TOPIC_PARTITIONS": str(TOPIC_PARTITIONS),
            "SESSION_TIMEOUT_MS": "6000",
            "TRANSACTION_TIMEOUT_MS": "5000",
            "POISON": "park",
            "LOG_LEVEL": "debug",
            "SPANNER_EMULATOR_HOST": self._stack.spanner_address,
            **more,
        }
        return {**os.environ, **{f"TIDEGATE_PRODUCER_{k}": v for k, v in settings.items()}}

    def start(self, worker):
        with self.log(worker).open("a") as log:
            self._workers[worker] = subprocess.Popen(
                [sys.executable, "-m", "tidegate.producer", "run"],
                env=self._environment(WORKER=worker),
                stderr=log,
            )

    def kill(self, *workers):
        for worker in workers or tuple(self._workers):
            self._workers.pop(worker).kill()

    def end(self):
        """End the workers, and drop the client."""
        self.kill()
        del self.admin

    def log(self, name):
        return self._folder / f"{name}.log"

    def redrive(self, *arguments):
        """Run a redrive; return its exit code and its report, None if there is none."""
        command = ("tidegate.producer", "redrive", "--json", *arguments)
        done = run_module(*command, environ=self._environment(), timeout_s=PATIENCE_S)
        self.log("redrive").write_text(done.stderr)
        return done.returncode, json.loads(done.stdout) if done.stdout else None

    def redrive_until(self, step):
        """Kill a redrive at a step; return its exit code."""
        with subprocess.Popen(
            [sys.executable, "-m", "tidegate.producer", "redrive", "--json"],
            env=self._environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            # Read as it is written: the step is over in a moment.
            lines = []
            for line in process.stderr:
                lines.append(line)
                if f'"step": "{step}"' in line:
                    process.kill()
                    break
            self.log("redrive").write_text("".join(lines))
        return process.returncode

    def until(self, condition, story=lambda: ""):
        give_up_at = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < give_up_at, story()
            time.sleep(0.1)

    # ------------------------------------------------------------ rows

    def write(self, version, *ids, pad=0, at="2024-01-02T03:04:05.678901Z"):
        """Commit a new value for each row."""
        rows = [(number, f"{version}:{'x' * pad}", at) for number in ids]
        with self.database.batch() as batch:
            batch.insert_or_update(TABLE, columns=("Id", "V", "Seen"), values=rows)
        for number in ids:
            self.committed[number].append(version)

    def limit(self, size):
        """Set the data topic's limit."""
        entry = ConfigEntry(
            "max.message.bytes", str(size), incremental_operation=AlterConfigOpType.SET
        )
        resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[entry])
        self.admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)

    # ------------------------------------------------------------ topics

    def created(self):
        """Return the topics, and the subjects with their versions."""
        subjects = [f"{PREFIX}.{table}-{part}" for table in (TABLE, "Others") for part in PARTS]
        versions = {subject: self._registry.versions(subject) for subject in subjects}
        return set(self.admin.list_topics(timeout=PATIENCE_S).topics), versions

    def published(self):
        """Return, for each row, (order key, version, whether it was put back), in log order."""
        found = defaultdict(list)
        for message in self._read(TOPIC, TOPIC_PARTITIONS):
            headers = dict(message.headers())
            number, version = self._decoded(message.key(), message.value())
            found[number].append((headers["order"], version, "redriven" in headers))
        return found

    def parked(self):
        """Return, for each row, (order key, version, reason) of what waits, in log order."""
        found = defaultdict(list)
        for message in self._read(DEAD_LETTER, 1):
            headers = {name: content or b"" for name, content in message.headers()}
            assert headers["topic"].decode() == TOPIC
            number = self._avro(message.key())["Id"]
            if headers["form"] == b"redriven":
                assert message.value() is None
                found[number] = [one for one in found[number] if one[0] > headers["order"]]
                continue
            if headers["form"] == b"record":
                (mod,) = json.loads(message.value())["mods"]
                value = mod["new_values"]["V"]
                assert mod["keys"] == {"Id": str(number)}
            else:
                value = self._avro(message.value())["new_values"]["V"]
            version = int(value.partition(":")[0])
            found[number].append((headers["order"], version, headers["reason"].decode()))
        return found

    def everything(self):
        """Return, for each row, the versions that are published or parked, by order key."""
        found = defaultdict(list)
        for place in (self.published(), self.parked()):
            for number, changes in place.items():
                assert changes == sorted(changes), "out of order"
                found[number] += changes
        return {number: [one[1] for one in sorted(changes)] for number, changes in found.items()}

    def _read(self, topic, topic_partitions):
        reader = Consumer(
            {
                "bootstrap.servers": self._stack.bootstrap_servers,
                "group.id": "reader",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )
        left = set(range(topic_partitions))
        reader.assign([TopicPartition(topic, number, 0) for number in left])
        try:
            while left:
                message = reader.poll(PATIENCE_S)
                assert message is not None
                if message.error() is None:
                    yield message
                else:
                    assert message.error().code() == KafkaError._PARTITION_EOF
                    left.discard(message.partition())
        finally:
            reader.close()

    def _decoded(self, key, value):
        number = self._avro(key)["Id"]
        return number, int(self._avro(value)["new_values"]["V"].partition(":")[0])

    def _avro(self, framed):
        schema_id, body = unframe(framed)
        schema = fastavro.parse_schema(self._registry.schema(schema_id))
        return fastavro.schemaless_reader(io.BytesIO(body), schema, None)


@pytest.fixture
def fleet(tmp_path):
    with LocalStack(load_config(data_dir=tmp_path / "stack", seed=3)) as stack:
        made = Fleet(stack, tmp_path)
        settings = {"max.message.bytes": str(SMALL_LIMIT)}
        topic = NewTopic(TOPIC, TOPIC_PARTITIONS, 1, config=settings)
        made.admin.create_topics([topic])[TOPIC].result(PATIENCE_S)
        try:
            yield made
        finally:
            made.end()


def test_poison_changes_are_parked_with_their_keys_and_put_back_once(fleet):
    for worker in ("w1", "w2"):
        fleet.start(worker)
        fleet.until(
            lambda worker=worker: "slots assigned" in fleet.log(worker).read_text(),
            lambda worker=worker: fleet.log(worker).read_text()[-3_000:],
        )
    fleet.write(0, *IDS)
    fleet.until(lambda: len(fleet.published()) == len(IDS))

    # Poison, then later changes of all rows, through splits, a merge and a killed worker.
    fleet.write(1, TOO_LARGE, pad=2 * SMALL_LIMIT)
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
        time.sleep(0.5)
    fleet.until(
        lambda: fleet.everything() == fleet.committed,
        lambda: f"{fleet.everything()}\n{fleet.log('w2').read_text()[-3_000:]}",
    )
    parked, published = fleet.parked(), fleet.published()
    assert set(parked) == {TOO_LARGE, TOO_EXACT}
    for number, reason in ((TOO_LARGE, "MessageTooLarge"), (TOO_EXACT, "SchemaError")):
        assert [one[1] for one in published[number]] == [0]
        assert [one[2] for one in parked[number]] == [reason] + ["KeyParked"] * 8
    assert '"event": "change parked"' in "".join(fleet.log(w).read_text() for w in ("w1", "w2"))

    # Nothing is put back while a worker runs; then nothing by a redrive that is killed.
    code, _ = fleet.redrive()
    assert code == 2
    assert "workers run in group parking-fleet: w" in fleet.log("redrive").read_text()
    fleet.kill()
    fleet.limit(LARGE_LIMIT)
    fleet.database.update_ddl(LATER_DDL).result(timeout=PATIENCE_S)
    before = fleet.created()
    code, report = fleet.redrive("--dry-run")
    assert (code, report["changes"]) == (1, {TOPIC: 9})
    assert fleet.parked() == parked
    assert fleet.created() == before
    for step in ("publish", "fence"):
        code = fleet.redrive_until(step)
        assert code == -signal.SIGKILL, fleet.log("redrive").read_text()[-3_000:]

    code, report = fleet.redrive()
    assert code == 1, fleet.log("redrive").read_text()[-3_000:]
    if report["changes"]:  # else one that was killed had just committed
        assert (report["changes"], report["keys"]) == ({TOPIC: 9}, {TOPIC: 1})
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
    fleet.until(
        lambda: fleet.everything() == fleet.committed,
        lambda: f"{fleet.everything()}\n{fleet.log('w1').read_text()[-3_000:]}",
    )
    assert fleet.published()[TOO_LARGE][-1][1:] == (10, False)
    assert len(fleet.parked()[TOO_EXACT]) == 10
    fleet.kill()
    before = fleet.published()
    code, report = fleet.redrive()
    assert (code, report["changes"], len(report["left"])) == (1, {}, 1)
    code, report = fleet.redrive("--table", TABLE, "--dry-run")
    assert (code, report["changes"]) == (1, {})
    assert fleet.published() == before
