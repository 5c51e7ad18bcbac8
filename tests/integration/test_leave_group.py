"""A worker leaves its group at the moment when it is given slots."""

from __future__ import annotations

import subprocess
import sys

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.integration.shared_stack import new_prefix

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

topic = sys.argv[3]
for number in range(int(sys.argv[2])):
    group, calls = f"{topic}-{number}", []
    client = Consumer({
        **servers, "group.id": group, "group.instance.id": "w", "enable.auto.commit": False,
        "partition.assignment.strategy": "cooperative-sticky",
    })
    client.subscribe([topic], on_assign=assigned, on_revoke=revoked, on_lost=revoked)
    while not group_members(admin, group):
        time.sleep(0.1)
    time.sleep(0.5)  # the group's answer is here, and waits for a poll
    leave_group(client)
    print("left after", *calls, flush=True)
"""


def test_a_worker_that_is_stopped_while_slots_are_about_to_be_assigned_leaves(kafka_and_registry):
    """Closing the client hangs within the first rounds."""
    servers, topic = kafka_and_registry.bootstrap_servers, new_prefix()
    admin = AdminClient({"bootstrap.servers": servers})
    for created in admin.create_topics([NewTopic(topic, 3, 1)]).values():
        created.result(PATIENCE_S)
    ran = subprocess.run(
        [sys.executable, "-c", LEAVING, servers, str(ROUNDS), topic],
        check=False, capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip

    assert ran.stdout.splitlines() == ["left after assigned revoked"] * ROUNDS, ran.stderr
    assert ran.returncode == 0
