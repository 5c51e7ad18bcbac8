"""The chart: what Helm makes of it, and which values it refuses; no Helm is needed."""

from __future__ import annotations

import json
import re
import shutil
import tomllib
from pathlib import Path
from typing import get_origin

import jsonschema
import kubernetes_validate
import yaml
from pydantic import SecretStr

from tests.tidy.chart import CASES, RENDERED, first_line, plain_settings, rendered
from tidegate.producer.config import ProducerConfig
from tidegate.spark_consumer.config import ConsumerConfig

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "helm" / "tidegate"


def manifests(file):
    return [one for one in yaml.safe_load_all(file.read_text()) if one]


MANIFESTS = manifests(RENDERED)
ALL_MANIFESTS = {case: manifests(file) for case, (_, file) in CASES.items()}
OF_OPERATORS = {"PodMonitoring", "ServiceMonitor"}
"""Kinds that Kubernetes itself does not define."""

_LABELS = {"type": "object", "additionalProperties": {"type": "string"}}
POD_MONITORING = {
    "type": "object",
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "additionalProperties": False,
    "properties": {
        "apiVersion": {"const": "monitoring.googleapis.com/v1"},
        "kind": {"const": "PodMonitoring"},
        "metadata": {"type": "object"},
        "spec": {
            "type": "object",
            "required": ["selector", "endpoints"],
            "additionalProperties": False,
            "properties": {
                "selector": {
                    "type": "object",
                    "required": ["matchLabels"],
                    "additionalProperties": False,
                    "properties": {"matchLabels": _LABELS},
                },
                "endpoints": {
                    "type": "array",
                    "minItems": 1,
                    "items": {
                        "type": "object",
                        "required": ["port", "interval"],
                        "additionalProperties": False,
                        "properties": {
                            "port": {"type": "string", "minLength": 1},
                            "interval": {"type": "string", "pattern": r"^(\d+(ms|s|m|h))+$"},
                        },
                    },
                },
            },
        },
    },
}
"""What the chart uses of the resource of Google Cloud's Managed Service for Prometheus."""

CONFIGS = {"PRODUCER": ProducerConfig, "CONSUMER": ConsumerConfig}


def test_the_rendered_chart_is_of_today():
    for values, file in CASES.values():
        assert file.read_text().startswith(first_line(values)), "type ./dev chart"
    helm = shutil.which("helm")
    if helm is not None:
        for values, file in CASES.values():
            assert rendered(helm, values) == file.read_text()


def test_the_chart_makes_every_part_and_kubernetes_takes_it():
    kinds = [(one["kind"], one["metadata"]["name"]) for one in MANIFESTS]
    assert len(set(kinds)) == len(kinds)
    assert {kind for kind, _ in kinds} == {
        "ConfigMap", "Deployment", "NetworkPolicy", "PodDisruptionBudget", "PodMonitoring",
        "Service", "ServiceAccount", "ServiceMonitor", "StatefulSet",
    }  # fmt: skip
    for manifest in (one for case in ALL_MANIFESTS.values() for one in case):
        if manifest["kind"] not in OF_OPERATORS:
            kubernetes_validate.validate(manifest, "1.30", strict=True)


def settings_files(case):
    return {
        name.removesuffix(".toml"): text
        for one in ALL_MANIFESTS[case]
        if one["kind"] == "ConfigMap"
        for name, text in one["data"].items()
    }


def test_programs_take_the_settings_that_the_chart_makes(tmp_path):
    for case, (values_file, _) in CASES.items():
        values = yaml.safe_load(values_file.read_text())
        for part, text in settings_files(case).items():
            config = CONFIGS[part.upper()]
            given = values[part]["settings"]
            found = tomllib.loads(text)
            options = values["stream"].get("kafkaOptions", {}) | given.get("kafka_options", {})
            assert {name: found[name] for name in given} | {"kafka_options": options} == {
                **given, "kafka_options": options,
            }, (case, part)  # fmt: skip
            file = tmp_path / f"{part}.toml"
            file.write_text(text)
            settings = config.load(file)
            assert settings.prefix == values["stream"]["prefix"]
            wanted = {name: str(value) for name, value in options.items()}
            assert settings.kafka_client_options() == wanted


def test_the_chart_was_rendered_with_every_form_of_setting():
    """A setting that is newer than the rendered file is of a type that one in it has."""

    def form(field):
        return get_origin(field.annotation) or field.annotation

    values = yaml.safe_load(CASES["settings"][0].read_text())
    for part in ("producer", "consumer"):
        config, given = CONFIGS[part.upper()], values[part]["settings"]
        kinds = {form(config.model_fields[name]) for name in given if name in config.model_fields}
        newer = plain_settings(config).keys() - given.keys()
        assert len(newer) < len(given) / 4, "type ./dev chart"
        assert [one for one in newer if form(config.model_fields[one]) not in kinds] == []


def test_files_of_datastream_need_no_setting_of_spanner():
    found = tomllib.loads(settings_files("files")["producer"])
    assert (found["source"]["kind"], found["source"]["location"]) == (
        "datastream", "gs://bucket/path"
    )  # fmt: skip
    assert not {"project", "instance", "database", "change_stream"} & found.keys()


