"""A running fleet is paused and goes on; workers are taken away, and others have their slots.

The session time-out is longer than any wait here: who has a slot has it because it was released.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.integration.commands import run_producer
from tests.integration.shared_stack import now
from tests.integration.topic_reading import read_everything
from tidegate.local_stack.demo.pipeline import Pipeline

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]

DDL = [
    "CREATE TABLE Seen (Id INT64) PRIMARY KEY (Id)",
    "CREATE CHANGE STREAM Feed FOR Seen",
]
SLOTS = 4
SESSION_S = 290
PATIENCE_S = 240
SETTING = "TIDEGATE_PRODUCER_"


def test_pause_resume_and_drain(shared_stack):
    database = shared_stack.create_database(DDL)
    settings = {"SESSION_TIMEOUT_MS": SESSION_S * 1_000, "SLOTS": SLOTS}
    programs = shared_stack.programs(
        "Feed", **{f"{SETTING}{name}": str(value) for name, value in settings.items()}
    )

    def run(*arguments):
        done = run_producer(programs, *arguments)
        return done.returncode, done.stdout, done.stderr

    def report(*arguments):
        code, text, errors = run(*arguments, "--json")
        assert code == 0, errors
        return json.loads(text)

    def insert(*keys):
        for key in keys:
            with database.batch() as batch:
                batch.insert("Seen", ("Id",), [(key,)])

    def published():
        found = read_everything(shared_stack, shared_stack.topic("Seen"), count=0)
        return sorted(message.key()["Id"] for message in found)

    def owners(*names):
        """Whether these workers are the group, and each slot's heartbeat is of one of them."""
        found = report("status")
        slots = {slot["worker"] for slot in found["slots"]}
        return found["members"] == list(names) and slots == set(names)

    start = now()
    pipeline = Pipeline(programs)
    try:
        assert report("status")["state"] == "Not started"
        code, _, errors = run("pause")
        assert (code, "holds no stream" in errors) == (2, True)

        pipeline.start_workers(2, start=start)
        pipeline.wait(lambda: report("status")["state"] == "Running", what="the fleet",
                      deadline_s=PATIENCE_S)  # fmt: skip
        pipeline.wait(lambda: owners("w1", "w2"), what="two owners", deadline_s=PATIENCE_S)
        insert(1, 2)
        pipeline.wait(lambda: published() == [1, 2], what="changes", deadline_s=PATIENCE_S)

        paused = report("pause", "--by", "the test")
        assert (paused["state"], paused["written"], paused["draining"]) == ("Paused", True, [])
        assert (report("pause")["written"], report("status")["state"]) == (False, "Paused")
        insert(3, 4)
        assert published() == [1, 2]
        before = report("status")["watermark_us"]

        # The worker that takes over in a pause reads nothing either.
        drained = report("drain", "w2")
        assert (drained["workers"], drained["remaining"]) == (["w2"], [])
        worker = pipeline.workers[1]
        assert worker.process.wait(deadline_s=PATIENCE_S) == 0
        pipeline.workers.remove(worker)
        pipeline.wait(lambda: owners("w1"), what="one owner", deadline_s=PATIENCE_S)
        assert published() == [1, 2]
        assert report("status")["watermark_us"] == before

        assert report("resume")["written"]
        pipeline.wait(lambda: published() == [1, 2, 3, 4], what="the rest",
                      deadline_s=PATIENCE_S)  # fmt: skip
        assert report("status")["state"] == "Running"
        code, _, errors = run("resume")
        assert (code, "`resume` is refused: the stream is Running" in errors) == (2, True)

        # A worker of that name that is started again is no concern of the drain.
        worker.start()
        pipeline.workers.append(worker)
        pipeline.wait(lambda: owners("w1", "w2"), what="w2 again", deadline_s=PATIENCE_S)
        code, _, errors = run("drain", "w3")
        assert (code, "no worker w3" in errors, "w1, w2" in errors) == (2, True, True)

        # A worker that is stopped keeps its place; one that is set to leaves, and is missed
        # by nobody.
        assert worker.stop() == 0
        pipeline.workers.remove(worker)
        assert report("status")["members"] == ["w1", "w2"]
        more = {**programs.more, f"{SETTING}LEAVE_ON_STOP": "true"}
        worker = replace(programs, more=more).worker("w2", start=start)
        worker.start()
        pipeline.workers.append(worker)
        insert(5)
        pipeline.wait(lambda: published()[-1] == 5, what="a change", deadline_s=PATIENCE_S)
        pipeline.wait(lambda: owners("w1", "w2"), what="w2 again", deadline_s=PATIENCE_S)
        assert worker.stop() == 0
        pipeline.workers.remove(worker)
        pipeline.wait(lambda: owners("w1"), what="one owner", deadline_s=PATIENCE_S)
        insert(6)
        pipeline.wait(lambda: published() == [1, 2, 3, 4, 5, 6], what="the last change",
                      deadline_s=PATIENCE_S)  # fmt: skip
    finally:
        faults = pipeline.stop()
    assert faults == []
