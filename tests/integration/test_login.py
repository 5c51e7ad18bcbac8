"""A real broker with a login and ACLs: what is missing is named; the listed rights are enough."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from tests.command_server import run_module
from tidegate.local_stack.config import load_config
from tidegate.local_stack.demo.bank import ACCOUNT_COLUMNS, ACCOUNTS, STREAM
from tidegate.local_stack.demo.bank_database import create_bank_database
from tidegate.local_stack.parts import kafka_broker
from tidegate.local_stack.parts.database_name import DatabaseName
from tidegate.local_stack.parts.ports import choose_ports
from tidegate.local_stack.parts.stack import LocalStack

pytestmark = pytest.mark.integration

PATIENCE_S = 120
USER, PASSWORD = "fleet", "tide-4711"
PREFIX = "bank"
LOGIN = r"""
listeners=PLAINTEXT://{{host}}:{{port}},LOGIN://{{host}}:{port},CONTROLLER://{{host}}:{{controller_port}}
advertised.listeners=PLAINTEXT://{{host}}:{{port}},LOGIN://{{host}}:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,LOGIN:SASL_PLAINTEXT
inter.broker.listener.name=PLAINTEXT
sasl.enabled.mechanisms=PLAIN
listener.name.login.plain.sasl.jaas.config=\
  org.apache.kafka.common.security.plain.PlainLoginModule required user_{user}="{password}";
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
"""

TOPIC = (ResourceType.TOPIC, PREFIX, ResourcePatternType.PREFIXED)
PROGRESS = (ResourceType.TOPIC, f"{PREFIX}-progress", ResourcePatternType.LITERAL)
GROUP = (ResourceType.GROUP, f"{PREFIX}-fleet", ResourcePatternType.PREFIXED)
TRANSACTIONS = (
    ResourceType.TRANSACTIONAL_ID,
    f"{PREFIX}-fleet-w1",
    ResourcePatternType.LITERAL,
)
RIGHTS = {
    **dict.fromkeys(
        [
            (TOPIC, AclOperation.DESCRIBE),
            (TOPIC, AclOperation.WRITE),
            (TOPIC, AclOperation.DESCRIBE_CONFIGS),
            (TOPIC, AclOperation.CREATE),
            (PROGRESS, AclOperation.READ),
        ],
        "topic",
    ),
    **dict.fromkeys([(GROUP, AclOperation.READ), (GROUP, AclOperation.DESCRIBE)], "group"),
    **dict.fromkeys(
        [(TRANSACTIONS, AclOperation.WRITE), (TRANSACTIONS, AclOperation.DESCRIBE)],
        "transactional id",
    ),
}
"""What docs/reference/permissions.md lists for a worker, and what a text has to name."""

IMPLIED = (AclOperation.DESCRIBE, AclOperation.CREATE)
"""Describe comes with Read and Write; without Create the topics have to exist."""


@pytest.fixture(scope="module")
def login_port():
    """The port of the listener that wants a login."""
    return choose_ports({"login": 0})["login"]


@pytest.fixture(scope="module")
def stack(tmp_path_factory, login_port):
    """A stack whose broker has a second listener, with a login, and gives rights by ACLs only."""
    config = load_config(data_dir=tmp_path_factory.mktemp("stack"))
    extra = LOGIN.format(port=login_port, user=USER, password=PASSWORD)
    kept = [
        line
        for line in kafka_broker.SETTINGS.splitlines()
        if not line.startswith(("listeners=", "advertised.listeners="))
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kafka_broker, "SETTINGS", "\n".join(kept) + extra)
        with LocalStack(config) as running:
            yield running


@pytest.fixture(scope="module")
def bank(stack):
    """The bank's database, by the official client."""
    return create_bank_database(DatabaseName(address=stack.spanner_address))


@pytest.fixture(scope="module")
def admin(stack):
    """Give and take rights, by the listener without a login."""
    client = AdminClient({"bootstrap.servers": stack.bootstrap_servers})

    def change(rights, *, give):
        bindings = [
            AclBinding(*place, f"User:{USER}", "*", operation, AclPermissionType.ALLOW)
            for place, operation in rights
        ]
        if give:
            answers = client.create_acls(bindings)
        else:
            answers = client.delete_acls([_filter_of(one) for one in bindings])
        for answer in answers.values():
            answer.result(30)
        time.sleep(0.5)  # the authorizer follows the controller's log

    return change


def _filter_of(binding):
    return AclBindingFilter(
        binding.restype,
        binding.name,
        binding.resource_pattern_type,
        binding.principal,
        binding.host,
        binding.operation,
        binding.permission_type,
    )


@pytest.fixture(scope="module")
def settings(stack, bank, login_port):
    """Return the environment of a worker that logs in."""
    name = DatabaseName(address=stack.spanner_address)

    def environment(password=PASSWORD):
        values = {
            "BOOTSTRAP_SERVERS": f"127.0.0.1:{login_port}",
            "KAFKA_OPTIONS": json.dumps(
                {
                    "security.protocol": "sasl_plaintext",
                    "sasl.mechanism": "PLAIN",
                    "sasl.username": USER,
                    "sasl.password": password,
                }
            ),
            "REGISTRY_URL": stack.registry_url,
            "PROJECT": name.project,
            "INSTANCE": name.instance,
            "DATABASE": name.database,
            "CHANGE_STREAM": STREAM,
            "PREFIX": PREFIX,
            "WORKER": "w1",
            "SLOTS": "2",
            "TOPIC_PARTITIONS": "1",
            "SPANNER_EMULATOR_HOST": stack.spanner_address,
        }
        return {**os.environ, **{f"TIDEGATE_PRODUCER_{key}": v for key, v in values.items()}}

    return environment


