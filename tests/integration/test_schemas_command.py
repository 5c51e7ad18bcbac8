"""`schemas` before a worker's first start and after it, on a real broker and registry."""

from __future__ import annotations

import json

import pytest

from tests.integration.commands import run_producer
from tidegate.local_stack.demo.pipeline import Pipeline
from tidegate.program.kafka_clients import list_topics

pytestmark = pytest.mark.integration

DDL = [
    "CREATE TABLE Seen (Id INT64, SeenAt TIMESTAMP) PRIMARY KEY (Id)",
    "CREATE CHANGE STREAM Feed FOR Seen",
]
PATIENCE_S = 120


def test_schemas_are_registered_ahead_of_the_first_worker(shared_stack):
    prefix = shared_stack.prefix
    subjects = [f"{prefix}.Seen-key", f"{prefix}.Seen-value"]
    subjects += [f"{prefix}-progress-key", f"{prefix}-progress-value"]
    shared_stack.create_database(DDL)
    programs = shared_stack.programs("Feed", TIDEGATE_PRODUCER_SLOTS="4")

    def run(*arguments):
        found = run_producer(programs, *arguments)
        return found.returncode, found.stdout

    assert run("schemas", "check") == (1, "\n".join(subjects) + "\n")
    assert run("schemas", "register") == (0, "\n".join(subjects) + "\n")
    assert run("schemas", "check") == run("schemas", "register") == (0, "")
    topics = list_topics(shared_stack.bootstrap_servers)
    assert not [one for one in topics if one.startswith(prefix)]

    pipeline = Pipeline(programs)
    try:
        pipeline.start_workers(1, start="now")
        pipeline.wait(
            lambda: "epoch" in json.loads(run("status", "--json")[1]),
            what="the stream to begin", deadline_s=PATIENCE_S,
        )  # fmt: skip
        _, text = run("schemas", "list", "--json")
        assert [one["subject"] for one in json.loads(text)] == sorted(subjects)
        assert {one["compatibility"] for one in json.loads(text)} == {"BACKWARD"}

        _, text = run("schemas", "show", "Seen", "--key")
        assert [field["name"] for field in json.loads(text)["fields"]] == ["Id"]
        _, text = run("schemas", "asyncapi")
        channels = json.loads(text)["channels"]
        found = {one["address"]: one["bindings"]["kafka"] for one in channels.values()}
        assert {topic: one["partitions"] for topic, one in found.items()} == {
            f"{prefix}.Seen": 6,
            f"{prefix}-progress": 4,
        }
    finally:
        faults = pipeline.stop()
    assert faults == []
