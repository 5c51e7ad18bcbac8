"""A fleet is paused, drained and goes on; what expires unread waits until its loss is accepted.

In the pause the session time-out is longer than any wait here: who has a slot has it because it was
released.
"""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from dataclasses import replace

import pytest

from tests.integration.shared_stack import (
    PATIENCE_S,
    now,
    open_shared_stack,
    read_bytes,
    read_everything,
    run_producer,
    running,
    until,
)
from tidegate.program.registry_http import HttpSchemaRegistry
from tidegate.schemas.progress import PartitionGap, SlotChanges, SlotProgress, StreamStarted
from tidegate.schemas.progress_decoder import ProgressDecoder

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]

TABLE = "CREATE TABLE Seen (Id INT64) PRIMARY KEY (Id)"
MOVES = f"{TABLE};CREATE CHANGE STREAM Feed FOR Seen OPTIONS (partition_mode = 'MUTABLE_KEY_RANGE')"
KEPT = f"{TABLE};CREATE CHANGE STREAM Feed FOR Seen OPTIONS (retention_period = '24h')"
SESSION_S = 290
SLOTS = 4


class Commands:
    """The producer's commands, with the rows that are written and published."""

    def __init__(self, stack, ddl, **settings):
        self.stack = stack
        self.database = stack.create_database(ddl.split(";"))
        self.programs = stack.programs(
            PRODUCER_SLOTS=SLOTS, PRODUCER_HEARTBEAT_MS=500, PRODUCER_TOPIC_PARTITIONS=1, **settings
        )

    def run(self, *arguments):
        """Return exit code, what was printed as JSON, and what was said."""
        done = run_producer(self.programs, *arguments, "--json")
        return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr

    def report(self, *arguments):
        code, found, errors = self.run(*arguments)
        assert code == 0, errors
        return found

    def refused(self, text, *arguments):
        code, _, errors = self.run(*arguments)
        assert (code, text in errors) == (2, True), errors

    def insert(self, *keys):
        for key in keys:
            with self.database.batch() as batch:
                batch.insert("Seen", ("Id",), [(key,)])

    def published(self):
        topic = self.stack.topic("Seen")
        if topic not in self.stack.topics():
            return []
        return sorted(one.key()["Id"] for one in read_everything(self.stack, topic, count=0))

    def progress(self):
        """Return the progress records by slot, in the order of their offsets."""
        decoder = ProgressDecoder(HttpSchemaRegistry(self.stack.registry_url, options={}).schema)
        found = {slot: [] for slot in range(SLOTS)}
        for message in read_bytes(self.stack, f"{self.stack.prefix}-progress"):
            if message.value() is not None:
                found[message.partition()].append(decoder.decode(message.value()).body)
        return found


@pytest.mark.deep
def test_pause_resume_and_drain(shared_stack):
    stream = Commands(shared_stack, MOVES, PRODUCER_SESSION_TIMEOUT_MS=SESSION_S * 1_000)
    report, refused, insert = stream.report, stream.refused, stream.insert
    start = now()
    assert report("status")["state"] == "Not started"
    refused("holds no stream", "pause")

    with running(stream.programs, 2, start=start) as pipeline:

        def wait(condition, what):
            pipeline.wait(condition, what=what, deadline_s=PATIENCE_S)

        def owned_by(*names):
            """Wait until these are the group, and each slot's heartbeat is of one of them."""

            def is_owned():
                found = report("status")
                slots = {slot["worker"] for slot in found["slots"]}
                return found["members"] == list(names) and slots == set(names)

            wait(is_owned, f"{names} to own all slots")

        def without(worker):
            assert worker.stop() == 0
            pipeline.workers.remove(worker)

        owned_by("w1", "w2")
        assert report("status")["state"] == "Running"
        insert(1, 2)
        wait(lambda: stream.published() == [1, 2], "changes")

        paused = report("pause", "--by", "the test")
        assert (paused["state"], paused["written"], paused["draining"]) == ("Paused", True, [])
        assert (report("pause")["written"], report("status")["state"]) == (False, "Paused")
        insert(3, 4)
        before = report("status")["watermark_us"]

        # The worker that takes over in a pause reads nothing either.
        drained = report("drain", "w2")
        assert (drained["workers"], drained["remaining"]) == (["w2"], [])
        worker = pipeline.workers.pop()
        assert worker.process.wait(deadline_s=PATIENCE_S) == 0
        owned_by("w1")
        assert stream.published() == [1, 2]
        assert report("status")["watermark_us"] == before

        assert report("resume")["written"]
        wait(lambda: stream.published() == [1, 2, 3, 4], "the rest")
        assert report("status")["state"] == "Running"
        refused("`resume` is refused: the stream is Running", "resume")

        # A worker of that name that is started again is no concern of the drain.
        worker.start()
        pipeline.workers.append(worker)
        owned_by("w1", "w2")
        refused("no worker w3", "drain", "w3")
        refused("w1, w2", "drain", "w3")

        # A worker that is stopped keeps its place; one that is set to leaves, and is not missed.
        without(worker)
        assert report("status")["members"] == ["w1", "w2"]
        more = {**stream.programs.more, "TIDEGATE_PRODUCER_LEAVE_ON_STOP": "true"}
        worker = replace(stream.programs, more=more).worker("w2", start=start)
        worker.start()
        pipeline.workers.append(worker)
        log, began = worker.spec.log, worker.log_began
        wait(lambda: b"slots assigned" in log.read_bytes()[began:], "slots of w2")
        owned_by("w1", "w2")
        without(worker)
        owned_by("w1")
        insert(5)
        wait(lambda: stream.published() == [1, 2, 3, 4, 5], "the last change")