def ended(command, environment):
    """Run the producer until it ends; return (exit code, standard error)."""
    result = run_module("tidegate.producer", command, environ=environment, timeout_s=PATIENCE_S)
    return result.returncode, result.stderr


@contextmanager
def running(environment, log):
    """Run a worker from its first slots to a drain; yield a function that fails once it ended."""
    with log.open("w") as stderr:
        worker = subprocess.Popen(
            [sys.executable, "-m", "tidegate.producer", "run"], env=environment, stderr=stderr
        )
    give_up_at = time.monotonic() + PATIENCE_S

    def require_running():
        assert worker.poll() is None, log.read_text()
        assert time.monotonic() < give_up_at, log.read_text()

    try:
        while "slots assigned" not in log.read_text():
            require_running()
            time.sleep(0.1)
        yield require_running
        worker.terminate()
        assert worker.wait(PATIENCE_S) == 0, log.read_text()
    finally:
        worker.kill()
        worker.wait(PATIENCE_S)


@pytest.fixture(scope="module")
def topics_exist(settings, admin, tmp_path_factory):
    """The topics, made by a worker that has every right; the rights are taken back."""
    admin(RIGHTS, give=True)
    with running(settings(), tmp_path_factory.mktemp("first") / "log"):
        pass
    admin(RIGHTS, give=False)


@pytest.mark.parametrize("command", ["check", "run"])
def test_a_wrong_password_says_so(settings, command):
    code, stderr = ended(command, settings(password="wrong-word"))

    assert code == 2
    assert "Kafka rejected the login" in stderr
    assert "sasl.password" in stderr
    assert "wrong-word" not in stderr
    assert "Traceback" not in stderr


@pytest.mark.parametrize("command", ["check", "run"])
def test_without_any_acl_the_first_missing_right_is_named(settings, command):
    code, stderr = ended(command, settings())

    assert code == 2
    assert "Kafka denies access to" in stderr
    assert "docs/reference/permissions.md" in stderr
    assert PASSWORD not in stderr
    assert "Traceback" not in stderr


@pytest.mark.parametrize(
    ("missing", "named"),
    [pair for pair in RIGHTS.items() if pair[0][1] not in IMPLIED],
    ids=[f"{r[1].name.lower()} {n}" for r, n in RIGHTS.items() if r[1] not in IMPLIED],
)
@pytest.mark.usefixtures("topics_exist")
def test_each_missing_right_is_named(settings, admin, missing, named):
    given = [right for right in RIGHTS if right != missing]
    admin(given, give=True)
    try:
        code, stderr = ended("run", settings())
    finally:
        admin(given, give=False)

    assert code == 2
    assert named in stderr
    assert "Traceback" not in stderr


@pytest.mark.usefixtures("topics_exist")
def test_the_listed_rights_are_enough(settings, admin, stack, bank, tmp_path):
    admin(RIGHTS, give=True)
    reader = Consumer(
        {
            "bootstrap.servers": stack.bootstrap_servers,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
        }
    )
    try:
        with running(settings(), tmp_path / "log") as require_running:
            reader.subscribe([f"{PREFIX}.{ACCOUNTS}"])
            found, balance = None, 0
            while found is None or found.error() is not None:
                require_running()
                # More than once: the stream begins when the worker has read its slots, not before.
                balance += 1
                row = ("a-1", "owner", balance, 0)
                with bank.batch() as batch:
                    batch.insert_or_update(ACCOUNTS, columns=ACCOUNT_COLUMNS, values=[row])
                found = reader.poll(1.0)
            assert b"a-1" in found.key()
    finally:
        reader.close()
        admin(RIGHTS, give=False)


@pytest.mark.usefixtures("topics_exist")
def test_check_names_each_missing_right(settings, admin, stack):
    """What `run` would refuse is refused; what a redrive or a later change needs is named."""
    topic = f"{PREFIX}-dead-letter"
    environment = {**settings(), "TIDEGATE_PRODUCER_POISON": "park"}
    client = AdminClient({"bootstrap.servers": stack.bootstrap_servers})
    create, write = (TOPIC, AclOperation.CREATE), (TOPIC, AclOperation.WRITE)
    read = ((ResourceType.TOPIC, topic, ResourcePatternType.LITERAL), AclOperation.READ)
    others = sorted(one for one in client.list_topics(timeout=30).topics if one.startswith(PREFIX))

    def said(*missing, more=()):
        """Return what a check with all rights but these says, after its exit code."""
        given = [*(right for right in (*RIGHTS, read) if right not in missing), *more]
        admin(given, give=True)
        try:
            code, stdout, stderr = checked(environment)
        finally:
            admin(given, give=False)
        return f"{code} {stdout}{stderr}"

    assert f"would create dead-letter topic {topic}" in said()
    refused = said(create)
    assert refused.startswith("2 ")
    assert f"cannot create topic {topic}" in refused
    assert topic not in client.list_topics(timeout=30).topics
    refused = said(write)
    assert refused.startswith("2 ")
    assert f"may not write to {', '.join(others)}" in refused
    client.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    try:
        assert f"dead-letter topic {topic}\n" in said(create)
        to_others = [
            ((ResourceType.TOPIC, one, ResourcePatternType.LITERAL), AclOperation.WRITE)
            for one in others
        ]
        assert "may not write: add the ACL Write" in said(write, more=to_others)
        assert "may not read, as a redrive has to: add the ACL Read" in said(read)
    finally:
        client.delete_topics([topic])[topic].result(30)


def checked(environment):
    """Run a check; return (exit code, standard output, standard error)."""
    result = run_module("tidegate.producer", "check", environ=environment, timeout_s=PATIENCE_S)
    return result.returncode, result.stdout, result.stderr
