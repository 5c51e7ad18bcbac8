"""What readers meet: every kind, decided by the seed, and taken back at the end."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import islice

import pytest

from tests.chaos.producer import source_faults
from tests.chaos.producer.source_faults import KINDS, READ_FAULTS, SourceFaults, source_faults_of
from tidegate.local_stack.demo.conductor import SimulatorControl


def test_a_seed_decides_everything_and_every_kind_comes_before_any_comes_again():
    first = list(islice(source_faults_of(7), 3 * len(KINDS)))

    assert first == list(islice(source_faults_of(7), 3 * len(KINDS)))
    assert first != list(islice(source_faults_of(8), 3 * len(KINDS)))
    for begin in range(0, len(first), len(KINDS)):
        assert {one.kind for one in first[begin : begin + len(KINDS)]} == set(KINDS)


@pytest.fixture
def simulator():
    """An HTTP server that keeps what it was sent; it refuses to interrupt."""
    sent = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self._answer(200, [{"token": "a"}, {"token": "b"}])

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            sent.append((self.path, body))
            self._answer(400 if self.path == "/interrupt" else 200, {"number": len(sent)})

        def _answer(self, code, content):
            self.send_response(code)
            self.end_headers()
            self.wfile.write(json.dumps(content).encode())

        def log_message(self, *_arguments):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"127.0.0.1:{server.server_port}", sent
    server.shutdown()
    server.server_close()
    thread.join()


def test_all_are_carried_out_one_is_refused_and_all_are_taken_back(simulator, monkeypatch):
    monkeypatch.setattr(source_faults, "_EVERY_S", (0.0, 0.0))
    monkeypatch.setattr(source_faults, "_HOLD_S", (0.0, 0.0))
    address, sent = simulator
    said, ended = [], threading.Event()
    faults = SourceFaults(SimulatorControl(address, "d", "s"), 7, say=said.append)
    thread = threading.Thread(target=faults.disturb, args=(ended,), daemon=True)
    thread.start()
    while faults.done.keys() != set(KINDS) - {"interrupt"} or not said:
        assert thread.is_alive()
    ended.set()
    thread.join()

    assert [path for path, _ in sent[-2:]] == ["/clear-faults", "/release-all"]
    rules = [body for path, body in sent if path == "/add-fault"]
    assert {body["kind"] for body in rules} == {"status", "clean_end", "stall", "slow", "drop"}
    assert all(body["stream"] == "s" and body["count"] >= 1 for body in rules)
    assert {path for path, _ in sent} >= {"/drop-connections", "/hold", "/release", "/interrupt"}
    assert "interrupt was refused" in said[0]


def test_reads_of_tables_are_broken_until_their_end_and_no_longer(simulator):
    address, sent = simulator
    ended = threading.Event()
    ended.set()
    SourceFaults(SimulatorControl(address, "d", "s"), 7, say=print).break_reads(ended)

    added = [body for path, body in sent if path == "/add-fault"]
    assert [body["kind"] for body in added] == [what["kind"] for what in READ_FAULTS]
    assert all(body["method"] == "StreamingRead" and body["count"] is None for body in added)
    assert [body for path, body in sent if path == "/clear-faults"] == [
        {"number": 1}, {"number": 2}, {"number": 3},
    ]  # fmt: skip
