"""`schemas` before a worker's first start and after it, on a real broker and registry."""

from __future__ import annotations

import json

import pytest

from spanner_simulator import Simulator
from tests.integration.producer_command import run_command
from tidegate.local_stack.config import load_config
from tidegate.local_stack.demo.bank_database import create_database
from tidegate.local_stack.demo.pipeline import Pipeline
from tidegate.local_stack.parts.database_name import DatabaseName
from tidegate.local_stack.parts.programs import Programs
from tidegate.local_stack.parts.stack import LocalStack
from tidegate.program.kafka_clients import list_topics

pytestmark = pytest.mark.integration

DDL = [
    "CREATE TABLE Seen (Id INT64, SeenAt TIMESTAMP) PRIMARY KEY (Id)",
    "CREATE CHANGE STREAM Feed FOR Seen",
]
SUBJECTS = [f"shown.Seen-{part}" for part in ("key", "value")] + [
    f"shown-progress-{part}" for part in ("key", "value")
]
PATIENCE_S = 120


@pytest.fixture
def stack(tmp_path):
    with LocalStack(load_config(data_dir=tmp_path / "stack"), with_simulator=False) as stack:
        yield stack


def test_schemas_are_registered_ahead_of_the_first_worker(stack, tmp_path):
    with Simulator(seed=3) as simulator:
        name = DatabaseName(address=simulator.grpc_address)
        create_database(name, DDL)
        programs = Programs(
            folder=tmp_path,
            bootstrap_servers=stack.bootstrap_servers,
            registry_url=stack.registry_url,
            spanner_address=simulator.grpc_address,
            database=name,
            stream="Feed",
            prefix="shown",
            more={"TIDEGATE_PRODUCER_SLOTS": "4"},
        )

        def run(*arguments):
            found = run_command(programs, *arguments)
            return found.returncode, found.stdout

        assert run("schemas", "check") == (1, "\n".join(SUBJECTS) + "\n")
        assert run("schemas", "register") == (0, "\n".join(SUBJECTS) + "\n")
        assert run("schemas", "check") == run("schemas", "register") == (0, "")
        assert not [one for one in list_topics(stack.bootstrap_servers) if one.startswith("shown")]

        pipeline = Pipeline(programs)
        try:
            pipeline.start_workers(1, start="now")
            pipeline.wait(
                lambda: "epoch" in json.loads(run("status", "--json")[1]),
                what="the stream to begin", deadline_s=PATIENCE_S,
            )  # fmt: skip
            _, text = run("schemas", "list", "--json")
            assert [one["subject"] for one in json.loads(text)] == sorted(SUBJECTS)
            assert {one["compatibility"] for one in json.loads(text)} == {"BACKWARD"}

            _, text = run("schemas", "show", "Seen", "--key")
            assert [field["name"] for field in json.loads(text)["fields"]] == ["Id"]
            _, text = run("schemas", "asyncapi")
            channels = json.loads(text)["channels"]
            found = {one["address"]: one["bindings"]["kafka"] for one in channels.values()}
            assert {topic: one["partitions"] for topic, one in found.items()} == {
                "shown.Seen": 6,
                "shown-progress": 4,
            }
        finally:
            faults = pipeline.stop()
        assert faults == []
