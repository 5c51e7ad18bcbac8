"""Metrics, health and the pages of a process."""

from __future__ import annotations

import json
import socket
import struct
import urllib.error
import urllib.request
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

import tidegate
from tidegate.program.status_server import Health, Metric, Metrics, StatusServer, serve_status
from tidegate.schemas.errors import ConfigError


def test_a_program_is_alive_while_its_loop_steps_and_ready_when_it_says_so():
    now_s = [100.0]
    health = Health(stalled_after_s=10, clock=lambda: now_s[0])
    assert (health.fault, health.not_ready) == ("", "starting")
    health.set_ready()
    assert health.not_ready == ""
    health.set_not_ready("waiting for topics")
    assert health.not_ready == "waiting for topics"
    health.set_ready()
    now_s[0] += 10
    assert health.fault == health.not_ready == ""
    now_s[0] += 1
    assert health.fault == health.not_ready == "no step for 11 s"
    health.step()
    assert health.fault == health.not_ready == ""


DEFINITIONS = (
    Metric("boiled_total", "counter", "How often", ("pot",)),
    Metric("burnt_total", "counter", "How often it was too much"),
    Metric("heat", "gauge", "How much"),
    Metric("level", "gauge", "How full", ("pot",)),
    Metric("boiling_seconds", "histogram", "How long"),
)


@pytest.fixture
def metrics():
    return Metrics("kettle", DEFINITIONS)


def test_counters_are_added_to_and_gauges_set_or_followed(metrics):
    metrics.add("boiled_total", 3, pot="red")
    metrics.add("boiled_total", pot="red")
    metrics.add("burnt_total")
    metrics.set("heat", 5)
    metrics.set("heat", 4)
    metrics.set("level", 7, pot="red")
    value = metrics.registry.get_sample_value
    assert value("kettle_boiled_total", {"pot": "red"}) == 4
    assert value("kettle_burnt_total") == 1
    assert value("kettle_heat") == 4
    assert value("kettle_level", {"pot": "red"}) == 7
    # Every object counts for itself.
    assert Metrics("kettle", DEFINITIONS).registry.get_sample_value("kettle_heat") == 0
    heat = [5.0]
    metrics.follow("heat", lambda: heat[-1])
    assert value("kettle_heat") == 5
    heat.append(6.0)
    assert value("kettle_heat") == 6
    shown = {family.name: family for family in metrics.registry.collect()}
    assert shown["kettle_heat"].documentation == "How much"
    assert shown["kettle_boiled"].type == "counter"
    assert shown["kettle_boiling_seconds"].type == "histogram"
    assert value("tidegate_build_info", {"version": tidegate.__version__}) == 1
    assert value("process_resident_memory_bytes") > 1 << 20


def test_durations_from_a_tenth_of_a_second_to_an_hour_have_buckets(metrics):
    # Clocks of machines differ: a sum that falls would look like a restart.
    for seconds in (-5.0, 0.1, 0.2, 3_600, 3_601):
        metrics.observe("boiling_seconds", seconds)

    def value(suffix, **labels):
        return metrics.registry.get_sample_value(f"kettle_boiling_seconds_{suffix}", labels)

    found = [value("bucket", le=edge) for edge in ("0.1", "0.25", "1800.0", "3600.0", "+Inf")]
    assert found == [2, 3, 3, 4, 5]
    assert (value("count"), value("sum")) == (5, pytest.approx(7_201.3))


@pytest.fixture
def health():
    return Health()


@pytest.fixture
def serve(metrics, health):
    """Start a status server; `get` reads a page of it."""
    with ExitStack() as stack:

        def start(host="127.0.0.1", port=0, **options):
            options = {"registry": metrics.registry, "health": health, **options}
            return stack.enter_context(StatusServer(host, port, **options))

        yield start


def get(port, path):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def test_pages_are_metrics_json_and_probes_and_no_others_exist(serve, metrics, health):
    """The name of a file in a page may be bytes of any kind."""
    server = serve(pages={"/errors": lambda: '{"text": "a\udcff"}'})
    metrics.set("heat", 12.5)
    status, text = get(server.port, "/metrics")
    assert status == 200
    assert "kettle_heat 12.5" in text
    assert "tidegate_build_info{version=" in text
    status, text = get(server.port, "/errors")
    assert (status, json.loads(text)) == (200, {"text": "a\udcff"})
    assert text.endswith("\n")
    absent = (404, "try /metrics, /errors, /healthz or /readyz\n")
    for path in ("/", "/else", "/metrics/x", "/health"):
        assert get(server.port, path) == absent
    health.set_ready()
    health.set_warning("a\udcff.avro is away")
    assert get(server.port, "/readyz") == (200, "ok, but a\\udcff.avro is away\n")


def test_probes_answer_as_the_loop_says(serve):
    now_s = [0.0]
    health = Health(stalled_after_s=5, clock=lambda: now_s[0])
    port = serve(health=health).port

    def probes():
        return get(port, "/healthz"), get(port, "/readyz")

    assert probes() == ((200, "ok\n"), (503, "starting\n"))
    health.set_ready()
    assert probes() == ((200, "ok\n"), (200, "ok\n"))
    health.set_warning("a kettle is dry")
    assert probes() == ((200, "ok\n"), (200, "ok, but a kettle is dry\n"))
    now_s[0] = 6.0
    assert probes() == ((503, "no step for 6 s\n"), (503, "no step for 6 s\n"))


def test_an_address_that_cannot_be_listened_on_is_named_and_a_closed_server_gives_it_back(serve):
    first = serve()
    with pytest.raises(ConfigError, match=f"metrics_port: port {first.port} is taken"):
        serve(port=first.port)
    first.close()
    serve(port=first.port)
    for host in ("no such host", "192.0.2.1", "worker..example", "w" * 64):
        with pytest.raises(ConfigError, match=f"metrics_host: cannot listen on '{host}'"):
            serve(host=host)


def test_a_client_that_resets_its_connection_is_no_line_in_the_log(serve, capfd):
    server = serve()
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.sendall(b"GET /metrics HTTP/1.1\r\n")
    assert get(server.port, "/healthz")[0] == 200
    assert capfd.readouterr().err == ""


def test_settings_name_the_address_and_without_a_port_nothing_listens(metrics, health):
    silent = SimpleNamespace(metrics_host="no such host", metrics_port=0)
    with serve_status(silent, registry=metrics.registry, health=health):
        pass
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = SimpleNamespace(metrics_host="127.0.0.1", metrics_port=port)
    with serve_status(settings, registry=metrics.registry, health=health):
        assert get(port, "/healthz")[0] == 200
