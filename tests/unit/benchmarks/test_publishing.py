"""CPU and wall time count until the consumer has all changes, and what follows is counted too."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from benchmarks.peers import publishing
from tidegate.local_stack.parts.process import ProcessSpec


class FakeConsumer:
    """Has so many records at each call, and then none."""

    def __init__(self, counts):
        self.counts = list(counts)
        self.is_closed = False

    def consume(self, _count, timeout):
        assert timeout > 0
        count = self.counts.pop(0) if self.counts else 0
        return [SimpleNamespace(error=lambda: None)] * count

    def close(self):
        self.is_closed = True


@pytest.fixture
def publish(tmp_path, monkeypatch):
    monkeypatch.setattr(publishing, "_create", lambda *_: None)
    monkeypatch.setattr(publishing, "_SETTLE_S", 0.01)

    def run(code, counts):
        consumer = FakeConsumer(counts)
        monkeypatch.setattr(publishing, "_consumer_of", lambda *_: consumer)
        program = ProcessSpec(
            name="a program", command=[sys.executable, "-c", code], log=tmp_path / "log"
        )
        try:
            return publishing.publish(program, topic="t", bootstrap_servers="nowhere", changes=300)
        finally:
            assert consumer.is_closed

    return run


def test_the_first_third_warms_up_and_copies_are_reported(publish, monkeypatch):
    seconds = iter([2.0, 6.0])
    monkeypatch.setattr(publishing, "_cpu_s", lambda _pid: next(seconds))

    found = publish("import time; time.sleep(60)", [0, 60, 60, 180, 7])

    assert (found["cpu_s"], found["cpu_us"], found["per_cpu_s"]) == (6.0, 20_000, 50)
    assert found["warm_cpu_us"] == pytest.approx(4e6 / 180)
    assert found["extra"] == 7
    assert 0 < found["first_s"] <= found["wall_s"]


def test_a_program_that_ends_ends_the_comparison_with_its_log(publish, monkeypatch):
    monkeypatch.setattr(publishing, "_cpu_s", lambda _pid: 1.0)

    with pytest.raises(SystemExit) as caught:
        publish("print('no such table')", [0, 10])

    assert "a program published 10 of 300 changes" in str(caught.value)
    assert "no such table" in str(caught.value)
