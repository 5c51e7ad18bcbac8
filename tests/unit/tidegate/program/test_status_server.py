"""The status server: metrics and two probes, nothing else."""

from __future__ import annotations

import json
import socket
import struct
import urllib.error
import urllib.request
from types import SimpleNamespace

import pytest

from tidegate.program.health import Health
from tidegate.program.metrics import Metric, Metrics
from tidegate.program.status_server import StatusServer, serve_status
from tidegate.schemas.errors import ConfigError


@pytest.fixture
def health():
    return Health()


@pytest.fixture
def metrics():
    return Metrics("kettle", [Metric("heat", "gauge", "How much")])


@pytest.fixture
def server(metrics, health):
    with StatusServer("127.0.0.1", 0, registry=metrics.registry, health=health) as running:
        yield running


def get(port, path):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def test_a_scrape_shows_what_was_measured(server, metrics):
    metrics.set("heat", 12.5)
    status, text = get(server.port, "/metrics")
    assert status == 200
    assert "kettle_heat 12.5" in text
    assert "tidegate_build_info{version=" in text


def test_a_page_of_the_program_is_json(metrics, health):
    pages = {"/errors": lambda: '{"retried": []}'}
    with StatusServer(
        "127.0.0.1", 0, registry=metrics.registry, health=health, pages=pages
    ) as server:
        assert get(server.port, "/errors") == (200, '{"retried": []}\n')
        assert get(server.port, "/else") == (
            404, "try /metrics, /errors, /healthz or /readyz\n",
        )  # fmt: skip


def test_what_has_no_utf_8_is_escaped(metrics, health):
    """The name of a file may be bytes of any kind."""
    health.set_ready()
    health.set_warning("a\udcff.avro is away")
    pages = {"/errors": lambda: json.dumps({"text": "a\udcff"}, ensure_ascii=False)}
    with StatusServer(
        "127.0.0.1", 0, registry=metrics.registry, health=health, pages=pages
    ) as server:
        assert get(server.port, "/readyz") == (200, "ok, but a\\udcff.avro is away\n")
        status, text = get(server.port, "/errors")
    assert (status, json.loads(text)) == (200, {"text": "a\udcff"})


def test_probes_answer_as_the_loop_says(server, health):
    assert get(server.port, "/healthz") == (200, "ok\n")
    assert get(server.port, "/readyz") == (503, "starting\n")
    health.set_ready()
    assert get(server.port, "/readyz") == (200, "ok\n")
    health.set_warning("a kettle is dry")
    assert get(server.port, "/readyz") == (200, "ok, but a kettle is dry\n")
    assert get(server.port, "/healthz") == (200, "ok\n")


def test_a_loop_that_stands_still_fails_both_probes(metrics):
    now = [0.0]
    health = Health(stalled_after_s=5, clock=lambda: now[0])
    health.set_ready()
    with StatusServer("127.0.0.1", 0, registry=metrics.registry, health=health) as server:
        now[0] = 6.0
        assert get(server.port, "/healthz") == (503, "no step for 6 s\n")
        assert get(server.port, "/readyz") == (503, "no step for 6 s\n")


@pytest.mark.parametrize("path", ["/", "/metrics/x", "/favicon.ico", "/health"])
def test_other_paths_do_not_exist(server, path):
    status, text = get(server.port, path)
    assert status == 404
    assert "/metrics" in text


def test_a_port_that_is_taken_is_named(server, metrics, health):
    with pytest.raises(ConfigError, match=f"metrics_port: port {server.port} is taken"):
        StatusServer("127.0.0.1", server.port, registry=metrics.registry, health=health)


@pytest.mark.parametrize("host", ["no such host", "192.0.2.1"])
def test_an_address_of_another_machine_is_named(metrics, health, host):
    with pytest.raises(ConfigError, match=f"metrics_host: cannot listen on '{host}'"):
        StatusServer(host, 0, registry=metrics.registry, health=health)


def test_a_closed_server_gives_its_port_back(metrics, health):
    with StatusServer("127.0.0.1", 0, registry=metrics.registry, health=health) as first:
        port = first.port
    StatusServer("127.0.0.1", port, registry=metrics.registry, health=health).close()


def test_a_client_that_resets_its_connection_is_no_line_in_the_log(server, capfd):
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.sendall(b"GET /metrics HTTP/1.1\r\n")
    assert get(server.port, "/healthz")[0] == 200
    assert capfd.readouterr().err == ""


def test_without_a_port_nothing_listens(metrics, health):
    settings = SimpleNamespace(metrics_host="no such host", metrics_port=0)
    with serve_status(settings, registry=metrics.registry, health=health):
        pass


def test_settings_name_the_address(metrics, health):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = SimpleNamespace(metrics_host="127.0.0.1", metrics_port=port)
    with serve_status(settings, registry=metrics.registry, health=health):
        assert get(port, "/healthz")[0] == 200