def test_selectors_select_the_pods():
    (workers,) = [one for one in MANIFESTS if one["kind"] == "StatefulSet"]
    labels = workers["spec"]["template"]["metadata"]["labels"]
    for one in MANIFESTS:
        if one["metadata"]["name"] != workers["metadata"]["name"] or "spec" not in one:
            continue
        selector = one["spec"].get("selector", one["spec"].get("podSelector"))
        assert (selector.get("matchLabels", selector)).items() <= labels.items()
    assert workers["spec"]["serviceName"] in {
        one["metadata"]["name"] for one in MANIFESTS if one["kind"] == "Service"
    }


def pods(case):
    """The manifests of the pods, by program."""
    return {
        one["metadata"]["labels"]["app.kubernetes.io/component"]: one["spec"]["template"]["spec"]
        for one in ALL_MANIFESTS[case]
        if one["kind"] in ("StatefulSet", "Deployment")
    }


def test_pods_take_what_operators_add():
    worker, gate = (pods("example")[one] for one in ("producer", "consumer"))
    (container,) = worker["containers"]
    assert {"name": "HTTPS_PROXY", "value": "http://proxy.example:3128"} in container["env"]
    assert {one["name"] for one in worker["volumes"]} == {"settings", "credentials", "ca"}
    assert container["volumeMounts"][-1] == {
        "name": "ca", "mountPath": "/etc/ca", "readOnly": True,
    }  # fmt: skip
    (container,) = gate["containers"]
    assert container["command"][0] == "spark-submit"
    assert container["command"][-1] == "/opt/tidegate/launch.py"
    assert "spark.sql.shuffle.partitions=16" in container["command"]
    # Without arguments the image's own entry point starts the gate.
    assert "command" not in pods("files")["consumer"]["containers"][0]
    image = pods("files")["producer"]["containers"][0]["image"]
    assert re.fullmatch(r"tidegate-producer@sha256:\w{64}", image)


def test_the_heap_fits_the_limit_and_uses_it():
    units = {"g": 1024**3, "Gi": 1024**3}
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())["consumer"]
    heap, limit = defaults["driverMemory"], defaults["resources"]["limits"]["memory"]
    share = int(heap[:-1]) * units[heap[-1]] / (int(limit[:-2]) * units[limit[-2:]])
    assert 0.4 <= share <= 0.75
    for case, text in (("example", "4g"), ("files", heap)):
        (container,) = pods(case)["consumer"]["containers"]
        assert {"name": "SPARK_DRIVER_MEMORY", "value": text} in container["env"]


def test_only_the_metrics_port_is_open_and_no_pod_has_a_token_that_was_not_asked_for():
    for case in CASES:
        tokens = {one: spec["automountServiceAccountToken"] for one, spec in pods(case).items()}
        assert tokens == {"producer": False, "consumer": case == "files"}
        found = [one for one in ALL_MANIFESTS[case] if one["kind"] == "NetworkPolicy"]
        assert len(found) == len(pods(case))
        for policy in found:
            first = policy["spec"]["ingress"][0]
            assert first["ports"] == [{"protocol": "TCP", "port": "metrics"}]
            assert ("from" in first) == (case == "example")
            assert len(policy["spec"]["ingress"]) == (2 if case == "files" else 1)
            assert ("Egress" in policy["spec"]["policyTypes"]) == ("egress" in policy["spec"])


def takes(**changes):
    """Whether the schema takes the example's values, over them `part__name=value`."""
    values = yaml.safe_load(CASES["example"][0].read_text())
    for path, value in changes.items():
        *above, name = path.split("__")
        place = values
        for one in above:
            place = place.setdefault(one, {})
        place[name] = value
    schema = json.loads((CHART / "values.schema.json").read_text())
    return jsonschema.Draft7Validator(schema).is_valid(values)


def test_the_chart_refuses_values_without_a_stream():
    schema = json.loads((CHART / "values.schema.json").read_text())
    jsonschema.Draft7Validator.check_schema(schema)
    assert not jsonschema.Draft7Validator(schema).is_valid(
        yaml.safe_load((CHART / "values.yaml").read_text())
    )
    for values, _ in CASES.values():
        jsonschema.validate(yaml.safe_load(values.read_text()), schema)
    spanner = {"project": "p", "instance": "i", "database": "d", "change_stream": "S"}
    files = {"source": {"kind": "datastream", "location": "gs://a/b"}}
    assert takes(producer__settings=spanner)
    assert takes(producer__settings={**spanner, "source": {"kind": "spanner"}})
    assert takes(producer__settings=files)
    for missing in spanner:
        kept = {name: value for name, value in spanner.items() if name != missing}
        assert not takes(producer__settings=kept), missing
    assert not takes(producer__settings={"source": {"kind": "datastream"}})
    assert not takes(producer__settings={**spanner, "a b": 1})
    assert not takes(producer__extraEnvs=[])
    assert takes(consumer__enabled=False, consumer__settings={})
    assert not takes(consumer__settings={})


