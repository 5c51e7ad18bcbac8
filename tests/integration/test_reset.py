"""A stream is removed and begins again; who has read the old one does not take it for the new."""

from __future__ import annotations

import json

import pytest

from tests.integration.commands import run_producer
from tests.integration.shared_stack import now
from tests.integration.topic_reading import read_everything
from tidegate.local_stack.demo.bank_database import commit_time_us
from tidegate.local_stack.demo.pipeline import Pipeline
from tidegate.program.kafka_clients import list_topics

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]

DDL = [
    "CREATE TABLE Seen (Id INT64) PRIMARY KEY (Id)",
    "CREATE CHANGE STREAM Feed FOR Seen",
]
PATIENCE_S = 240


def test_it_begins_again(shared_stack):
    database = shared_stack.create_database(DDL)
    programs = shared_stack.programs("Feed", TIDEGATE_PRODUCER_SESSION_TIMEOUT_MS="6000")
    prefix, topic = shared_stack.prefix, shared_stack.topic("Seen")

    def run(*arguments):
        done = run_producer(programs, *arguments)
        return done.returncode, done.stdout, done.stderr

    def insert(key):
        with database.batch() as batch:
            batch.insert("Seen", ("Id",), [(key,)])
        return commit_time_us(batch.committed)

    def epoch():
        code, text, _ = run("status", "--json")
        return json.loads(text).get("epoch") if code == 0 else None

    pipeline = Pipeline(programs)
    try:
        pipeline.start_workers(1, start=now())
        at_us = insert(1)
        pipeline.wait(epoch, what="the stream", deadline_s=PATIENCE_S)
        first = epoch()
        code, _, errors = run("reset", "--yes")
        assert (code, f"workers run in group {prefix}-fleet: w1" in errors) == (2, True)
        pipeline.start_consumer()
        pipeline.wait_released(at_us, deadline_s=PATIENCE_S)
    finally:
        faults = pipeline.stop()
    assert faults == []

    code, text, _ = run("reset", "--dry-run", "--json", "--subjects")
    report = json.loads(text)
    assert (code, report["topics"], report["removed"]) == (0, [f"{prefix}-progress", topic], False)
    assert f"{prefix}-fleet" in report["groups"]
    assert f"{topic}-value" in report["subjects"]
    assert run("reset", "--yes")[0] == 0
    topics = list_topics(shared_stack.bootstrap_servers)
    assert not [one for one in topics if one.startswith(prefix)]
    # The subjects have no topic any more, and are found all the same.
    code, text, _ = run("reset", "--yes", "--json", "--subjects")
    assert (code, json.loads(text)["removed"]) == (0, True)
    assert json.loads(text)["subjects"] == report["subjects"]
    for options in ((), ("--subjects",)):
        assert run("reset", "--yes", *options)[:2] == (0, "There is nothing to delete.\n")

    pipeline = Pipeline(programs)
    try:
        pipeline.start_workers(1, start=now())
        insert(2)
        pipeline.wait(lambda: epoch() not in (None, first), what="a new epoch",
                      deadline_s=PATIENCE_S)  # fmt: skip
        (message,) = read_everything(shared_stack, topic, count=1)
        assert message.key() == {"Id": 2}
        # The gate that has read the former topics ends, and names what is wrong.
        gate = programs.consumer("second")
        gate.start()
        pipeline.wait(lambda: not gate.process.is_running, what="the gate to end",
                      deadline_s=PATIENCE_S)  # fmt: skip
        text = gate.spec.log.read_text()
        assert (gate.process.exit_code, "Traceback" in text) == (2, False)
        assert "re-created" in text
    finally:
        faults = pipeline.stop()
    assert faults == []
