"""Datastream's files through Kafka to a mirror: newer changes first, copies, a worker killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from datetime import UTC, datetime, timedelta

import deltalake
import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.datastream_files import backfill, delivered, history, write_stream
from tidegate.local_stack.config import load_config
from tidegate.local_stack.parts.jvm_parts import fetched_jvm_parts
from tidegate.local_stack.parts.stack import LocalStack

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.deep, pytest.mark.timeout(900)]

PATIENCE_S = 400.0
TOPIC = "files.shop.orders"


def committed_orders(stack):
    """Return the order key of each record of the data topic, as a reader of commits sees it."""
    consumer = Consumer(
        {
            "bootstrap.servers": stack.bootstrap_servers,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    topics = consumer.list_topics(timeout=30).topics
    if TOPIC not in topics:
        return []
    partitions = list(topics[TOPIC].partitions)
    consumer.assign([TopicPartition(TOPIC, one, 0) for one in partitions])
    found, ends = [], 0
    while ends < len(partitions):
        message = consumer.poll(10)
        assert message is not None
        if message.error():
            ends += 1
        else:
            found.append(dict(message.headers())["order"])
    consumer.close()
    return found


def wait_for_orders(stack, count, *processes):
    give_up_at = time.monotonic() + PATIENCE_S
    while len(found := committed_orders(stack)) < count:
        assert time.monotonic() < give_up_at, f"{len(found)} of {count}"
        assert all(one.poll() is None for one in processes)
        time.sleep(0.5)
    return found


@pytest.mark.rule("datastream-newest-row")
def test_a_mirror_ends_as_the_source_whatever_comes_first(tmp_path):
    rng = random.Random(9)
    changes = history("mysql", rng, 60)
    rows = backfill("mysql", rng, 6)
    events = delivered(changes, rows, rng)
    newer, older = events[len(events) // 2 :], events[: len(events) // 2]
    location, first = tmp_path / "files", datetime.now(UTC) - timedelta(minutes=9)
    with LocalStack(load_config(data_dir=tmp_path / "stack"), with_simulator=False) as stack:
        source = {
            "kind": "datastream", "location": str(location), "poll_seconds": 1,
            "open_minutes": 60, "lateness_seconds": 1,
        }  # fmt: skip
        shared = {
            "BOOTSTRAP_SERVERS": stack.bootstrap_servers,
            "REGISTRY_URL": stack.registry_url,
            "PREFIX": "files",
        }
        logs = []

        def start(package, **settings):
            kind = "CONSUMER" if package == "spark_consumer" else "PRODUCER"
            environ = {f"TIDEGATE_{kind}_{n}": str(v) for n, v in {**shared, **settings}.items()}
            logs.append(tmp_path / f"{len(logs)}.log")
            with logs[-1].open("wb") as log:
                return subprocess.Popen(
                    [sys.executable, "-m", f"tidegate.{package}", "run"],
                    env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", **environ},
                    stderr=log,
                )

        def worker():
            started = (first - timedelta(minutes=5)).strftime("%Y-%m-%dT%H:%M:%SZ")
            return start(
                "producer", SOURCE=json.dumps(source), WORKER="w", START=started, SLOTS=2,
                TOPIC_PARTITIONS=2,
            )  # fmt: skip

        def consume():
            consumer = start(
                "spark_consumer", OUTPUT=tmp_path / "output", CHECKPOINT=tmp_path / "checkpoint",
                JARS=",".join(str(jar) for jar in fetched_jvm_parts().spark_jars),
                MASTER="local[1]", UNTIL="caught-up",
            )  # fmt: skip
            assert consumer.wait(PATIENCE_S) == 0, logs[-1].read_text()[-3_000:]

        def mirrored():
            table = deltalake.DeltaTable(tmp_path / "output" / "mirror" / "shop.orders")
            return table.to_pyarrow_table().to_pylist()

        def has_come(uuids):
            """Let the consumer run until the mirror has the newest of what was published."""
            give_up_at = time.monotonic() + PATIENCE_S
            while True:
                consume()
                found = {row["_datastream_uuid"] for row in mirrored()}
                if found <= uuids and len(found) == len(mirrored()):
                    return
                assert time.monotonic() < give_up_at

        location.mkdir()
        write_stream(location, "mysql", newer, first=first)
        process = worker()
        new_uuids = {event["uuid"] for event in newer}
        wait_for_orders(stack, 1, process)
        process.send_signal(signal.SIGKILL)
        process.wait(30)
        process = worker()
        wait_for_orders(stack, len(new_uuids), process)
        time.sleep(5)
        has_come(new_uuids)
        for number, path in enumerate(
            write_stream(tmp_path / "later", "mysql", older, first=first)
        ):
            target = location / path.relative_to(tmp_path / "later")
            target.parent.mkdir(parents=True, exist_ok=True)
            path.rename(target.with_name(f"later-{number}.avro"))
        orders = wait_for_orders(stack, len({event["uuid"] for event in events}), process)
        time.sleep(5)
        consume()
        process.terminate()
        assert process.wait(60) == 0, logs[-2].read_text()[-3_000:]

    assert max(Counter(orders).values()) == 1
    assert len(orders) == len({event["uuid"] for event in events})
    expected = {event["payload"]["id"]: event["payload"]["note"] for event in rows}
    deleted = set()
    for event in changes:
        key = event["payload"]["id"]
        expected[key] = event["payload"]["note"]
        deleted = deleted | {key} if event["source_metadata"]["is_deleted"] else deleted - {key}
    found = {row["id"]: row for row in mirrored()}
    assert {key: row["note"] for key, row in found.items()} == expected
    gone = {key for key, row in found.items() if "DELETE" in row["_datastream_change_type"]}
    assert gone == deleted
    for log in logs:
        assert "Traceback" not in log.read_text()