SECRETS = (
    "sasl.password", "ssl.key.password", "ssl.key.pem", "ssl.keystore.password",
    "sasl.oauthbearer.client.secret", "sasl.oauthbearer.config", "sasl.jaas.config",
    "sasl.oauthbearer.client.credentials.client.secret", "ssl.keystore.key",
    "ssl.truststore.password",
    "sasl.oauthbearer.assertion.private.key.passphrase",
    "sasl.oauthbearer.assertion.private.key.pem",
    "basic.auth.user.info", "bearer.auth.token", "bearer.auth.client.secret",
)  # fmt: skip
"""Options of both clients that are secrets."""
PLAIN = ("sasl.username", "ssl.key.location", "ssl.ca.pem", "ssl.certificate.pem", "client.id",
         "sasl.oauthbearer.token.endpoint.url", "bearer.auth.credentials.source")  # fmt: skip


def test_no_secret_gets_into_a_config_map():
    tables = ["stream__kafkaOptions"]
    for part, config in (("producer", ProducerConfig), ("consumer", ConsumerConfig)):
        for name, field in config.model_fields.items():
            if field.annotation is SecretStr:
                assert not takes(**{f"{part}__settings__{name}": "user:secret"}), name
            elif field.annotation == dict[str, SecretStr]:
                tables.append(f"{part}__settings__{name}")
    assert len(tables) == 5
    for table in tables:
        assert [one for one in SECRETS if takes(**{f"{table}__{one}": "x"})] == [], table
        assert [one for one in PLAIN if not takes(**{f"{table}__{one}": "x"})] == [], table
        assert not takes(**{table: {"sasl": {"password": "x"}}}), table
    assert not takes(stream__registryUrl="https://user:secret@registry.example/")
    assert not takes(consumer__settings__output="s3a://key:secret@lake/orders")
    assert not takes(
        producer__settings={"source": {"kind": "datastream", "location": "s3://k:s@lake/a"}}
    )


def test_what_is_set_elsewhere_or_secret_is_no_argument_variable_or_setting():
    for name in ("secret.key", "session.token", "proxy.password"):
        assert not takes(consumer__sparkArguments=["--conf", f"spark.hadoop.fs.s3a.{name}=x"])
    plain = "spark.hadoop.fs.s3a.aws.credentials.provider=a.B"
    assert takes(consumer__sparkArguments=[f"--conf={plain}"])
    for part in ("producer", "consumer"):
        for name in ("AWS_SECRET_ACCESS_KEY", "TIDEGATE_PRODUCER_KAFKA_OPTIONS", "A_TOKEN"):
            given = {"name": name, "value": "x"}
            wanted = {"name": name, "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}}
            assert not takes(**{f"{part}__extraEnv": [given]}), name
            assert takes(**{f"{part}__extraEnv": [wanted]}), name
    # The chart or spark-submit sets these.
    submitted = ("metrics_host", "metrics_port", "master", "packages", "jars", "java_options")
    for part, names in (("producer", ("worker", *submitted[:2])), ("consumer", submitted)):
        for name in names:
            assert not takes(**{f"{part}__settings__{name}": "x"}), name


def test_google_finds_the_pods_and_their_port_by_a_resource_for_each_program():
    found = {
        one["metadata"]["labels"]["app.kubernetes.io/component"]: one
        for one in MANIFESTS
        if one["kind"] == "PodMonitoring"
    }
    assert found.keys() == {"producer", "consumer"}
    for part, one in found.items():
        jsonschema.validate(one, POD_MONITORING)
        (endpoint,) = one["spec"]["endpoints"]
        (container,) = pods("example")[part]["containers"]
        assert endpoint["port"] in {port["name"] for port in container["ports"]}
        (template,) = (
            manifest["spec"]["template"]["metadata"]["labels"]
            for manifest in MANIFESTS
            if manifest["kind"] in ("StatefulSet", "Deployment")
            and manifest["metadata"]["labels"]["app.kubernetes.io/component"] == part
        )
        assert one["spec"]["selector"]["matchLabels"].items() <= template.items()
    # Off unless asked for.
    kinds = {one["kind"] for case in ("settings", "files") for one in ALL_MANIFESTS[case]}
    assert not OF_OPERATORS & kinds
    assert takes(podMonitoring={"enabled": True, "interval": "1m"})
    assert not takes(podMonitoring={"enabled": True, "interval": "often"})


def test_alerts_find_the_job_that_the_chart_makes():
    """A job has the name of the service, or of the resource that Google's collectors read."""
    alerts = (ROOT / "deploy" / "prometheus" / "alerts.yaml").read_text()
    jobs = re.findall(r'job=~"([^"]+)"', alerts)
    assert jobs
    for kind in ("Service", "PodMonitoring"):
        names = [one["metadata"]["name"] for one in MANIFESTS if one["kind"] == kind]
        assert all(any(re.fullmatch(job, name) for name in names) for job in jobs), kind
