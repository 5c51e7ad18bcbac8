"""Completion markers are counted once per stream partition; a real topic: see tests/integration."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from tidegate.local_stack.judge import progress as judge_progress


@dataclass
class Message:
    kind: str
    id: str
    body: Any = "marker"

    def key(self) -> dict[str, str]:
        return {"kind": self.kind, "id": self.id}

    def value(self) -> Any:
        return self.body

    def timestamp(self) -> tuple[int, int]:
        return 1, 5


def test_only_markers_count_and_each_stream_partition_once(monkeypatch: pytest.MonkeyPatch):
    found = [
        Message("PARTITION_FINISHED", "a"),
        Message("PARTITION_FINISHED", "a"),
        Message("PARTITION_FINISHED", "b"),
        Message("PARTITION_FINISHED", "tombstoned", None),
        Message("PARTITION_ANNOUNCED", "c"),
        Message("SLOT_PROGRESS", "3"),
    ]
    asked = []

    def read(topic: str, **_: Any) -> list[Message]:
        asked.append(topic)
        return found

    monkeypatch.setattr(judge_progress, "read_topic", read)
    tokens = judge_progress.finished_stream_partitions(
        "bank", bootstrap_servers="b", registry_url="r"
    )

    assert tokens == {"a": 5, "b": 5}
    assert asked == ["bank-progress"]


class Consumer:
    """Two messages, then silence; its position passes a transaction marker at the end."""

    def __init__(self, messages: int, last_position: int) -> None:
        self.left, self.at, self.last_position = messages, 0, last_position

    def poll(self, _timeout_s: float) -> str | None:
        if self.left == 0:
            self.at = self.last_position
            return None
        self.left -= 1
        self.at += 1
        return f"message {self.at}"

    def position(self, asked: list[Any]) -> list[Any]:
        return [SimpleNamespace(partition=one.partition, offset=self.at) for one in asked]


def test_reading_ends_behind_a_marker_that_is_no_message():
    found = judge_progress._read_until(Consumer(2, last_position=3), topic="t", ends={0: 3})

    assert found == ["message 1", "message 2"]


def test_an_end_that_is_never_reached_is_an_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(judge_progress, "_QUIET_MAX_S", 0.0)
    with pytest.raises(TimeoutError):
        judge_progress._read_until(Consumer(2, last_position=2), topic="t", ends={0: 3})
