"""Both programs as a newcomer starts them: in the wrong order, with probes that say how it goes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tidegate.local_stack.config import load_config
from tidegate.local_stack.demo.bank import STREAM
from tidegate.local_stack.demo.bank_database import create_bank_database
from tidegate.local_stack.parts.database_name import DatabaseName
from tidegate.local_stack.parts.jvm_parts import fetched_jvm_parts
from tidegate.local_stack.parts.ports import choose_ports
from tidegate.local_stack.parts.stack import LocalStack

pytestmark = [pytest.mark.integration, pytest.mark.slow]

PATIENCE_S = 240.0


def probe(port, path):
    """Return (status, text) of a probe; (0, "") while nothing listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode().strip()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode().strip()
    except OSError:
        return 0, ""


def wait_until(condition, *processes):
    give_up_at = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < give_up_at
        assert all(process.poll() is None for process in processes)
        time.sleep(0.2)


@pytest.fixture
def start(tmp_path):
    """Start a program with settings in its environment; its standard error goes to a file."""
    started = []

    def start_program(package, **settings):
        prefix = "TIDEGATE_CONSUMER_" if package == "spark_consumer" else "TIDEGATE_PRODUCER_"
        environ = {f"{prefix}{name}": str(value) for name, value in settings.items()}
        with (tmp_path / f"{package}.{len(started)}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", f"tidegate.{package}", "run"],
                env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", **environ},
                stderr=log,
            )
        started.append(process)
        return process

    yield start_program
    for process in started:
        process.kill()
        process.wait(30)


@pytest.mark.timeout(600)
def test_a_consumer_that_is_started_first_waits_and_then_catches_up(tmp_path, start):
    with LocalStack(load_config(data_dir=tmp_path / "stack")) as stack:
        name = DatabaseName(address=stack.spanner_address)
        create_bank_database(name)
        ports = choose_ports({"worker": 0, "consumer": 0})
        shared = {
            "BOOTSTRAP_SERVERS": stack.bootstrap_servers,
            "REGISTRY_URL": stack.registry_url,
            "PREFIX": "bank",
        }
        consumer = start(
            "spark_consumer",
            **shared,
            OUTPUT=tmp_path / "output",
            CHECKPOINT=tmp_path / "checkpoint",
            METRICS_PORT=ports["consumer"],
            JARS=",".join(str(jar) for jar in fetched_jvm_parts().spark_jars),
            MASTER="local[1]",
            UNTIL="caught-up",
        )
        waiting = (503, "waiting for topics: bank-progress")
        wait_until(lambda: probe(ports["consumer"], "/readyz") == waiting, consumer)
        assert probe(ports["consumer"], "/healthz") == (200, "ok")

        worker = start(
            "producer",
            **shared,
            PROJECT=name.project,
            INSTANCE=name.instance,
            DATABASE=name.database,
            CHANGE_STREAM=STREAM,
            SPANNER_EMULATOR_HOST=stack.spanner_address,
            METRICS_PORT=ports["worker"],
        )
        wait_until(lambda: probe(ports["worker"], "/readyz") == (200, "ok"), worker)
        wait_until(lambda: probe(ports["consumer"], "/readyz") == (200, "ok"), consumer, worker)
        _, scrape = probe(ports["worker"], "/metrics")
        assert "tidegate_producer_slots 16.0" in scrape
        assert "process_resident_memory_bytes" in scrape

        assert consumer.wait(PATIENCE_S) == 0, (tmp_path / "spark_consumer.0.log").read_text()[
            -3_000:
        ]
        worker.terminate()
        assert worker.wait(PATIENCE_S) == 0
    for log in tmp_path.glob("*.log"):
        assert "Traceback" not in log.read_text()
        assert "rdkafka#" not in log.read_text().replace('"client": "rdkafka#', "")


@pytest.mark.timeout(600)
def test_a_second_run_stands_by_until_the_first_is_killed(tmp_path, start):
    with LocalStack(load_config(data_dir=tmp_path / "stack")) as stack:
        kafka = AdminClient({"bootstrap.servers": stack.bootstrap_servers})
        for created in kafka.create_topics([NewTopic("bank-progress", 1, 1)]).values():
            created.result(PATIENCE_S)
        ports = choose_ports({"first": 0, "spare": 0})

        def run(port, **settings):
            return start(
                "spark_consumer",
                BOOTSTRAP_SERVERS=stack.bootstrap_servers,
                REGISTRY_URL=stack.registry_url,
                PREFIX="bank",
                CHECKPOINT=tmp_path / "checkpoint",
                METRICS_PORT=port,
                JARS=",".join(str(jar) for jar in fetched_jvm_parts().spark_jars),
                MASTER="local[1]",
                **{"OUTPUT": tmp_path / "output", **settings},
            )

        first = run(ports["first"])
        wait_until(lambda: probe(ports["first"], "/readyz") == (200, "ok"), first)
        spare = run(ports["spare"])
        stands_by = (503, "stands by: run 1 works on this checkpoint")
        wait_until(lambda: probe(ports["spare"], "/readyz") == stands_by, first, spare)

        wrong = run(0, OUTPUT=tmp_path / "elsewhere")
        assert wrong.wait(PATIENCE_S) == 2
        assert probe(ports["first"], "/readyz") == (200, "ok")

        first.kill()
        wait_until(lambda: probe(ports["spare"], "/readyz") == (200, "ok"), spare)
        spare.terminate()
        assert spare.wait(PATIENCE_S) == 0
        assert '"run": 2' in (tmp_path / "spark_consumer.1.log").read_text()
