"""`adopt`: what it prints, and what Kafka must still have."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import pytest
import structlog

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer import cli
from tidegate.spark_consumer.commands import adopt as adopt_command
from tidegate.spark_consumer.config import ConsumerConfig
from tidegate.spark_consumer.core.batch_state import STATE_FORMAT, OutputProof, State
from tidegate.spark_consumer.core.retention import FirstRecord
from tidegate.spark_consumer.kafka import topic_ids

SETTINGS = {
    "bootstrap_servers": "127.0.0.1:1",
    "registry_url": "http://127.0.0.1:1",
    "prefix": "bank",
    "output": "out",
    "checkpoint": "check",
}
PROOF = OutputProof("q", 3, 40_000, ("changelog", "mirror"))


def test_each_adopted_thing_is_a_line_of_json(monkeypatch, capsys):
    seen = []

    def adopt(config, *, step):
        seen.append(config)
        step("checkpoint")
        return [{"table": "mirror/t", "version": 3}, {"table": "mirror/u", "version": 4}]

    monkeypatch.setattr(adopt_command, "adopt", adopt)
    flags = [
        part for name, value in SETTINGS.items() for part in (f"--{name.replace('_', '-')}", value)
    ]
    monkeypatch.setattr(sys, "argv", ["tidegate-consumer", "adopt", *flags])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    structlog.reset_defaults()
    assert ended.value.code == 0
    output = capsys.readouterr()
    lines = [json.loads(line) for line in output.out.splitlines()]
    (shown,) = map(json.loads, output.err.splitlines())
    assert (shown["event"], shown["step"]) == ("adopt step", "checkpoint")
    assert [line["version"] for line in lines] == [3, 4]
    assert seen[0].prefix == "bank"


@pytest.fixture
def kafka(monkeypatch):
    """What Kafka has: the first records by topic, and the id of the dead-letter topic."""
    kept = {"bank.a": {0: FirstRecord(0, 1), 1: FirstRecord(0, None)}}
    dead_letter = {"bank-dead-letter": None}
    monkeypatch.setattr(adopt_command, "first_records", lambda *_: kept)
    monkeypatch.setattr(topic_ids, "LiveTopicIds", lambda *_: lambda _topics: dead_letter)

    def require(proof=PROOF):
        adopt_command.require_kafka_keeps(ConsumerConfig.load(None, **SETTINGS), proof)

    require.kept, require.dead_letter = kept, dead_letter
    return require


def test_topics_from_their_beginning_are_enough(kafka):
    kafka()


def test_topics_that_retention_has_cut_before_the_outputs_end_are_enough(kafka):
    kafka.kept["bank.a"][0] = FirstRecord(7, 40)
    kafka()


@pytest.mark.parametrize("first", [FirstRecord(7, 41), FirstRecord(7, None)])
def test_topics_that_are_cut_after_the_outputs_end_are_refused(kafka, first):
    kafka.kept["bank.a"][0] = first
    with pytest.raises(ConfigError, match="no longer has all changes"):
        kafka()


def test_what_mirrors_lack_must_be_in_kafka_too(kafka):
    assert PROOF.needs_after_us == 40_000
    behind = replace(PROOF, mirror_release=1, mirror_through_us=20_000)
    kafka.kept["bank.a"] = {0: FirstRecord(7, 30)}
    kafka()
    with pytest.raises(ConfigError, match="no longer has all changes"):
        kafka(behind)
    kafka.kept["bank.a"] = {0: FirstRecord(7, 20)}
    kafka(behind)
    state = State.adopted(prefix="bank", query_id="q", proof=behind, code="1")
    assert (state.mirrored, state.next_release) == (1, 4)


def test_topics_that_do_not_exist_are_refused(kafka):
    kafka.kept.clear()
    with pytest.raises(ConfigError, match="no longer has all changes"):
        kafka()


@pytest.mark.parametrize("ids", [{"bank-dead-letter": "an id"}, {}])
def test_changes_that_may_have_been_put_back_are_refused(kafka, ids):
    kafka.dead_letter.clear()
    kafka.dead_letter.update(ids)
    with pytest.raises(ConfigError, match="parked"):
        kafka()


@pytest.mark.parametrize(("missing", "compared"), [([], 1), (["bank-progress"], 0)])
def test_names_are_compared_where_there_is_a_progress_topic(monkeypatch, missing, compared):
    seen = []
    monkeypatch.setattr(adopt_command, "find_missing_topics", lambda *_, **__: missing)
    monkeypatch.setattr(
        adopt_command, "require_topic_names", lambda config, _: seen.append(config.prefix)
    )
    adopt_command.require_names(ConsumerConfig.load(None, **SETTINGS))
    assert seen == ["bank"] * compared


def test_the_state_that_adopts_is_stored_and_other_states_do_not_show_it():
    state = State.adopted(prefix="bank", query_id="q", proof=PROOF, code="1")
    assert State.restore(json.loads(json.dumps(state.snapshot()))) == state
    assert (state.batch, state.watermark_us, state.next_release) == (-1, 40_000, 4)
    assert (state.adopts_through_us, state.format) == (40_000, STATE_FORMAT)
    state.check_invariants()
    plain = State(prefix="bank", query_id="q")
    assert "adopts_through_us" not in plain.snapshot()
    assert State.restore(plain.snapshot()) == plain
