"""What the judge reads of topics."""

from __future__ import annotations

import io
import json
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace
from typing import Any

import fastavro
import pytest

from tidegate.local_stack.judge import topics as judge_topics
from tidegate.local_stack.judge.topics import finished_stream_partitions

PROGRESS_KEY = {"type": "record", "name": "K", "fields": [
    {"name": "kind", "type": "string"}, {"name": "id", "type": "string"},
]}  # fmt: skip
PROGRESS = {"type": "record", "name": "R", "fields": [
    {"name": "epoch", "type": "string"},
    {"name": "body", "type": {"type": "record", "name": "B", "fields": [
        {"name": "token", "type": "string"}]}},
]}  # fmt: skip
SCHEMAS = {1: fastavro.parse_schema(PROGRESS_KEY), 2: fastavro.parse_schema(PROGRESS)}
WRITTEN_MS = 1_700_000_000_000


def framed(schema_id: int, record: dict[str, Any]) -> bytes:
    body = io.BytesIO()
    fastavro.schemaless_writer(body, SCHEMAS[schema_id], record)
    return struct.pack(">bI", 0, schema_id) + body.getvalue()


def progress(kind: str, token: str, *, has_value: bool = True) -> Any:
    value = framed(2, {"epoch": "e", "body": {"token": token}}) if has_value else None
    return SimpleNamespace(
        key=lambda: framed(1, {"kind": kind, "id": token}),
        value=lambda: value,
        timestamp=lambda: (1, WRITTEN_MS),
    )


def test_only_markers_count_and_each_stream_partition_once(monkeypatch: pytest.MonkeyPatch):
    messages = [
        *(progress("PARTITION_FINISHED", token) for token in ("a", "a", "b")),
        progress("PARTITION_FINISHED", "gone", has_value=False),
        progress("PARTITION_ANNOUNCED", "c"),
    ]
    topics = {"p-progress": messages}
    monkeypatch.setattr(judge_topics, "committed_messages", lambda _, names: topics[names[0]])
    monkeypatch.setattr(judge_topics, "registry_schemas", lambda _: SCHEMAS.__getitem__)

    found = finished_stream_partitions("p", bootstrap_servers="b", registry_url="r")
    assert found == dict.fromkeys("ab", WRITTEN_MS)


class Consumer:
    """Two messages, then silence; its position passes a transaction marker at the end."""

    def __init__(self, last_position: int) -> None:
        self.left, self.at, self.last_position = [1, 2], 0, last_position

    def consume(self, _count: int, _timeout_s: float) -> list[Any]:
        if not self.left:
            self.at = self.last_position
            return []
        self.at = self.left.pop(0)
        return [SimpleNamespace(number=self.at, error=lambda: None)]

    def position(self, asked: list[Any]) -> list[Any]:
        return [
            SimpleNamespace(topic=one.topic, partition=one.partition, offset=self.at)
            for one in asked
        ]


def test_reading_ends_behind_a_marker_that_is_no_message(monkeypatch: pytest.MonkeyPatch):
    ends = {("t", 0): 3}
    found = list(judge_topics._messages_until(Consumer(3), ends))
    assert [one.number for one in found] == [1, 2]
    monkeypatch.setattr(judge_topics, "_QUIET_MAX_S", 0.0)
    with pytest.raises(TimeoutError):
        list(judge_topics._messages_until(Consumer(2), ends))


class RegistryOfOneSchema(BaseHTTPRequestHandler):
    """Answers each request with the same schema."""

    def do_GET(self) -> None:
        text = json.dumps({"schema": json.dumps(PROGRESS_KEY)}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@contextmanager
def bound_but_away() -> Iterator[HTTPServer]:
    """A registry whose port is its own but refuses connections until it is activated."""
    server = HTTPServer(("127.0.0.1", 0), RegistryOfOneSchema, bind_and_activate=False)
    server.server_bind()
    try:
        yield server
    finally:
        server.server_close()


def test_schemas_are_waited_for_while_the_registry_is_away(monkeypatch: pytest.MonkeyPatch):
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 8:
            server.server_activate()
            threading.Thread(target=server.handle_request, daemon=True).start()

    monkeypatch.setattr(
        "confluent_kafka.schema_registry._sync.schema_registry_client.time.sleep", sleep
    )
    with bound_but_away() as server:
        schema = judge_topics.registry_schemas(f"http://127.0.0.1:{server.server_port}")(7)
    assert schema["name"] == "K"
    assert len(waits) == 8
