"""Settings that cannot work, on real parts: one clear line, exit code 2, nothing half done."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from confluent_kafka.admin import AdminClient

from tidegate.local_stack.bank import STREAM
from tidegate.local_stack.bank_database import DatabaseName, create_bank_database
from tidegate.local_stack.config import load_config
from tidegate.local_stack.ports import choose_ports
from tidegate.local_stack.stack import LocalStack

pytestmark = pytest.mark.integration

PATIENCE_S = 120


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
        result = subprocess.run(
            [sys.executable, "-m", "tidegate.producer", command],
            env={**os.environ, **settings},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        return result.returncode, result.stderr

    return run


def topics(stack):
    """Name every topic that is not Kafka's own."""
    found = AdminClient({"bootstrap.servers": stack.bootstrap_servers}).list_topics(timeout=10)
    return sorted(name for name in found.topics if not name.startswith("__"))


def nothing_listens_at():
    """Return an address on which nobody answers."""
    return f"127.0.0.1:{choose_ports({'nobody': 0})['nobody']}"


def test_good_settings_pass_and_change_nothing(stack, check):
    before = topics(stack)

    assert check() == (0, "")
    assert topics(stack) == before


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"CHANGE_STREAM": "NoSuchStream"}, "no change stream NoSuchStream"),
        ({"DATABASE": "no-such-database"}, "no-such-database"),
        ({"HEARBEAT_MS": "100"}, "hearbeat_ms"),
        ({"BOOTSTRAP_SERVERS": None}, "no Kafka broker answers"),
        ({"REGISTRY_URL": None}, "schema registry does not answer"),
        ({"SPANNER_EMULATOR_HOST": None}, "Spanner does not answer"),
    ],
    ids=["stream", "database", "unknown setting", "broker", "registry", "Spanner"],
)
def test_what_cannot_work_is_named_and_nothing_is_made(stack, check, changes, told):
    address = nothing_listens_at()
    for key, value in changes.items():
        if value is None:
            changes = {key: f"http://{address}/" if key == "REGISTRY_URL" else address}
    before = topics(stack)
    code, stderr = check("run", **changes)

    assert code == 2
    assert told.lower() in stderr.lower()
    assert "Traceback" not in stderr
    assert topics(stack) == before


def test_a_role_without_privileges_is_told_which_it_lacks(bank, check):
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
