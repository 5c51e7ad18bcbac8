"""Images, Compose file, alerts and dashboard: what can be checked without a container engine."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import jsonschema
import promql_parser
import pytest
import yaml
from check_jsonschema.builtin_schemas import get_builtin_schema

from tests.tidy.pages import REPOSITORY
from tidegate.local_stack.parts.jvm_parts import fetched_jvm_parts, ivy_file
from tidegate.producer.config import ProducerConfig
from tidegate.producer.observation.metrics import METRICS as PRODUCER_METRICS
from tidegate.program.spark_versions import SPARK_LINES
from tidegate.spark_consumer.config import ConsumerConfig
from tidegate.spark_consumer.metrics import METRICS as CONSUMER_METRICS

IMAGES = {"producer": "producer", "consumer": "spark_consumer"}
DOCKERFILES = {
    image: (REPOSITORY / "docker" / folder / "Dockerfile").read_text()
    for image, folder in IMAGES.items()
}
LAST_STAGES = {image: text.rpartition("\nFROM ")[2] for image, text in DOCKERFILES.items()}
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
COMPOSE = yaml.safe_load((REPOSITORY / "deploy" / "compose.yaml").read_text())
JARS = REPOSITORY / "docker" / "spark_consumer" / "jars"
CONFIGS = {"PRODUCER": ProducerConfig, "CONSUMER": ConsumerConfig}


def pins(name):
    text = (REPOSITORY / "requirements" / name).read_text()
    return dict(re.findall(r"^([A-Za-z0-9._-]+)==(\S+)", text, re.MULTILINE))


# ---------------------------------------------------------------- images


def test_hadolint_has_nothing_to_say():
    hadolint = shutil.which("hadolint")
    if hadolint is None:
        pytest.skip("hadolint has no wheel for this machine")
    files = [str(REPOSITORY / "docker" / folder / "Dockerfile") for folder in IMAGES.values()]
    done = subprocess.run(
        [hadolint, *files], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_holds_what_is_tested_together_and_by_hash(image):
    copied = re.findall(r"requirements/(\S+\.txt)", DOCKERFILES[image])
    assert f"{image}.txt" in copied
    assert DOCKERFILES[image].count("--require-hashes") == len(copied)
    tested = pins("dev.txt")
    for name in copied:
        own = pins(name)
        assert len(own) > 5
        assert {one: own[one] for one in own if tested.get(one) != own[one]} == {}
        text = (REPOSITORY / "requirements" / name).read_text()
        assert text.count("--hash=sha256:") >= len(own)
        assert "://" not in text


def test_the_images_have_the_spark_that_is_tested_and_the_clients_of_every_source():
    extras = PROJECT["project"]["optional-dependencies"]
    assert {*PROJECT["dependency-groups"]["image-consumer"]} < {*extras["local"]}
    wanted = {re.match(r"[\w-]+", one)[0] for one in (*extras["gcs"], *extras["s3"])}
    assert wanted <= pins("producer.txt").keys()


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_runs_as_a_user_and_serves_its_probe_to_the_outside(image):
    last = LAST_STAGES[image]
    assert "\nUSER 10001\n" in last
    assert "/healthz" in re.search(r"^HEALTHCHECK .*\n.*", last, re.MULTILINE)[0]
    port = re.search(r"METRICS_PORT=(\d+)", last)[1]
    assert f"\nEXPOSE {port}\n" in last
    # On the loopback address of a container nothing would reach it.
    assert f" TIDEGATE_{image.upper()}_METRICS_HOST=0.0.0.0 \\\n" in last
    (program,) = re.findall(r'ENTRYPOINT \["([a-z-]+)"', last)
    assert program in {*PROJECT["project"]["scripts"], "spark-submit"}


@pytest.mark.parametrize("image", IMAGES)
def test_a_base_image_is_an_argument_whose_default_is_a_digest(image):
    bases = dict(re.findall(r"^ARG (\w*BASE)=(\S+)$", DOCKERFILES[image], re.MULTILINE))
    stages = re.findall(r"^FROM \S+ AS (\S+)", DOCKERFILES[image], re.MULTILINE)
    named = re.findall(r"^FROM (\S+)", DOCKERFILES[image], re.MULTILINE)
    assert {one for one in named if one not in stages} == {f"${{{name}}}" for name in bases}
    found = [
        re.fullmatch(r"python:([\d.]+)-(?:slim-)?([a-z]+)@sha256:\w{64}", bases[name])
        for name in bases
    ]
    # What one stage compiles runs in the next: both have the same Python and C library.
    assert len({one.groups() for one in found}) == 1


def test_the_workers_image_has_the_accelerator_and_no_build_tool():
    builder, image = re.split(r"^FROM ", DOCKERFILES["producer"], flags=re.MULTILINE)[1:]
    assert "COPY accelerator /src/accelerator\n" in builder
    assert re.search(r"--no-build-isolation .* /src/accelerator ", builder)
    assert "--without-pip /opt/tidegate" in builder
    assert "COPY --from=builder /opt/tidegate /opt/tidegate\n" in image
    assert not re.search(r"apt-get|gcc|build-essential", image)
    # The backend that builds it is locked apart from what the worker needs.
    assert "hatchling" in pins("accelerator.txt")
    assert {"hatchling", "pip"} & pins("producer.txt").keys() == set()


def sums(name):
    lines = (JARS / f"{name}.sha256").read_text().splitlines()
    return {jar: digest for digest, jar in (line.split("  ") for line in lines)}


def test_the_images_jars_have_checksums():
    ivy = ivy_file(SPARK_LINES[0]).decode()
    named = re.findall(r'name="(\S+)" rev="(\S+)" conf="spark->', ivy)
    assert sums("spark").keys() == {f"{name}-{revision}.jar" for name, revision in named}
    (aws,) = re.findall(r'name="(hadoop-aws)" rev="(\S+)"', (JARS / "s3.xml").read_text())
    assert "-".join(aws) + ".jar" in sums("s3")
    if (parts := fetched_jvm_parts()) is not None:
        found = {jar.name: sha256(jar.read_bytes()).hexdigest() for jar in parts.spark_jars}
        assert found == sums("spark")


def test_the_image_takes_jars_by_checksum(tmp_path):
    """Ivy is a stand-in here, which has fetched what is in `repository`."""
    for name in ("jars", "repository", "bin", "sets"):
        (tmp_path / name).mkdir()
    java = tmp_path / "bin" / "java"
    java.write_text(f"#!/bin/sh\ncp {tmp_path}/repository/* .\n")
    java.chmod(0o755)
    (tmp_path / "jars" / "ivy-1.jar").touch()
    script = tmp_path / "sets" / "fetch.sh"
    script.write_bytes((JARS / "fetch.sh").read_bytes())
    (tmp_path / "sets" / "one.sha256").write_text(f"{sha256(b'good').hexdigest()}  a.jar\n")

    def fetch(**found):
        shutil.rmtree(tmp_path / "repository")
        (tmp_path / "repository").mkdir()
        for name, content in found.items():
            (tmp_path / "repository" / f"{name}.jar").write_text(content)
        path = f"{tmp_path}/bin{os.pathsep}{os.environ['PATH']}"
        command = ["sh", str(script), str(tmp_path / "jars"), "one"]
        done = subprocess.run(
            command, capture_output=True, check=False, env={**os.environ, "PATH": path}, timeout=60
        )
        return done.returncode

    assert fetch(a="bad") != 0
    assert fetch(b="good") != 0
    assert sorted(one.name for one in (tmp_path / "jars").iterdir()) == ["ivy-1.jar"]
    assert fetch(a="good", b="more") == 0
    assert sorted(one.name for one in (tmp_path / "jars").iterdir()) == ["a.jar", "ivy-1.jar"]


def test_what_the_images_copy_is_not_ignored():
    kept = set(re.findall(r"^!(\S+)$", (REPOSITORY / ".dockerignore").read_text(), re.MULTILINE))
    lines = "".join(DOCKERFILES.values())
    copied = re.findall(r"^COPY (?!--from)(\S+) ", lines, re.MULTILINE)
    assert {path.split("/")[0] for path in copied} == kept


# ---------------------------------------------------------------- compose


def test_the_compose_file_names_images_and_settings_and_opens_no_port_to_others():
    jsonschema.validate(COMPOSE, get_builtin_schema("vendor.compose-spec"))
    services = COMPOSE["services"].values()
    assert {f"tidegate-{image}" for image in IMAGES} <= {service["image"] for service in services}
    named = {name for service in services for name in service.get("environment", {})}
    found = [re.fullmatch("TIDEGATE_(PRODUCER|CONSUMER)_(.*)", name) for name in named]
    ours = [(one[1], one[2].lower()) for one in found if one]
    assert len(ours) > 10
    assert [one for one in ours if one[1] not in CONFIGS[one[0]].model_fields] == []
    ports = [port for service in services for port in service.get("ports", ())]
    assert ports
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == []


# ---------------------------------------------------------------- alerts and dashboard


ALERTS = yaml.safe_load((REPOSITORY / "deploy/prometheus/alerts.yaml").read_text())
DASHBOARD = json.loads((REPOSITORY / "deploy/grafana/tidegate.json").read_text())
RULES = [rule for group in ALERTS["groups"] for rule in group["rules"]]
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]

OF_HISTOGRAMS = {"_bucket": ("le",), "_count": (), "_sum": ()}
OF_EVERY_SCRAPE = frozenset({"job", "instance"})
LABELS = {
    f"tidegate_{program}_{metric.name}{suffix}": OF_EVERY_SCRAPE.union(metric.labels, labels)
    for program, metrics in (("producer", PRODUCER_METRICS), ("consumer", CONSUMER_METRICS))
    for metric in metrics
    for suffix, labels in (OF_HISTOGRAMS if metric.kind == "histogram" else {"": ()}).items()
} | dict.fromkeys(
    ("up", "tidegate_build_info", "process_cpu_seconds_total", "process_resident_memory_bytes"),
    OF_EVERY_SCRAPE,
)
COUNTED = ("_total", *OF_HISTOGRAMS)
QUERIES = [rule["expr"] for rule in RULES] + [
    target["expr"].replace("$__rate_interval", "5m").replace("$job", ".*")
    for panel in PANELS
    for target in panel["targets"]
]


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


def labels_in(text: str) -> set[str]:
    """Return the labels of the metrics that a query names."""
    return set().union(*(LABELS[name] for name in LABELS if name in text))


def faults(query: str) -> Iterator[str]:
    selected = 0
    for part, function in parts(promql_parser.parse(query)):
        if isinstance(part, promql_parser.VectorSelector):
            selected += 1
            if part.name not in LABELS:
                yield f"no metric {part.name}"
            elif part.name.endswith(COUNTED) != (function in {"rate", "increase"}):
                yield f"{part.name} in {function or 'no function'}"
            used = {matcher.name for matcher in part.matchers.matchers}
            yield from sorted(used - LABELS.get(part.name, used))
        elif isinstance(part, promql_parser.AggregateExpr) and part.modifier is not None:
            yield from sorted(set(part.modifier.labels) - labels_in(query))
    if not selected:
        yield "no metric"


def test_queries_name_metrics_and_labels_that_there_are():
    assert {query: found for query in QUERIES if (found := list(faults(query)))} == {}
    for query in (
        "tidegate_consumer_nonsense",
        "tidegate_producer_parked_total",
        "rate(tidegate_consumer_batch_input_rows[5m])",
        "tidegate_consumer_batch_duration_seconds",
        "tidegate_consumer_batch_duration_seconds_bucket",
        'up{nonsense="x"}',
        "sum by (nonsense) (up)",
        "1",
    ):
        assert list(faults(query)), query


def test_alerts_say_whom_to_call_and_what_it_means():
    for rule in RULES:
        assert rule["labels"]["severity"] in {"page", "ticket"}, rule
        notes = rule["annotations"]
        assert notes["description"].endswith("."), rule
        assert notes["page"].startswith("docs/"), rule
        shown = re.findall(r"\$labels\.(\w+)", notes["summary"] + notes["description"])
        assert set(shown) <= labels_in(rule["expr"]), rule


def test_what_the_docs_alarm_on_has_an_alert():
    page = (REPOSITORY / "docs/reference/alerts.md").read_text()
    named = set(re.findall(r"tidegate_(?:producer|consumer)_\w+", page))
    in_rules = {name for rule in RULES for name in LABELS if name in rule["expr"]}
    # Compared with a setting, or with what the machine did before: no limit fits everybody.
    by_hand = {
        "tidegate_producer_bytes_in_flight",
        "tidegate_producer_files_open_seconds",
        "tidegate_consumer_batch_duration_seconds",
        "tidegate_consumer_commit_to_release_seconds",
        "tidegate_producer_commit_to_kafka_seconds",
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
