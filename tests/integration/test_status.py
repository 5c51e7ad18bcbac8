"""`status` and `lineage` on real parts: a worker with one query, of three stream partitions."""

from __future__ import annotations

import json

import pytest

from tests.integration.commands import run_producer
from tests.integration.shared_stack import now, open_shared_stack
from tidegate.local_stack.demo.pipeline import Pipeline
from tidegate.local_stack.parts.ports import choose_ports

pytestmark = pytest.mark.integration

STREAM_PARTITIONS = 3
DDL = [
    "CREATE TABLE Seen (Id INT64) PRIMARY KEY (Id)",
    "CREATE CHANGE STREAM Feed FOR Seen OPTIONS (value_capture_type = 'NEW_ROW')",
]
PATIENCE_S = 120


@pytest.fixture
def status(kafka_and_registry, tmp_path):
    """Run `status` beside a running worker; return what it printed."""
    opened = open_shared_stack(kafka_and_registry, tmp_path, stream_partitions=STREAM_PARTITIONS)
    with opened as stack:
        stack.create_database(DDL)
        port = choose_ports({"metrics": 0})["metrics"]
        programs = stack.programs(
            "Feed",
            TIDEGATE_PRODUCER_OPEN_QUERIES_MAX="1",
            TIDEGATE_PRODUCER_METRICS_PORT=str(port),
            TIDEGATE_PRODUCER_SLOTS="4",
        )
        pipeline = Pipeline(programs)

        def ended(*arguments, command="status"):
            metrics = ("--metrics", f"127.0.0.1:{port}") if command == "status" else ()
            return run_producer(programs, command, *metrics, *arguments, COLUMNS="400")

        try:
            pipeline.start_workers(1, start=now())
            pipeline.wait(
                lambda: _is_reading(ended("--json")),
                what="the worker to read one and queue the others", deadline_s=PATIENCE_S,
            )  # fmt: skip
            yield lambda *arguments, **command: _printed(ended(*arguments, **command))
        finally:
            faults = pipeline.stop()
        assert faults == []


def _printed(result):
    assert result.returncode == 0, result.stderr
    return result.stdout


def _is_reading(result):
    """Whether worker and progress topic show all stream partitions; first there is no stream."""
    found = json.loads(_printed(result))
    if found["state"] == "Not started":
        assert "holds no stream" in found["reason"]
        return False
    (worker,) = found["workers"]
    is_reading = (worker["running"], worker["queued"]) == (1, STREAM_PARTITIONS - 1)
    are_open = [one["condition"] for one in found["partitions"]] == ["open"] * STREAM_PARTITIONS
    return is_reading and are_open and found["watermark_us"] is not None


def test_it_shows_what_is_open_in_kafka_and_what_is_queued_in_the_worker(status):
    found = json.loads(status("--json"))
    assert [one["condition"] for one in found["partitions"]] == ["open"] * STREAM_PARTITIONS
    assert {one["worker"] for one in found["partitions"]} == {"w1"}
    assert sum(slot["open"] for slot in found["slots"]) == STREAM_PARTITIONS
    assert len(found["slots"]) == 4
    assert found["lag_s"] >= 0
    assert found["stream"].endswith("/changeStreams/Feed")
    assert (found["state"], found["members"]) == ("Running", ["w1"])
    assert found["since_us"] is not None
    assert found["workers"][0]["retried"] is not None
    (worker,) = found["workers"]
    assert (worker["paused"], worker["stopped"], worker["error"]) == (0, 0, "")

    text = status("--slowest", "1")
    assert f"{STREAM_PARTITIONS} stream partitions are open; the watermark is behind by" in text
    slowest = [one for one in found["partitions"] if one["token"] in text]
    assert len(slowest) == 1
    workers = text[text.index("Metrics") :]
    assert worker["address"] in workers

    graph = json.loads(status("--json", command="lineage"))
    tokens = {one["token"] for one in graph["partitions"]}
    assert tokens == {one["token"] for one in found["partitions"]}
    drawn = status("--format", "mermaid", command="lineage")
    assert drawn.count(":::open") == STREAM_PARTITIONS