# ---------------------------------------------------------------- what expires unread


class Gap(Commands):
    """One worker that is away while changes expire."""

    def __init__(self, stack):
        settings = {"SESSION_TIMEOUT_MS": 6000, "TRANSACTION_TIMEOUT_MS": 5000, "WORKER": "w1"}
        super().__init__(stack, KEPT, **{f"PRODUCER_{key}": one for key, one in settings.items()})
        self.worker = self.programs.worker("w1", start="now")
        self.control = stack.control()

    @property
    def log(self):
        return self.worker.spec.log.read_text()

    def until(self, condition):
        until(condition, lambda: self.log[-3_000:])

    def has_begun(self):
        """Whether the stream's start is recorded: what was written before is not in it."""
        if f"{self.stack.prefix}-progress" not in self.stack.topics():
            return False
        return any(
            isinstance(one, StreamStarted) for some in self.progress().values() for one in some
        )

    def come_back_too_late(self):
        """Let what was committed expire, then start a worker, which can read nothing on."""
        time.sleep(1)
        self.control._ask("/expire-retention")
        self.worker.start()
        self.until(lambda: "stream partition stopped" in self.log)
        time.sleep(2)  # the others, and a heartbeat

    def gaps(self):
        """Return the recorded gaps by token; each is before the heartbeat that passes it."""
        gaps = {}
        for found in self.progress().values():
            for place, body in enumerate(found):
                if isinstance(body, PartitionGap):
                    assert body.token not in gaps
                    gaps[body.token] = body
                    beats = (o for o in found[place:] if isinstance(o, SlotProgress | SlotChanges))
                    beat = next(beats)
                    described = beat.tokens if isinstance(beat, SlotProgress) else beat.added
                    (token,) = [one for one in described if one.token == body.token]
                    assert (token.watermark_us, token.stopped) == (body.until_us - 1, None)
        return gaps


@contextmanager
def away_on(kafka_and_registry, folder):
    """Yield a fleet that has published a change and is away."""
    with open_shared_stack(kafka_and_registry, folder, seed=3) as stack:
        fleet = Gap(stack)
        try:
            fleet.worker.start()
            fleet.until(fleet.has_begun)
            fleet.insert(0)
            fleet.until(lambda: fleet.published() == [0])
            fleet.worker.kill()
            yield fleet
        finally:
            fleet.worker.kill()


@pytest.mark.rule("P6")
def test_what_expired_unread_is_accepted_once_and_changes_go_on_behind_it(
    kafka_and_registry, tmp_path
):
    with away_on(kafka_and_registry, tmp_path) as fleet:
        fleet.insert(1)
        fleet.come_back_too_late()
        fleet.insert(2)

        # Asked for while the worker runs, nothing is done.
        report = fleet.report("accept-gap", "--all", "--dry-run")
        assert report["accepted"] is False
        assert all("lost_from" in one["reason"] for one in report["partitions"])
        assert all(one["stopped_since"] is not None for one in report["partitions"])
        running_text = f"workers run in group {fleet.stack.prefix}-fleet: w1"
        fleet.refused(running_text, "accept-gap", "--all", "--yes")
        assert not fleet.gaps()

        # Accepted, once.
        fleet.worker.kill()
        report = fleet.report("accept-gap", "--all", "--yes", "--by", "the test")
        assert report["accepted"] is True
        tokens = {one["token"] for one in report["partitions"]}
        gaps = fleet.gaps()
        assert set(gaps) == tokens
        assert {gap.accepted_by for gap in gaps.values()} == {"the test"}
        paused = "`accept-gap` is refused: the stream is Paused"
        fleet.refused(paused, "accept-gap", "--all", "--yes")

        fleet.worker.start()
        fleet.until(lambda: fleet.published() == [0, 2])
        fleet.insert(3)
        fleet.until(lambda: fleet.published() == [0, 2, 3])
        status = fleet.report("status")
        assert {gap["token"] for gap in status["gaps"]} == tokens
        assert {one["condition"] for one in status["partitions"]} == {"open"}
        assert status["watermark_us"] > max(gap.until_us for gap in gaps.values())


def test_one_that_has_ended_in_the_gap_cannot_be_gone_on_with(kafka_and_registry, tmp_path):
    with away_on(kafka_and_registry, tmp_path) as fleet:
        fleet.control.split()
        fleet.insert(1)
        fleet.come_back_too_late()
        fleet.worker.kill()
        fleet.refused("no such stream partition", "accept-gap", "--token", "nobody", "--yes")
        fleet.refused("ended within the changes", "accept-gap", "--all", "--yes")
        fleet.refused("new epoch", "accept-gap", "--all", "--yes")
        assert not fleet.gaps()
