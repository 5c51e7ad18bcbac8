"""What expires unread stops a stream partition until its loss is accepted; then changes go on."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time

import fastavro
import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.command_server import run_module
from tests.integration.shared_stack import open_shared_stack
from tidegate.local_stack.demo.bank_database import create_bank_database
from tidegate.local_stack.demo.churn import SimulatorControl
from tidegate.program.registry_http import HttpSchemaRegistry
from tidegate.schemas.progress import PartitionGap, SlotChanges, SlotProgress, StreamStarted
from tidegate.schemas.progress_decoder import ProgressDecoder
from tidegate.schemas.wire_format import unframe

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]

TABLE, STREAM = "Things", "Feed"
SLOTS = 4
PATIENCE_S = 120
DDL = [
    f"CREATE TABLE {TABLE} (Id INT64 NOT NULL, V INT64) PRIMARY KEY (Id)",
    f"CREATE CHANGE STREAM {STREAM} FOR {TABLE} OPTIONS (retention_period = '24h')",
]


class Fleet:
    """One worker as a process, the commands beside it, and what is in Kafka."""

    def __init__(self, stack):
        self.name = stack.database_name
        self.database = create_bank_database(self.name)
        self.database.update_ddl(DDL).result(timeout=PATIENCE_S)
        self.control = SimulatorControl(stack.control_address, self.name.path, STREAM)
        self._stack, self._folder = stack, stack.folder
        self.group = f"{stack.prefix}-fleet"
        self._registry = HttpSchemaRegistry(stack.registry_url, options={})
        self._decoder = ProgressDecoder(self._registry.schema)
        self._worker = None

    def _environment(self):
        settings = {
            "BOOTSTRAP_SERVERS": self._stack.bootstrap_servers,
            "REGISTRY_URL": self._stack.registry_url,
            "PROJECT": self.name.project,
            "INSTANCE": self.name.instance,
            "DATABASE": self.name.database,
            "CHANGE_STREAM": STREAM,
            "PREFIX": self._stack.prefix,
            "SLOTS": str(SLOTS),
            "TOPIC_PARTITIONS": "1",
            "SESSION_TIMEOUT_MS": "6000",
            "TRANSACTION_TIMEOUT_MS": "5000",
            "LOG_LEVEL": "debug",
            "WORKER": "w1",
            "SPANNER_EMULATOR_HOST": self._stack.spanner_address,
        }
        return {**os.environ, **{f"TIDEGATE_PRODUCER_{k}": v for k, v in settings.items()}}

    def start(self):
        with (self._folder / "w1.log").open("a") as log:
            self._worker = subprocess.Popen(
                [sys.executable, "-m", "tidegate.producer", "run"],
                env=self._environment(),
                stderr=log,
            )

    def kill(self):
        if self._worker is not None:
            self._worker.kill()
            self._worker.wait(PATIENCE_S)
            self._worker = None

    @property
    def story(self):
        return (self._folder / "w1.log").read_text()

    def run(self, *arguments):
        """Run a command; return its exit code, what it printed as JSON, and its stderr."""
        done = run_module(
            "tidegate.producer", *arguments, "--json",
            environ=self._environment(), timeout_s=PATIENCE_S,
        )  # fmt: skip
        return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr

    def accept(self, *arguments):
        return self.run("accept-gap", *arguments)

    def status(self):
        code, found, errors = self.run("status")
        assert code == 0, errors
        return found

    def until(self, condition):
        give_up_at = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < give_up_at, self.story[-3_000:]
            time.sleep(0.2)

    def write(self, version):
        """Commit a value that says which write it was."""
        with self.database.batch() as batch:
            batch.insert_or_update(TABLE, columns=("Id", "V"), values=[(version, version)])

    def expire(self):
        """Jump ahead by the retention period."""
        self.control._ask("/expire-retention")

    def published(self):
        """Return the versions in the data topic."""
        found = []
        for message in self._read(self._stack.topic(TABLE), 1):
            schema_id, body = unframe(message.value())
            schema = fastavro.parse_schema(self._registry.schema(schema_id))
            change = fastavro.schemaless_reader(io.BytesIO(body), schema, None)
            found.append(change["new_values"]["V"])
        return found

    def progress(self):
        """Return the progress records by slot, in the order of their offsets."""
        found = {slot: [] for slot in range(SLOTS)}
        for message in self._read(f"{self._stack.prefix}-progress", SLOTS):
            if message.value() is not None:
                body = self._decoder.decode(message.value()).body
                found[message.partition()].append(body)
        return found

    def has_begun(self):
        """Whether the stream's start is recorded: what was written before is not in it."""
        return any(isinstance(o, StreamStarted) for some in self.progress().values() for o in some)

    def gaps(self):
        """Return the recorded gaps by token; each stands before the heartbeat that passes it."""
        gaps = {}
        for found in self.progress().values():
            for place, body in enumerate(found):
                if isinstance(body, PartitionGap):
                    assert body.token not in gaps
                    gaps[body.token] = body
                    beats = (o for o in found[place:] if isinstance(o, SlotProgress | SlotChanges))
                    beat = next(beats)
                    described = beat.tokens if isinstance(beat, SlotProgress) else beat.added
                    (token,) = [one for one in described if one.token == body.token]
                    assert (token.watermark_us, token.stopped) == (body.until_us - 1, None)
        return gaps

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


