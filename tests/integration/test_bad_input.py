"""Settings that cannot work, on real parts: one clear line, an exit code, nothing half done."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.integration.shared_stack import PATIENCE_S, open_shared_stack, run_producer, until
from tidegate.local_stack.parts.process import choose_ports
from tidegate.program.registry_http import HttpSchemaRegistry
from tidegate.schemas.progress_codec import KEY_SCHEMA

pytestmark = pytest.mark.integration

DDL = ["CREATE TABLE Seen (Id INT64) PRIMARY KEY (Id)", "CREATE CHANGE STREAM Feed FOR Seen"]
# The stack's broker has one listener, without a login.
SASL = json.dumps(
    {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "me",
        "sasl.password": "hush",
    }
)


class Attempts:
    """Runs commands with some settings changed, and names the topics that there are."""

    def __init__(self, stack):
        self.stack, self.programs = stack, stack.programs()
        self.database = stack.create_database(DDL)
        self.client = AdminClient({"bootstrap.servers": stack.bootstrap_servers})

    def make_topic(self, name, *, topic_partitions=1, **config):
        """Create a topic whose name continues the prefix, unless it exists; return its name."""
        topic = f"{self.stack.prefix}{name}"
        if topic not in self.stack.topics():
            new = NewTopic(topic, topic_partitions, 1, config=config)
            self.client.create_topics([new])[topic].result(PATIENCE_S)
            until(lambda: topic in self.stack.topics())
        return topic

    def refused(self, command, *texts, code=2, **changes):
        """Run a command that is refused, with these texts, and creates no topic."""
        before = self.stack.topics()
        done = run_producer(
            self.programs, command, **{f"PRODUCER_{key}": str(v) for key, v in changes.items()}
        )
        assert done.returncode == code, done.stderr
        for text in texts:
            assert text.lower() in done.stderr.lower()
        assert self.stack.topics() == before


@pytest.fixture(scope="module")
def attempts(kafka_and_registry, tmp_path_factory):
    with open_shared_stack(kafka_and_registry, tmp_path_factory.mktemp("bad")) as stack:
        made = Attempts(stack)
        yield made
        del made.client


def nothing_listens_at():
    """Return an address on which nobody answers."""
    return f"127.0.0.1:{choose_ports({'nobody': 0})['nobody']}"


def test_good_settings_pass_and_change_nothing(attempts):
    before = attempts.stack.topics()
    done = run_producer(attempts.programs, "check")
    assert (done.returncode, done.stderr) == (0, "")
    assert attempts.stack.topics() == before


@pytest.mark.parametrize(
    ("changes", "code", "error_text"),
    [
        ({"KAFKA_OPTIONS": '{"foo.bar": "1"}'}, 2, "no such configuration property"),
        ({"KAFKA_OPTIONS": '{"security.protocol": "ssl"}'}, 2, "TLS to Kafka failed"),
        ({"KAFKA_OPTIONS": SASL}, 2, "Kafka"),
        ({"CHANGE_STREAM": "NoSuchStream"}, 2, "no change stream NoSuchStream"),
        ({"DATABASE": "no-such-database"}, 2, "no-such-database"),
        ({"HEARBEAT_MS": "100"}, 2, "hearbeat_ms"),
        ({"BOOTSTRAP_SERVERS": "{}"}, 75, "no Kafka broker answers"),
        ({"REGISTRY_URL": "http://{}/"}, 75, "schema registry does not answer"),
        ({"SPANNER_EMULATOR_HOST": "{}"}, 75, "Spanner does not answer"),
    ],
    ids=[
        "option",
        "TLS",
        "login",
        "stream",
        "database",
        "unknown",
        "broker",
        "registry",
        "Spanner",
    ],
)
def test_what_cannot_work_is_named_and_nothing_is_made(attempts, changes, code, error_text):
    changes = {key: one.replace("{}", nothing_listens_at()) for key, one in changes.items()}
    attempts.refused("run", error_text, code=code, **changes)


def test_a_registry_url_without_its_path_says_which_path_there_is(attempts):
    root = "/".join(attempts.stack.registry_url.split("/")[:3])
    attempts.refused("check", "registry_url: ", "/apis/ccompat/v7", REGISTRY_URL=root)


@pytest.mark.parametrize("command", ["check", "run"])
def test_a_subject_whose_level_is_too_weak_is_named(attempts, command):
    prefix = f"{attempts.stack.prefix}weak"
    registry, subject = HttpSchemaRegistry(attempts.stack.registry_url), f"{prefix}-progress-key"
    registry.register(subject, KEY_SCHEMA)
    registry.set_compatibility(subject, "FORWARD")
    text = f"subject {subject} has the compatibility FORWARD"
    attempts.refused(command, text, PREFIX=prefix)
    assert registry.compatibility(subject) == "FORWARD"


@pytest.mark.parametrize("command", ["check", "run"])
@pytest.mark.parametrize(("existing", "prefix"), [("eu", "eu.orders"), ("us.orders", "us")])
def test_a_prefix_that_continues_another_streams_is_refused(attempts, command, existing, prefix):
    topic = attempts.make_topic(f"{existing}-progress")
    attempts.refused(command, topic, PREFIX=f"{attempts.stack.prefix}{prefix}")


@pytest.mark.parametrize("command", ["check", "run"])
def test_a_progress_topic_whose_records_expire_is_refused(attempts, command):
    topic = attempts.make_topic("expiring-progress", topic_partitions=16)
    attempts.refused(
        command,
        f"topic {topic}: cleanup.policy is 'delete'",
        f"--entity-name {topic} --add-config cleanup.policy=compact",
        PREFIX=topic.removesuffix("-progress"),
    )


@pytest.mark.parametrize("command", ["check", pytest.param("run", marks=pytest.mark.deep)])
def test_more_copies_than_brokers_are_refused(attempts, command):
    prefix = f"{attempts.stack.prefix}copied"
    attempts.refused(
        command,
        f"cannot create topic {prefix}-progress",
        "set replication_factor to their number",
        REPLICATION_FACTOR=3,
        PREFIX=prefix,
    )


@pytest.mark.parametrize("command", ["check", "run"])
def test_a_progress_topic_that_takes_too_little_is_named(attempts, command):
    narrow = {"cleanup.policy": "compact", "max.message.bytes": "1000"}
    topic = attempts.make_topic(f"narrow-{command}-progress", topic_partitions=16, **narrow)
    text = f"topic {topic} takes messages of 1000 bytes at most"
    attempts.refused(command, text, "524288", PREFIX=topic.removesuffix("-progress"))


@pytest.mark.rule("spanner-query-options")
def test_the_error_on_a_role_without_privileges_says_so(attempts):
    attempts.database.update_ddl(["CREATE ROLE reader"]).result(30)
    done = run_producer(attempts.programs, "check", PRODUCER_DATABASE_ROLE="reader")
    assert done.returncode == 2
    assert "privilege" in done.stderr.lower() or "permission" in done.stderr.lower()


def test_a_port_that_is_taken_is_named(address, tmp_path):
    port = address.rpartition(":")[2]
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
