"""Images, Compose file and chart: all that can be checked without a container engine."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import jsonschema
import kubernetes_validate
import pytest
import yaml
from check_jsonschema.builtin_schemas import get_builtin_schema

from tests.tidy.chart import RENDERED, first_line, rendered
from tidegate.producer.config import ProducerConfig
from tidegate.spark_consumer.config import ConsumerConfig

ROOT = Path(__file__).resolve().parents[2]
IMAGES = {"producer": "producer", "consumer": "spark_consumer"}
COMPOSE = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())
MANIFESTS = [one for one in yaml.safe_load_all(RENDERED.read_text()) if one]
OF_OTHERS = ("ServiceMonitor",)
"""Kinds that Kubernetes itself does not define."""
CONFIGS = {"PRODUCER": ProducerConfig, "CONSUMER": ConsumerConfig}


def dockerfile(image):
    return ROOT / "docker" / IMAGES[image] / "Dockerfile"


def pins(name):
    return dict(
        re.findall(
            r"^([A-Za-z0-9._-]+)==(\S+)", (ROOT / "requirements" / name).read_text(), re.MULTILINE
        )
    )


@pytest.mark.parametrize("image", IMAGES)
def test_hadolint_has_nothing_to_say(image):
    hadolint = shutil.which("hadolint")
    if hadolint is None:
        pytest.skip("hadolint has no wheel for this machine")
    done = subprocess.run(
        [hadolint, str(dockerfile(image))], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_holds_what_is_tested_together_and_by_hash(image):
    own, tested = pins(f"{image}.txt"), pins("dev.txt")
    assert len(own) > 20
    assert {name: version for name, version in own.items() if tested.get(name) != version} == {}
    text = (ROOT / "requirements" / f"{image}.txt").read_text()
    assert text.count("--hash=sha256:") >= len(own)
    assert "://" not in text
    assert f"COPY requirements/{image}.txt" in dockerfile(image).read_text()
    assert "--require-hashes" in dockerfile(image).read_text()


def test_the_consumers_image_has_the_spark_that_is_tested():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    image = set(project["dependency-groups"]["image-consumer"])
    assert image < set(project["project"]["optional-dependencies"]["local"])


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_runs_as_a_user_and_says_whether_it_is_well(image):
    last = dockerfile(image).read_text().rpartition("\nFROM ")[2]
    assert "\nUSER 10001\n" in last
    assert "/healthz" in re.search(r"^HEALTHCHECK .*\n.*", last, re.MULTILINE)[0]
    port = re.search(r"METRICS_PORT=(\d+)", last)[1]
    assert f"\nEXPOSE {port}\n" in last


def test_what_the_images_copy_is_not_ignored():
    kept = set(re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE))
    lines = "".join(dockerfile(image).read_text() for image in IMAGES)
    copied = {
        path.split("/")[0] for path in re.findall(r"^COPY (?!--from)(\S+) ", lines, re.MULTILINE)
    }
    assert copied == kept


def test_the_compose_file_is_of_its_schema():
    jsonschema.validate(COMPOSE, get_builtin_schema("vendor.compose-spec"))


def test_the_compose_file_names_settings_that_exist_and_images_that_are_made():
    images = {one["image"] for one in COMPOSE["services"].values()}
    assert {"tidegate-producer", "tidegate-consumer"} <= images
    named = {name for one in COMPOSE["services"].values() for name in one.get("environment", {})}
    ours = [re.fullmatch("TIDEGATE_(PRODUCER|CONSUMER)_(.*)", name) for name in named]
    found = [(one[1], one[2].lower()) for one in ours if one]
    assert len(found) > 10
    assert [one for one in found if one[1] not in CONFIGS[one[0]].model_fields] == []


def test_what_others_reach_is_on_the_loopback_address():
    ports = [port for one in COMPOSE["services"].values() for port in one.get("ports", ())]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_the_rendered_chart_is_of_today():
    assert RENDERED.read_text().startswith(first_line()), "type ./dev chart"
    helm = shutil.which("helm")
    if helm is not None:
        assert rendered(helm) == RENDERED.read_text()


def test_the_chart_makes_every_part():
    kinds = sorted(f"{one['kind']} {one['metadata']['name']}" for one in MANIFESTS)
    assert len(set(kinds)) == len(kinds)
    assert {kind.split()[0] for kind in kinds} == {
        "ConfigMap", "Deployment", "PodDisruptionBudget", "Service", "ServiceAccount",
        "ServiceMonitor", "StatefulSet",
    }  # fmt: skip


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda one: one["kind"])
def test_kubernetes_takes_what_the_chart_makes(manifest):
    if manifest["kind"] not in OF_OTHERS:
        kubernetes_validate.validate(manifest, "1.30", strict=True)


@pytest.mark.parametrize(
    ("part", "config"), [("producer", ProducerConfig), ("consumer", ConsumerConfig)]
)
def test_programs_take_the_settings_that_the_chart_makes(part, config, tmp_path):
    (found,) = [
        one["data"][f"{part}.toml"]
        for one in MANIFESTS
        if one["kind"] == "ConfigMap" and one["metadata"]["name"].endswith(part)
    ]
    file = tmp_path / f"{part}.toml"
    file.write_text(found)
    settings = config.load(file)
    assert settings.prefix == "orders"
    assert settings.kafka_client_options()["sasl.mechanism"] == "SCRAM-SHA-512"


def test_selectors_select_the_pods():
    (workers,) = [one for one in MANIFESTS if one["kind"] == "StatefulSet"]
    labels = workers["spec"]["template"]["metadata"]["labels"]
    for one in MANIFESTS:
        if one["metadata"]["name"] != workers["metadata"]["name"] or "spec" not in one:
            continue
        selector = one["spec"]["selector"]
        assert (selector.get("matchLabels", selector)).items() <= labels.items()
    assert workers["spec"]["serviceName"] in {
        one["metadata"]["name"] for one in MANIFESTS if one["kind"] == "Service"
    }


def test_the_chart_refuses_values_without_a_stream():
    chart = ROOT / "deploy" / "helm" / "tidegate"
    schema = json.loads((chart / "values.schema.json").read_text())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(yaml.safe_load((chart / "values.yaml").read_text()), schema)
    example = yaml.safe_load((chart.parent / "example-values.yaml").read_text())
    jsonschema.validate(example, schema)


def test_alerts_find_the_job_that_the_chart_makes():
    """Prometheus' operator names a job as the service is named."""
    alerts = (ROOT / "deploy" / "prometheus" / "alerts.yaml").read_text()
    jobs = re.findall(r'job=~"([^"]+)"', alerts)
    services = [one["metadata"]["name"] for one in MANIFESTS if one["kind"] == "Service"]
    assert jobs
    assert all(any(re.fullmatch(job, name) for name in services) for job in jobs)