@pytest.fixture
def fleet(kafka_and_registry, tmp_path):
    with open_shared_stack(kafka_and_registry, tmp_path, seed=3) as stack:
        made = Fleet(stack)
        try:
            yield made
        finally:
            made.kill()


@pytest.fixture
def away(fleet):
    """A fleet that has published a change and is away."""
    fleet.start()
    fleet.until(lambda: "slots assigned" in fleet.story)
    fleet.until(fleet.has_begun)
    fleet.write(0)
    fleet.until(lambda: fleet.published() == [0])
    fleet.kill()
    return fleet


def come_back_too_late(fleet):
    """Let what was committed expire, then start a worker, which can read nothing on."""
    time.sleep(1)
    fleet.expire()
    fleet.start()
    fleet.until(lambda: "stream partition stopped" in fleet.story)
    time.sleep(3)  # the others, and a heartbeat


@pytest.mark.rule("P6")
def test_what_expired_unread_is_accepted_once_and_changes_go_on_behind_it(away):
    fleet = away
    fleet.write(1)
    come_back_too_late(fleet)
    fleet.write(2)

    # Asked for while the worker runs, nothing is done.
    code, report, errors = fleet.accept("--all", "--dry-run")
    assert (code, report and report["accepted"]) == (0, False), errors
    assert all("lost_from" in one["reason"] for one in report["partitions"])
    assert all(one["stopped_since"] is not None for one in report["partitions"])
    code, _, errors = fleet.accept("--all", "--yes")
    assert (code, f"workers run in group {fleet.group}: w1" in errors) == (2, True), errors
    assert not fleet.gaps()

    # Accepted, once.
    fleet.kill()
    code, report, errors = fleet.accept("--all", "--yes", "--by", "the test")
    assert (code, report and report["accepted"]) == (0, True), errors
    tokens = {one["token"] for one in report["partitions"]}
    gaps = fleet.gaps()
    assert set(gaps) == tokens
    assert {gap.accepted_by for gap in gaps.values()} == {"the test"}
    code, _, errors = fleet.accept("--all", "--yes")
    assert (code, "`accept-gap` is refused: the stream is Paused" in errors) == (2, True), errors

    fleet.start()
    fleet.until(lambda: fleet.published() == [0, 2])
    fleet.write(3)
    fleet.until(lambda: fleet.published() == [0, 2, 3])
    status = fleet.status()
    assert {gap["token"] for gap in status["gaps"]} == tokens
    assert {one["condition"] for one in status["partitions"]} == {"open"}
    assert status["watermark_us"] > max(gap.until_us for gap in gaps.values())


def test_one_that_has_ended_in_the_gap_cannot_be_gone_on_with(away):
    fleet = away
    fleet.control.split()
    fleet.write(1)
    come_back_too_late(fleet)
    fleet.kill()

    code, _, errors = fleet.accept("--token", "nobody", "--yes")
    assert (code, "no such stream partition" in errors) == (2, True), errors
    code, _, errors = fleet.accept("--all", "--yes")
    assert code == 2
    assert "ended within the changes" in errors
    assert "new epoch" in errors
    assert not fleet.gaps()
