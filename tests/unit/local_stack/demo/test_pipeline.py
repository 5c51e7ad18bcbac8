"""Waiting ends with the condition, with a deadline, or with a program that ends by itself."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tidegate.local_stack.demo import pipeline as module
from tidegate.local_stack.demo.pipeline import Pipeline, Released
from tidegate.local_stack.errors import PartFailedError
from tidegate.local_stack.parts.process import ProcessSpec
from tidegate.local_stack.parts.programs import Program

SLEEPS = "import time; print('still here', flush=True); time.sleep(60)"
WORKS = """import time; print('{"event": "step", "step": "s"}', flush=True); time.sleep(60)"""
DIES = "raise SystemExit('a fine reason')"
ENDS_BADLY = (
    "import signal, time, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(3)); "
    "print('ready', flush=True); time.sleep(60)"
)


class FakePrograms:
    prefix = "bank"
    bootstrap_servers = "k:1"

    def __init__(self, folder: Path, code: str = SLEEPS) -> None:
        self.folder, self.output, self.code = folder, folder / "output", code
        self.checkpoint = folder / "checkpoint"

    def worker(self, name: str, *, start: str) -> Program:
        assert start == "now"
        return self._program(name)

    def consumer(self) -> Program:
        return self._program("consumer")

    def _program(self, name: str) -> Program:
        log = self.folder / f"{name}.log"
        return Program(ProcessSpec(name=name, command=[sys.executable, "-c", self.code], log=log))


@pytest.fixture(autouse=True)
def answers(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, int]]:
    """What Kafka says its topics are, one answer after the other, the last one again and again."""
    said: list[dict[str, int]] = [{"bank-progress": 1}]

    class Admin:
        def __init__(self, config: dict[str, str]) -> None:
            assert config == {"bootstrap.servers": "k:1"}

        def list_topics(self, timeout: float) -> Admin:
            assert timeout > 0
            self.topics = said.pop(0) if len(said) > 1 else said[0]
            return self

    monkeypatch.setattr(module, "AdminClient", Admin)
    return said


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    made = Pipeline(FakePrograms(tmp_path))
    yield made
    made.stop()


def test_workers_are_named_by_number(pipeline: Pipeline):
    pipeline.start_workers(2, start="now")

    assert [worker.name for worker in pipeline.workers] == ["w1", "w2"]
    assert all(worker.process.is_running for worker in pipeline.workers)


def test_the_consumer_waits_for_the_progress_topic(
    pipeline: Pipeline, answers: list[dict[str, int]]
):
    answers[:0] = [{}, {"other": 1}]
    pipeline.start_consumer()

    assert answers == [{"bank-progress": 1}]
    assert pipeline.consumer is not None
    assert pipeline.consumer.process.is_running


def test_a_program_that_ends_by_itself_ends_the_wait_with_its_log(tmp_path: Path):
    pipeline = Pipeline(FakePrograms(tmp_path, DIES))
    pipeline.start_workers(1, start="now")

    with pytest.raises(PartFailedError, match="w1 ended by itself with exit code 1") as raised:
        pipeline.wait(lambda: False, what="nothing", deadline_s=60)
    assert "a fine reason" in str(raised.value)


def test_a_program_that_was_killed_on_purpose_is_no_failure(pipeline: Pipeline):
    pipeline.start_workers(1, start="now")
    (worker,) = pipeline.workers
    pipeline.going_down(worker)
    worker.kill()
    pipeline.check()
    worker.start()
    pipeline.is_up_again(worker)
    pipeline.check()

    worker.kill()
    with pytest.raises(PartFailedError, match="w1"):
        pipeline.check()


def test_a_deadline_shows_what_was_waited_for_and_all_logs(pipeline: Pipeline):
    pipeline.start_workers(1, start="now")
    ticks: list[int] = []

    with pytest.raises(PartFailedError, match="for the moon") as raised:
        pipeline.wait(lambda: False, what="the moon", deadline_s=0.0, tick=lambda: ticks.append(1))
    assert "w1.log" in str(raised.value)
    assert ticks == [1]


def test_released_is_the_newest_manifest(pipeline: Pipeline):
    assert pipeline.released() == Released(0, 0)
    folder = pipeline.programs.output / "_releases"
    folder.mkdir(parents=True)

    def publish(number: int, through_us: int, mirror: dict[str, int] | None) -> None:
        sinks = {"changelog": {}} if mirror is None else {"changelog": {}, "mirror": mirror}
        content = {"release": number, "through_us": through_us, "tables": {"t": sinks}}
        (folder / f"{number:012d}.json").write_text(json.dumps(content))

    publish(0, 10, {})
    for mirror in (None, {"release": 0}):
        publish(1, 25, mirror)
        assert pipeline.released() == Released(2, 25, is_mirrored=False)
        with pytest.raises(PartFailedError):
            pipeline.wait_released(25, deadline_s=0.0)
    publish(1, 25, {"release": 1})
    assert pipeline.released() == Released(2, 25)
    pipeline.wait_released(25, deadline_s=0.0)
    with pytest.raises(PartFailedError):
        pipeline.wait_released(26, deadline_s=0.0)


def test_a_deadline_of_a_release_says_how_far_the_consumer_is(pipeline: Pipeline):
    pipeline.start_consumer()
    with pytest.raises(PartFailedError, match=r"through_us=0.*no batch"):
        pipeline.wait_released(1, deadline_s=0.0)
    batches = [
        json.dumps({"event": event, "watermark_us": us})
        for event, us in [("batch", 1), ("batch", 2), ("step", 3)]
    ]
    pipeline.consumer.spec.log.write_text("\n".join(batches))
    with pytest.raises(PartFailedError, match=r'log: \{"event": "batch", "watermark_us": 2\}\n'):
        pipeline.wait_released(1, deadline_s=0.0)


def test_stopping_names_the_program_with_a_failed_exit(tmp_path: Path):
    pipeline = Pipeline(FakePrograms(tmp_path, ENDS_BADLY))
    pipeline.start_workers(1, start="now")
    log = tmp_path / "w1.log"
    pipeline.wait(
        lambda: log.exists() and "ready" in log.read_text(), what="a start", deadline_s=30
    )

    (fault,) = pipeline.stop()
    assert "w1 was stopped and ended with exit code 3" in fault
    assert pipeline.stop() == []


@pytest.mark.parametrize(("code", "faults"), [(SLEEPS, 0), (WORKS, 1)], ids=["before", "after"])
def test_a_program_may_be_stopped_before_its_first_step(tmp_path: Path, code: str, faults: int):
    pipeline = Pipeline(FakePrograms(tmp_path, code))
    pipeline.start_workers(1, start="now")
    (worker,) = pipeline.workers
    log = worker.spec.log
    pipeline.wait(lambda: log.exists() and log.stat().st_size > 0, what="a line", deadline_s=30)

    found = pipeline.stop()

    assert worker.process.exit_code == 143
    assert ["exit code 143" in one for one in found] == [True] * faults


@pytest.mark.parametrize(("names", "batches"), [([], 0), (["0", "9", "10", ".10.crc"], 11)])
def test_batches_are_counted_by_sparks_commits(tmp_path: Path, names: list[str], batches: int):
    commits = tmp_path / "checkpoint" / "spark" / "commits"
    commits.mkdir(parents=True)
    for name in names:
        (commits / name).touch()

    assert Pipeline(FakePrograms(tmp_path)).batches() == batches
    assert Pipeline(FakePrograms(tmp_path / "none")).batches() == 0


def test_the_records_of_a_topic_are_counted_and_none_before_it_has_a_leader(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
):
    failures = [KafkaException(KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION))]

    class Client:
        def __init__(self, _: object) -> None:
            pass

        def list_topics(self, topic: str, timeout: float) -> object:
            return SimpleNamespace(topics={topic: SimpleNamespace(partitions={0: None, 1: None})})

        def get_watermark_offsets(self, place: TopicPartition, timeout: float) -> tuple[int, int]:
            if failures:
                raise failures.pop()
            return 2, 5 + place.partition

        def close(self) -> None:
            pass

    monkeypatch.setattr(module, "Consumer", Client)

    assert [pipeline.records_in("t"), pipeline.records_in("t")] == [0, 7]
