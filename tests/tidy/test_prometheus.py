"""Metrics and alerts by Prometheus' own tool, `promtool`, of Debian's package `prometheus`."""

from __future__ import annotations

import re
import shutil
import subprocess
import urllib.request

import pytest
import yaml

from tests.tidy.pages import REPOSITORY
from tidegate.producer.observation.metrics import METRICS as PRODUCER_METRICS
from tidegate.producer.observation.metrics import producer_metrics
from tidegate.program.status_server import Health, StatusServer
from tidegate.spark_consumer.metrics import METRICS as CONSUMER_METRICS
from tidegate.spark_consumer.metrics import consumer_metrics

FOLDER = REPOSITORY / "deploy" / "prometheus"
PROGRAMS = {
    "producer": (producer_metrics, PRODUCER_METRICS),
    "consumer": (consumer_metrics, CONSUMER_METRICS),
}


@pytest.fixture
def promtool():
    """Run promtool; return its exit code and what it printed."""
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not installed: Debian's package prometheus has it")

    def run(*arguments, text=None):
        done = subprocess.run(
            [program, *arguments], input=text, capture_output=True, text=True, check=False,
            timeout=60,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    return run


def page_with_every_series(program):
    """Return the page of a program that has counted, set and measured everything once."""
    make, definitions = PROGRAMS[program]
    metrics = make()
    for definition in definitions:
        labels = dict.fromkeys(definition.labels, "x")
        match definition.kind:
            case "counter":
                metrics.add(definition.name, 3, **labels)
            case "gauge":
                metrics.set(definition.name, 3, **labels)
            case "histogram":
                metrics.observe(definition.name, 3)
    with (
        StatusServer("127.0.0.1", 0, registry=metrics.registry, health=Health()) as server,
        urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=10) as answer,
    ):
        return answer.read().decode()


@pytest.mark.parametrize("program", PROGRAMS)
def test_names_and_help_are_as_prometheus_wants_them(promtool, program):
    page = page_with_every_series(program)
    assert set(re.findall(rf"^# TYPE tidegate_{program}_\w+ (\w+)", page, re.MULTILINE)) == {
        "counter", "gauge", "histogram",
    }  # fmt: skip
    assert promtool("check", "metrics", text=page) == (0, "")
    broken = page.replace("_lag_seconds", "_lag_milliseconds")
    assert promtool("check", "metrics", text=broken)[0] != 0


def test_each_alert_fires_when_it_must_and_not_before(promtool, tmp_path):
    assert promtool("check", "rules", str(FOLDER / "alerts.yaml"))[0] == 0
    assert promtool("test", "rules", str(FOLDER / "alerts.test.yaml"))[0] == 0
    # Rules that never fire, or at once, are noticed.
    text = (FOLDER / "alerts.yaml").read_text()
    (tmp_path / "alerts.test.yaml").write_text((FOLDER / "alerts.test.yaml").read_text())
    for broken in (text.replace("for: 15m", "for: 1m"), re.sub(r"expr: .*", "expr: up > 1", text)):
        (tmp_path / "alerts.yaml").write_text(broken)
        assert promtool("test", "rules", str(tmp_path / "alerts.test.yaml"))[0] != 0


def test_each_alert_has_series_that_set_it_off():
    rules = yaml.safe_load((FOLDER / "alerts.yaml").read_text())
    tests = yaml.safe_load((FOLDER / "alerts.test.yaml").read_text())["tests"]
    fired = {
        re.search(r'alertname="(\w+)"', sample["labels"])[1]
        for test in tests
        for asked in test["promql_expr_test"]
        for sample in asked.get("exp_samples", ())
    }
    assert fired == {rule["alert"] for group in rules["groups"] for rule in group["rules"]}
