"""Records that a real broker does not take: the worker names them, and nothing is lost."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from datetime import UTC, datetime

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)

from tidegate.local_stack.config import load_config
from tidegate.local_stack.demo.bank import ACCOUNT_COLUMNS, ACCOUNTS, STREAM
from tidegate.local_stack.demo.bank_database import create_bank_database
from tidegate.local_stack.parts import kafka_broker
from tidegate.local_stack.parts.database_name import DatabaseName
from tidegate.local_stack.parts.stack import LocalStack

pytestmark = pytest.mark.integration

PATIENCE_S = 120
AUTHORIZER = """
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
allow.everyone.if.no.acl.found=true
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    """A stack whose broker has an authorizer; without ACLs everybody may do everything."""
    config = load_config(data_dir=tmp_path_factory.mktemp("stack"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kafka_broker, "SETTINGS", kafka_broker.SETTINGS + AUTHORIZER)
        with LocalStack(config) as running:
            yield running


@pytest.fixture(scope="module")
def bank(stack):
    """The bank's database, by the official client."""
    return create_bank_database(DatabaseName(address=stack.spanner_address))


class Fleet:
    """One worker at a time over a prefix of its own, and what it writes."""

    def __init__(self, stack, bank, prefix, logs):
        self.topic = f"{prefix}.{ACCOUNTS}"
        self.admin = AdminClient({"bootstrap.servers": stack.bootstrap_servers})
        self._stack, self._bank, self._prefix, self._logs = stack, bank, prefix, logs
        self._mark = uuid.uuid4().hex[:8]
        """Begins the keys of this fleet's own accounts."""
        self._begin = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        """Before the first row: a stream that begins "now" may begin after it."""
        self._worker = None

    def start(self):
        """Start the worker; return when it reads."""
        name = DatabaseName(address=self._stack.spanner_address)
        settings = {
            "BOOTSTRAP_SERVERS": self._stack.bootstrap_servers,
            "REGISTRY_URL": self._stack.registry_url,
            "PROJECT": name.project,
            "INSTANCE": name.instance,
            "DATABASE": name.database,
            "CHANGE_STREAM": STREAM,
            "START": self._begin,
            "PREFIX": self._prefix,
            "SLOTS": "2",
            "TOPIC_PARTITIONS": "1",
            "SPANNER_EMULATOR_HOST": self._stack.spanner_address,
        }
        with self._logs.open("w") as log:
            self._worker = subprocess.Popen(
                [sys.executable, "-m", "tidegate.producer", "run"],
                env={**os.environ, **{f"TIDEGATE_PRODUCER_{k}": v for k, v in settings.items()}},
                stderr=log,
            )
        self.until(lambda: "slots assigned" in self.log)

    def restart(self):
        """Kill the worker, and start it again."""
        self._worker.kill()
        self._worker.wait(PATIENCE_S)
        self.start()

    def insert(self, *owners):
        """Commit an account for each owner, in one transaction."""
        first = time.monotonic_ns()
        rows = [(f"{self._mark}-{first + n}", owner, 1, 0) for n, owner in enumerate(owners)]
        with self._bank.batch() as batch:
            batch.insert(ACCOUNTS, columns=ACCOUNT_COLUMNS, values=rows)

    def stopped(self):
        """Wait until the worker ended; return (exit code, seconds, standard error)."""
        began = time.monotonic()
        code = self._worker.wait(PATIENCE_S)
        return code, time.monotonic() - began, self.log

    def limit(self, size):
        """Set the topic's limit."""
        entry = ConfigEntry(
            "max.message.bytes", str(size), incremental_operation=AlterConfigOpType.SET
        )
        resource = ConfigResource(ResourceType.TOPIC, self.topic, incremental_configs=[entry])
        self.admin.incremental_alter_configs([resource])[resource].result(30)

    def published(self):
        """Return the sizes of the committed changes of this prefix's own accounts, in order."""
        reader = Consumer(
            {
                "bootstrap.servers": self._stack.bootstrap_servers,
                "group.id": "reader",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "max.partition.fetch.bytes": 10_000_000,
            }
        )
        reader.assign([TopicPartition(self.topic, 0, 0)])
        sizes = []
        while True:
            message = reader.poll(PATIENCE_S)
            assert message is not None
            if message.error() is None:
                if self._mark.encode() in message.key():
                    sizes.append(len(message.value()))
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF
                reader.close()
                return sizes

    @property
    def log(self):
        """What the worker wrote."""
        return self._logs.read_text()

    def until(self, condition):
        """Wait for a condition; fails at the time-out, or when the worker has ended."""
        give_up_at = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < give_up_at, self.log
            assert self._worker.poll() is None, self.log
            time.sleep(0.1)

    def end(self):
        """End the worker."""
        if self._worker is not None:
            self._worker.kill()
            self._worker.wait(PATIENCE_S)
        del self.admin


@pytest.fixture
def fleet(stack, bank, tmp_path, request):
    """A fleet of one worker that has published one small change."""
    prefix = request.node.name.replace("test_", "").replace("_", "-")[:60]
    made = Fleet(stack, bank, prefix, tmp_path / "log")
    made.start()
    # The stream begins when the slots are owned: until then nothing is published.
    time.sleep(1)
    made.insert("small")
    made.until(lambda: len(made.published()) == 1)
    yield made
    made.end()


@pytest.mark.rule("P6")
def test_a_row_beyond_the_limit_is_named_and_comes_out_once_it_is_raised(fleet):
    fleet.insert("x" * 1_100_000)
    fleet.insert("after")
    fleet.until(lambda: "stream partition stopped" in fleet.log)
    log = fleet.log

    assert "a record is larger than its topic takes" in log
    assert f"topic='{fleet.topic}'" in log
    assert "key='AccountId=" in log
    assert "size_bytes=110" in log
    assert "limit_bytes=1048588" in log
    assert "commit_timestamp_us=" in log
    assert "Traceback" not in log
    assert len(fleet.published()) == 1

    fleet.limit(2_000_000)
    fleet.restart()
    fleet.until(lambda: len(fleet.published()) == 3)
    small, large, after = fleet.published()
    assert large > 1_100_000
    assert max(small, after) < 1_000


def test_a_limit_that_is_raised_under_a_running_worker_is_found(fleet):
    fleet.limit(2_000_000)
    fleet.insert("x" * 1_100_000)
    fleet.until(lambda: len(fleet.published()) == 2)


def test_batches_follow_a_limit_that_is_lowered(fleet):
    """Each change fits; the batch that the client makes of them does not."""
    fleet.limit(3_000)
    fleet.insert(*(os.urandom(250).hex() for _ in range(60)))  # does not compress
    fleet.until(lambda: len(fleet.published()) == 61)

    assert '"failure": "MSG_SIZE_TOO_LARGE"' in fleet.log


def test_a_permission_that_is_lost_is_named_and_nothing_is_lost(fleet):
    def acl(kind, operation, permission):
        place = (ResourceType.TOPIC, fleet.topic, ResourcePatternType.LITERAL)
        return kind(*place, "User:ANONYMOUS", "*", operation, permission)

    bindings = [
        acl(AclBinding, AclOperation.WRITE, AclPermissionType.DENY),
        acl(AclBinding, AclOperation.ALL, AclPermissionType.ALLOW),
    ]
    for answer in fleet.admin.create_acls(bindings).values():
        answer.result(30)
    fleet.insert("denied")
    code, seconds, log = fleet.stopped()

    assert code == 2
    assert seconds < 10
    assert "Kafka denies writing to a topic" in log
    assert f"topic='{fleet.topic}'" in log
    assert "commit_timestamp_us=" in log
    attempts = [line for line in log.splitlines() if "transaction not committed" in line]
    assert sum('"failure": "TOPIC_AUTHORIZATION_FAILED"' in line for line in attempts) <= 3, (
        attempts
    )

    everything = acl(AclBindingFilter, AclOperation.ANY, AclPermissionType.ANY)
    for answer in fleet.admin.delete_acls([everything]).values():
        answer.result(30)
    fleet.start()
    fleet.until(lambda: len(fleet.published()) == 2)
