"""When the registry counts as ready, by a small server; the real one has an integration test."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tidegate.local_stack.parts.java import Java
from tidegate.local_stack.parts.jvm_parts import JvmParts
from tidegate.local_stack.parts.ports import choose_ports
from tidegate.local_stack.parts.schema_registry import SchemaRegistry


def make_registry(tmp_path: Path, port: int) -> SchemaRegistry:
    return SchemaRegistry(
        java=Java(program=Path("/no/java"), major=17),
        parts=JvmParts(tmp_path),
        data_dir=tmp_path / "data",
        port=port,
        cancelled=threading.Event(),
    )


@pytest.fixture
def answer_with():
    """Start a server that gives one status to every request; gives its port."""
    servers = []

    def start(status: int) -> int:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(status if self.path == "/apis/ccompat/v7/subjects" else 404)
                self.end_headers()

            def log_message(self, *_):
                """Say nothing."""

        server = HTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server.server_address[1]

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(("status", "ready"), [(200, True), (404, False), (503, False)])
def test_it_is_ready_when_its_subjects_answer(tmp_path, answer_with, status, ready):
    registry = make_registry(tmp_path, answer_with(status))

    assert ready is registry._answers()


def test_it_is_not_ready_while_nobody_listens(tmp_path):
    assert not make_registry(tmp_path, choose_ports({"x": 0})["x"])._answers()


def test_a_proxy_is_not_asked_for_our_own_machine(tmp_path, answer_with, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")

    assert make_registry(tmp_path, answer_with(200))._answers()


def test_the_address_is_what_the_clients_take(tmp_path):
    assert "http://127.0.0.1:81/apis/ccompat/v7" == make_registry(tmp_path, 81).url


def test_stopping_what_was_never_started_is_fine(tmp_path):
    make_registry(tmp_path, 81).stop()
