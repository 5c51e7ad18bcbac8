"""The watch for a bounded stream's end: when it calls, and that a fault does not end it."""

import threading
from types import SimpleNamespace

import pytest

from tidegate.lineage.fleet_status import PartitionCondition
from tidegate.producer.cli import end_watch
from tidegate.producer.cli.end_watch import EndWatch
from tidegate.producer.config import ProducerConfig
from tidegate.producer.errors import StreamNotStarted
from tidegate.program.settings import InvalidSettings
from tidegate.schemas.errors import ConfigError, ConsumerError, UnreachableError

NEEDED = {
    "bootstrap_servers": "b:1", "registry_url": "http://r:1", "prefix": "p", "project": "project",
    "instance": "instance", "database": "database", "change_stream": "Feed",
}  # fmt: skip


class Readers:
    """Readers that say in turn whether the stream has ended, or raise."""

    def __init__(self, *looks):
        self.looks, self.closed, self.called = list(looks), 0, threading.Event()

    def __call__(self, _config):
        if isinstance(self.looks[0], StreamNotStarted):
            raise self.looks.pop(0)
        return self

    def read(self):
        look = self.looks.pop(0)
        if isinstance(look, Exception):
            raise look
        status = SimpleNamespace(has_ended=look is True, partitions=look or [])
        return SimpleNamespace(fleet=lambda: status)

    def wait(self, _seconds):
        if not self.looks:
            self.called.set()
            self.looks.append(False)

    def close(self):
        self.closed += 1


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(end_watch, "_LOOK_S", 0.0)
    monkeypatch.setattr(end_watch, "_AGAIN_S", 0.0)


@pytest.mark.parametrize(
    "looks",
    [
        (True,),
        (False, False, True),
        (StreamNotStarted("p-progress"), False, True),
        (False, UnreachableError("no broker"), True),
    ],
    ids=["at once", "later", "before the start", "after a fault"],
)
def test_it_calls_once_when_all_is_published(looks):
    readers, ends = Readers(*looks), threading.Event()
    watch = EndWatch(None, ends.set, open_reader=readers)
    assert ends.wait(30)
    watch.close()
    assert readers.looks == []
    assert readers.closed >= 1


def test_an_error_that_no_retry_repairs_ends_the_watch_with_it():
    error = ConsumerError("records contradict the protocol")
    readers, ends = Readers(error, error, True), threading.Event()
    watch = EndWatch(None, ends.set, open_reader=readers)
    assert ends.wait(30)
    watch.close()
    assert watch.failure is error
    assert len(readers.looks) == 2  # nothing was ever read: it is not tried again


def test_a_right_that_is_missing_for_a_while_ends_nothing(monkeypatch):
    now_s = [0.0]
    monkeypatch.setattr(end_watch.time, "monotonic", lambda: now_s[0])
    denied = ConfigError("Kafka denies access to topics")

    class Denied(Readers):
        def read(self):
            now_s[0] += 60.0
            return super().read()

    readers, ends = Denied(False, *[denied] * 3, False, *[denied] * 3, True), threading.Event()
    watch = EndWatch(None, ends.set, open_reader=readers)
    assert ends.wait(30)
    watch.close()
    assert (watch.failure, readers.looks) == (None, [])

    readers, ends = Denied(False, *[denied] * 9), threading.Event()
    watch = EndWatch(None, ends.set, open_reader=readers)
    assert ends.wait(30)
    watch.close()
    assert watch.failure is denied
    assert len(readers.looks) == 3  # after five minutes


def partition(condition, reason=None):
    return SimpleNamespace(token="t", condition=condition, reason=reason)


OPEN, WAITING = partition(PartitionCondition.OPEN), partition(PartitionCondition.WAITING)
STOPPED = partition(PartitionCondition.STOPPED, "a key that cannot be read")


def test_a_stream_that_only_a_stopped_stream_partition_holds_does_not_end():
    held = [[STOPPED, WAITING]]
    readers, ends = Readers(*held * 5, [STOPPED, OPEN], *held * 14, True), threading.Event()
    watch = EndWatch(None, ends.set, open_reader=readers)
    assert ends.wait(30)
    watch.close()
    assert watch.failure is None

    readers, ends = Readers(*held * 15), threading.Event()
    watch = EndWatch(None, ends.set, open_reader=readers)
    assert ends.wait(30)
    watch.close()
    assert "a key that cannot be read" in str(watch.failure)
    assert not watch.failure.retriable


def test_it_stops_without_a_call():
    readers, ends = Readers(False, False), threading.Event()
    watch = EndWatch(None, ends.set, open_reader=readers)
    assert readers.called.wait(30)
    watch.close()
    assert not ends.is_set()


def test_a_stream_without_an_end_cannot_be_waited_for():
    with pytest.raises(InvalidSettings, match="until: the stream has no end"):
        ProducerConfig.load(**NEEDED, until="ended")
    end = "2026-01-02T00:00:00Z"
    assert ProducerConfig.load(**NEEDED, start="2026-01-01T00:00:00Z", end=end, until="ended")
