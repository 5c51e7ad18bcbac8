"""Brokers and registries of other versions than the local stack's: a fleet, a kill, a consumer."""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from tests.integration.shared_stack import (
    PATIENCE_S,
    read_everything,
    release,
    rows_of,
    run_producer,
    running,
)
from tests.other_jars import fetched
from tidegate.local_stack.config import load_config
from tidegate.local_stack.demo.bank import ACCOUNT_COLUMNS, ACCOUNTS, STREAM
from tidegate.local_stack.demo.bank_database import commit_time_us, create_bank_database
from tidegate.local_stack.parts import stack as parts_stack
from tidegate.local_stack.parts.installed_java import candidates
from tidegate.local_stack.parts.jvm_parts import JvmParts
from tidegate.local_stack.parts.programs import DatabaseName, Programs
from tidegate.local_stack.parts.stack import LocalStack, SchemaRegistry
from tidegate.program.java import probe

pytestmark = [pytest.mark.integration, pytest.mark.deep, pytest.mark.timeout(1_200)]

KAFKA = ("3.9.1", "4.4.0")
"""The oldest and the newest; 4.1.1 is the local stack's, with which everything else runs."""
LOGGERS = {
    "3": "org.slf4j:slf4j-reload4j:1.7.36",
    "4": "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3",
}
REGISTRY_JAVA = 21
"""The least that Apicurio 3 runs on."""
ROWS = 40


def newer_java():
    """Return the Java of the registry as its argument; skips without one."""
    found = (probe(program) for program in candidates(os.environ))
    java = next((one for one in found if one and one.major >= REGISTRY_JAVA), None)
    if java is None:
        pytest.skip(f"Apicurio 3 needs Java {REGISTRY_JAVA}")
    return {"java": java}


@pytest.fixture(params=[*(("kafka", one) for one in KAFKA), ("apicurio", "3.3.3")], ids=":".join)
def world(request, tmp_path):
    part, version = request.param
    with ExitStack() as exits:
        patch = exits.enter_context(pytest.MonkeyPatch.context())
        if part == "kafka":
            folder = fetched(f"org.apache.kafka:kafka_2.13:{version}", LOGGERS[version[0]])
            patch.setattr(JvmParts, "broker_class_path", property(lambda _: f"{folder}/*"))
        else:
            folder = fetched(f"io.apicurio:apicurio-registry-app:{version}", archive="tar.gz")
            jar = folder / "quarkus-run.jar"
            if not jar.exists():
                shutil.unpack_archive(next(folder.glob("*.tar.gz")), folder)
            patch.setattr(JvmParts, "registry_jar", property(lambda _: jar))
            java = newer_java()
            patch.setattr(
                parts_stack, "SchemaRegistry", lambda **parts: SchemaRegistry(**{**parts, **java})
            )
        config = load_config(data_dir=tmp_path / "stack")
        stack = exits.enter_context(LocalStack(config))
        database = DatabaseName(address=stack.spanner_address)
        programs = Programs(
            folder=tmp_path, bootstrap_servers=stack.bootstrap_servers,
            registry_url=stack.registry_url, spanner_address=stack.spanner_address,
            database=database, stream=STREAM, prefix="versions",
            more={"TIDEGATE_PRODUCER_SLOTS": "4"},
        )  # fmt: skip
        bank = create_bank_database(database)
        yield SimpleNamespace(stack=stack, programs=programs, bank=bank)


def test_each_change_comes_once_though_a_worker_is_killed(world, spark):
    checked = run_producer(world.programs, "check")
    assert checked.returncode == 0, checked.stderr
    assert "Kafka: topic ids" not in checked.stdout
    assert "DescribeConfigs" not in checked.stdout
    topic = f"versions.{ACCOUNTS}"
    with running(world.programs, 2) as pipeline:
        for row in range(ROWS):
            with world.bank.batch() as batch:
                batch.insert(ACCOUNTS, ACCOUNT_COLUMNS, [(f"row-{row:02}", "owner", row, 0)])
            if row == ROWS // 2:
                killed = pipeline.workers[0]
                pipeline.going_down(killed)
                killed.kill()
                killed.start()
                pipeline.is_up_again(killed)
        pipeline.wait(
            lambda: len(read_everything(world.stack, topic, count=1)) >= ROWS,
            what="all changes",
            deadline_s=PATIENCE_S,
        )
        release(spark, pipeline, commit_time_us(batch.committed))
    keys = [message.key()["AccountId"] for message in read_everything(world.stack, topic, count=1)]
    assert sorted(keys) == [f"row-{row:02}" for row in range(ROWS)]
    mirror = {
        row["AccountId"]: row["Balance"] for row in rows_of(world.programs, f"mirror/{ACCOUNTS}")
    }
    assert mirror == {f"row-{row:02}": row for row in range(ROWS)}
