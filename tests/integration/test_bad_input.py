"""Settings that cannot work, on real parts: one clear line, an exit code, nothing half done."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.command_server import run_module
from tidegate.local_stack.config import load_config
from tidegate.local_stack.demo.bank import STREAM
from tidegate.local_stack.demo.bank_database import create_bank_database
from tidegate.local_stack.parts.database_name import DatabaseName
from tidegate.local_stack.parts.ports import choose_ports
from tidegate.local_stack.parts.stack import LocalStack
from tidegate.program.registry_http import HttpSchemaRegistry
from tidegate.schemas.progress_codec import KEY_SCHEMA

pytestmark = pytest.mark.integration

PATIENCE_S = 120
NARROW = {"cleanup.policy": "compact", "max.message.bytes": "1000"}

# The stack's broker has one listener, without a login.
SASL = json.dumps(
    {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "me",
        "sasl.password": "hush",
    }
)


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    """A running stack with a bank on it."""
    config = load_config(data_dir=tmp_path_factory.mktemp("stack"))
    with LocalStack(config) as running:
        yield running


@pytest.fixture(scope="module")
def bank(stack):
    """The bank's database, by the official client."""
    return create_bank_database(DatabaseName(address=stack.spanner_address))


@pytest.fixture
def check(stack, bank):
    """Run `tidegate-producer check` with some settings changed; return (exit code, stderr)."""
    name = DatabaseName(address=stack.spanner_address)
    good = {
        "BOOTSTRAP_SERVERS": stack.bootstrap_servers,
        "REGISTRY_URL": stack.registry_url,
        "PROJECT": name.project,
        "INSTANCE": name.instance,
        "DATABASE": name.database,
        "CHANGE_STREAM": STREAM,
        "PREFIX": "bank",
        "SPANNER_EMULATOR_HOST": stack.spanner_address,
    }

    def run(command="check", **changes):
        settings = {f"TIDEGATE_PRODUCER_{key}": str(v) for key, v in {**good, **changes}.items()}
        environ = {**os.environ, **settings}
        result = run_module("tidegate.producer", command, environ=environ, timeout_s=PATIENCE_S)
        return result.returncode, result.stderr

    return run


def topics(stack):
    """Name every topic that is not Kafka's own."""
    found = AdminClient({"bootstrap.servers": stack.bootstrap_servers}).list_topics(timeout=10)
    return sorted(name for name in found.topics if not name.startswith("__"))


def make_topic(stack, name, *, topic_partitions=1):
    """Create a topic unless it exists."""
    if name in topics(stack):
        return
    admin = AdminClient({"bootstrap.servers": stack.bootstrap_servers})
    admin.create_topics([NewTopic(name, topic_partitions, 1)])[name].result(30)
    give_up_at = time.monotonic() + 30
    while name not in topics(stack) and time.monotonic() < give_up_at:
        time.sleep(0.1)


def nothing_listens_at():
    """Return an address on which nobody answers."""
    return f"127.0.0.1:{choose_ports({'nobody': 0})['nobody']}"


def test_good_settings_pass_and_change_nothing(stack, check):
    before = topics(stack)

    assert check() == (0, "")
    assert topics(stack) == before


@pytest.mark.parametrize(
    ("changes", "code", "error_text"),
    [
        ({"KAFKA_OPTIONS": '{"foo.bar": "1"}'}, 2, "no such configuration property"),
        ({"KAFKA_OPTIONS": '{"security.protocol": "ssl"}'}, 2, "TLS to Kafka failed"),
        ({"KAFKA_OPTIONS": SASL}, 2, "Kafka"),
        ({"CHANGE_STREAM": "NoSuchStream"}, 2, "no change stream NoSuchStream"),
        ({"DATABASE": "no-such-database"}, 2, "no-such-database"),
        ({"HEARBEAT_MS": "100"}, 2, "hearbeat_ms"),
        ({"BOOTSTRAP_SERVERS": None}, 75, "no Kafka broker answers"),
        ({"REGISTRY_URL": None}, 75, "schema registry does not answer"),
        ({"SPANNER_EMULATOR_HOST": None}, 75, "Spanner does not answer"),
    ],
    ids=[
        "option",
        "TLS",
        "login",
        "stream",
        "database",
        "unknown setting",
        "broker",
        "registry",
        "Spanner",
    ],
)
def test_what_cannot_work_is_named_and_nothing_is_made(stack, check, changes, code, error_text):
    address = nothing_listens_at()
    for key, value in changes.items():
        if value is None:
            changes = {key: f"http://{address}/" if key == "REGISTRY_URL" else address}
    before = topics(stack)
    ended, stderr = check("run", **changes)

    assert ended == code
    assert error_text.lower() in stderr.lower()
    assert "Traceback" not in stderr
    assert topics(stack) == before


