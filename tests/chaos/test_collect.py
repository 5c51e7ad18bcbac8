"""What is read of checkpoints, logs and the simulator; Kafka and Delta need a real run."""

from __future__ import annotations

import json

from tests.chaos.collect import PlanRecorder, lineage_facts, queries_in
from tests.simulation.history import QueryStart


def plan(through_us):
    return json.dumps({"through_us": through_us, "end_offsets": {"t": {"0": 3, "1": 5}}})


def test_plans_are_claims_in_the_order_of_batches(tmp_path):
    folder = tmp_path / "gate" / "plans"
    recorder = PlanRecorder(tmp_path)
    recorder.look()
    folder.mkdir(parents=True)
    for batch in (10, 9, 2):
        (folder / f"{batch}.json").write_text(plan(batch))
    (folder / ".11.json.1.tmp").write_text("half")
    recorder.look()
    recorder.look()

    assert [(c.batch, c.attempt, c.watermark_us) for c in recorder.claims] == [
        (2, 0, 2),
        (9, 0, 9),
        (10, 0, 10),
    ]
    assert recorder.claims[0].read == {"t": {0: 3, 1: 5}}


def test_a_plan_that_changes_is_a_second_attempt(tmp_path):
    path = tmp_path / "gate" / "plans" / "4.json"
    path.parent.mkdir(parents=True)
    recorder = PlanRecorder(tmp_path)
    path.write_text(plan(7))
    recorder.look()
    path.write_text(plan(8))
    recorder.look()

    assert [(c.batch, c.attempt, c.watermark_us) for c in recorder.claims] == [(4, 0, 7), (4, 1, 8)]


def test_queries_are_read_from_a_log_with_noise(tmp_path):
    log = tmp_path / "w1.log"
    entry = {"event": "query", "token": "a", "start_ns": 5_999, "timestamp": "1970-01-01T00:00:01Z"}
    log.write_text(
        "%3|librdkafka says\n"
        + json.dumps({"event": "step", "step": "query"})
        + "\n"
        + json.dumps(entry)
        + "\n"
        + json.dumps(entry)[:40]
    )

    assert list(queries_in(log, worker="w1.1")) == [QueryStart(1_000_000, "w1.1", "a", 5)]
    assert list(queries_in(tmp_path / "none", worker="w1.1")) == []


def test_lineage_is_what_the_simulator_said():
    born = {
        "a": {"start_timestamp_us": 5, "parents": []},
        "b": {"start_timestamp_us": 50, "parents": ["a"]},
    }
    facts = lineage_facts(born, {"a": ("b",)}, start_us=20)

    assert (facts["a"].start_us, facts["a"].end_us, facts["a"].children) == (20, 50, ("b",))
    assert (facts["b"].start_us, facts["b"].end_us, facts["b"].parents) == (50, None, ("a",))
