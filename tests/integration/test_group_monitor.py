"""The group's description survives a broker that goes away while it is asked."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic

from tidegate.local_stack.config import load_config
from tidegate.local_stack.parts.stack import LocalStack
from tidegate.producer.core.events import GroupDescribed
from tidegate.producer.kafka import group_monitor
from tidegate.producer.kafka.admin import SharedAdmin
from tidegate.producer.kafka.group_monitor import GroupMonitor

pytestmark = [pytest.mark.integration, pytest.mark.slow]

ROUNDS = 3
PATIENCE_S = 120.0
ASKING = """
import sys, time
from tidegate.producer.kafka import group_monitor
from tidegate.producer.kafka.admin import SharedAdmin
group_monitor._INTERVAL_US = 10_000
monitors = [
    group_monitor.GroupMonitor(
        SharedAdmin({"bootstrap.servers": sys.argv[1], "log_level": 0}),
        group="g", worker="w", client_id="w-1",
    )
    for _ in range(10)
]
while True:
    for monitor in monitors:
        monitor.poll(time.monotonic_ns() // 1_000)
    time.sleep(0.005)
"""


@pytest.fixture(scope="module")
def kafka(tmp_path_factory):
    config = load_config(data_dir=tmp_path_factory.mktemp("stack"))
    with LocalStack(config, with_simulator=False) as stack:
        yield stack.kafka


def test_a_worker_survives_a_broker_that_goes_away_while_the_group_is_described(kafka):
    """librdkafka's other question ended the process within the first round."""
    asking = subprocess.Popen(
        [sys.executable, "-c", ASKING, kafka.bootstrap_servers], stderr=subprocess.PIPE
    )
    try:
        for number in range(ROUNDS):
            time.sleep(4)
            (kafka.kill if number % 2 else kafka.stop)()
            time.sleep(2)
            kafka.start()
        assert asking.poll() is None, asking.stderr.read().decode()
    finally:
        asking.kill()
        asking.wait(30)


def test_a_static_member_is_described_by_its_name(kafka, monkeypatch):
    monkeypatch.setattr(group_monitor, "_INTERVAL_US", 200_000)
    servers = {"bootstrap.servers": kafka.bootstrap_servers}
    admin = AdminClient(servers)
    for created in admin.create_topics([NewTopic("slots", 3, 1)]).values():
        created.result(PATIENCE_S)
    member = Consumer(
        {**servers, "group.id": "g", "group.instance.id": "w-of-7", "client.id": "w-of-7-now"}
    )
    member.subscribe(["slots"])
    monitor = GroupMonitor(SharedAdmin(servers), group="g", worker="w-of-7", client_id="w-of-7-now")
    whole = GroupDescribed(True, True, {"w-of-7": frozenset(range(3))})
    found = None
    give_up_at = time.monotonic() + PATIENCE_S
    while found != whole:
        assert time.monotonic() < give_up_at, found
        member.poll(0.1)
        found = monitor.poll(time.monotonic_ns() // 1_000) or found
    member.close()