def test_a_registry_url_without_its_path_says_which_path_there_is(stack, check):
    root = "/".join(stack.registry_url.split("/")[:3])
    code, stderr = check(REGISTRY_URL=root)

    assert code == 2
    assert "registry_url: " in stderr
    assert "/apis/ccompat/v7" in stderr
    assert "Traceback" not in stderr


@pytest.mark.parametrize("command", ["check", "run"])
def test_a_subject_whose_level_is_too_weak_is_named(stack, check, command):
    registry, subject = HttpSchemaRegistry(stack.registry_url), "weak-progress-key"
    registry.register(subject, KEY_SCHEMA)
    registry.set_compatibility(subject, "FORWARD")
    before = topics(stack)
    code, stderr = check(command, PREFIX="weak")

    assert code == 2
    assert f"subject {subject} has the compatibility FORWARD" in stderr
    assert "Traceback" not in stderr
    assert topics(stack) == before
    assert registry.compatibility(subject) == "FORWARD"


@pytest.mark.parametrize("command", ["check", "run"])
@pytest.mark.parametrize(("existing", "prefix"), [("eu", "eu.orders"), ("us.orders", "us")])
def test_a_prefix_that_continues_another_streams_is_refused(
    stack, check, command, existing, prefix
):
    make_topic(stack, f"{existing}-progress")
    before = topics(stack)
    code, stderr = check(command, PREFIX=prefix)

    assert code == 2
    assert f"{existing}-progress" in stderr
    assert "Traceback" not in stderr
    assert topics(stack) == before


@pytest.mark.parametrize("command", ["check", "run"])
def test_a_progress_topic_whose_records_expire_is_refused(stack, check, command):
    make_topic(stack, "expiring-progress", topic_partitions=16)
    code, stderr = check(command, PREFIX="expiring")

    assert code == 2
    assert "topic expiring-progress: cleanup.policy is 'delete'" in stderr
    assert "--entity-name expiring-progress --add-config cleanup.policy=compact" in stderr
    assert "Traceback" not in stderr


@pytest.mark.parametrize("command", ["check", "run"])
def test_more_copies_than_brokers_are_refused(stack, check, command):
    before = topics(stack)
    code, stderr = check(command, REPLICATION_FACTOR=3, PREFIX="copied")

    assert code == 2
    assert "cannot create topic copied-progress" in stderr
    assert "set replication_factor to their number" in stderr
    assert "Traceback" not in stderr
    assert topics(stack) == before


@pytest.mark.parametrize("command", ["check", "run"])
def test_a_progress_topic_that_takes_too_little_is_named(stack, check, command):
    topic = f"narrow-{command}-progress"
    admin = AdminClient({"bootstrap.servers": stack.bootstrap_servers})
    new = NewTopic(topic, 16, 1, config=NARROW)
    admin.create_topics([new])[topic].result(30)
    before = topics(stack)
    code, stderr = check(command, PREFIX=f"narrow-{command}")

    assert code == 2
    assert f"topic {topic} takes messages of 1000 bytes at most" in stderr
    assert "524288" in stderr
    assert topics(stack) == before


@pytest.mark.rule("spanner-query-options")
def test_the_error_on_a_role_without_privileges_says_so(bank, check):
    bank.update_ddl(["CREATE ROLE reader"]).result(30)
    code, stderr = check(DATABASE_ROLE="reader")

    assert code == 2
    assert "privilege" in stderr.lower() or "permission" in stderr.lower()
    assert "Traceback" not in stderr


def test_a_port_that_is_taken_is_named(stack, tmp_path):
    port = stack.bootstrap_servers.rpartition(":")[2]
    result = subprocess.run(
        [
            *(sys.executable, "-m", "tidegate.local_stack", "up"),
            *("--kafka-port", port, "--data-dir", str(tmp_path / "data")),
        ],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )

    assert result.returncode == 2
    assert port in result.stderr
    assert "Traceback" not in result.stderr
