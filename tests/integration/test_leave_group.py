"""A worker leaves its group at the moment when it is given slots."""

from __future__ import annotations

import subprocess
import sys

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tidegate.local_stack.config import load_config
from tidegate.local_stack.parts.stack import LocalStack

pytestmark = [pytest.mark.integration, pytest.mark.slow]

PATIENCE_S = 120.0
ROUNDS = 25
# A process of its own: what hangs keeps the GIL.
LEAVING = """
import sys, time
from confluent_kafka import Consumer
from tidegate.producer.kafka.admin import RetryingAdmin
from tidegate.producer.kafka.group_members import group_members
from tidegate.producer.kafka.leave_group import leave_group

servers = {"bootstrap.servers": sys.argv[1]}
admin = RetryingAdmin(servers)

def assigned(client, places):
    calls.append("assigned")
    client.incremental_assign(places)

def revoked(client, places):
    calls.append("revoked")
    client.incremental_unassign(places)

for number in range(int(sys.argv[2])):
    group, calls = f"g{number}", []
    client = Consumer({
        **servers, "group.id": group, "group.instance.id": "w", "enable.auto.commit": False,
        "partition.assignment.strategy": "cooperative-sticky",
    })
    client.subscribe(["slots"], on_assign=assigned, on_revoke=revoked, on_lost=revoked)
    while not group_members(admin, group):
        time.sleep(0.1)
    time.sleep(0.5)  # the group's answer is here, and waits for a poll
    leave_group(client)
    print("left after", *calls, flush=True)
"""


@pytest.fixture
def servers(tmp_path):
    config = load_config(data_dir=tmp_path)
    with LocalStack(config, with_simulator=False) as stack:
        admin = AdminClient({"bootstrap.servers": stack.kafka.bootstrap_servers})
        for created in admin.create_topics([NewTopic("slots", 3, 1)]).values():
            created.result(PATIENCE_S)
        yield stack.kafka.bootstrap_servers


def test_a_worker_that_is_stopped_while_slots_are_about_to_be_assigned_leaves(servers):
    """Closing the client hangs within the first rounds."""
    ran = subprocess.run(
        [sys.executable, "-c", LEAVING, servers, str(ROUNDS)],
        check=False, capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip

    assert ran.stdout.splitlines() == ["left after assigned revoked"] * ROUNDS, ran.stderr
    assert ran.returncode == 0
