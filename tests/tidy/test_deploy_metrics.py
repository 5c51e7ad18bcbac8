"""Alerts and dashboard name metrics and labels that there are, in PromQL that can be read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from tidegate.producer.metrics import METRICS as PRODUCER
from tidegate.spark_consumer.metrics import METRICS as CONSUMER

ROOT = Path(__file__).parents[2]
ALERTS = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yaml").read_text())
DASHBOARD = json.loads((ROOT / "deploy/grafana/tidegate.json").read_text())
RULES = [rule for group in ALERTS["groups"] for rule in group["rules"]]
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]

OF_EVERY_SCRAPE = frozenset({"job", "instance"})
LABELS = {
    f"tidegate_{program}_{metric.name}": OF_EVERY_SCRAPE.union(metric.labels)
    for program, metrics in (("producer", PRODUCER), ("consumer", CONSUMER))
    for metric in metrics
} | dict.fromkeys(
    ("up", "tidegate_build_info", "process_cpu_seconds_total", "process_resident_memory_bytes"),
    OF_EVERY_SCRAPE,
)
COUNTERS = {name for name in LABELS if name.endswith("_total")}


def _queries() -> Iterator[Any]:
    for rule in RULES:
        yield pytest.param(rule["expr"], id=rule["alert"])
    for panel in PANELS:
        for target in panel["targets"]:
            expression = target["expr"].replace("$__rate_interval", "5m").replace("$job", ".*")
            yield pytest.param(expression, id=f"{panel['title']}: {target['refId']}")


QUERIES = tuple(_queries())


def parts(expression: Any, function: str = "") -> Iterator[tuple[Any, str]]:
    """Yield each part with the name of the innermost function around it; "" outside of any."""
    yield expression, function
    if isinstance(expression, promql_parser.Call):
        function = expression.func.name
        inner = list(expression.args)
    else:
        inner = [
            getattr(expression, name, None) for name in ("lhs", "rhs", "expr", "vector_selector")
        ]
    for one in inner:
        if one is not None:
            yield from parts(one, function)


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_names_what_there_is(query):
    selected = [
        (part, function)
        for part, function in parts(promql_parser.parse(query))
        if isinstance(part, promql_parser.VectorSelector)
    ]
    assert selected
    for part, function in selected:
        assert part.name in LABELS
        used = {matcher.name for matcher in part.matchers.matchers}
        assert used <= LABELS[part.name]
        assert (part.name in COUNTERS) == (function in {"rate", "increase"})


@pytest.mark.parametrize("query", QUERIES)
def test_what_is_grouped_by_is_a_label(query):
    known = set().union(*(LABELS[name] for name in LABELS if name in query))
    for part, _ in parts(promql_parser.parse(query)):
        if isinstance(part, promql_parser.AggregateExpr) and part.modifier is not None:
            assert set(part.modifier.labels) <= known


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_says_who_is_called_and_what_it_means(rule):
    assert rule["labels"]["severity"] in {"page", "ticket"}
    summary, description = rule["annotations"]["summary"], rule["annotations"]["description"]
    assert description.endswith(".")
    assert rule["annotations"]["page"].startswith("docs/")
    shown = set(re.findall(r"\$labels\.(\w+)", summary + description))
    assert shown <= set().union(*(LABELS[name] for name in LABELS if name in rule["expr"]))


def test_what_the_docs_alarm_on_has_an_alert():
    page = (ROOT / "docs/reference/alerts.md").read_text()
    named = set(re.findall(r"tidegate_(?:producer|consumer)_\w+", page))
    in_rules = {name for rule in RULES for name in LABELS if name in rule["expr"]}
    # Compared with a setting, or with what the machine did before: no limit fits everybody.
    by_hand = {
        "tidegate_producer_bytes_in_flight",
        "tidegate_producer_files_open_seconds",
        "tidegate_consumer_batch_seconds",
        "tidegate_consumer_batch_phase_seconds_total",
        "tidegate_producer_orphan_rounds_total",
        "tidegate_producer_parked_total",
    }
    assert named - in_rules == by_hand


def test_each_alert_and_panel_is_there_once():
    alerts = [rule["alert"] for rule in RULES]
    titles = [panel["title"] for panel in PANELS]
    assert len(set(alerts)) == len(alerts)
    assert len(set(titles)) == len(titles)
    assert all(panel["description"] for panel in PANELS)


def test_panels_do_not_overlap():
    taken = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        taken |= cells
