"""Images and Compose file: all that can be checked without a container engine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from hashlib import sha256
from pathlib import Path

import jsonschema
import pytest
import yaml
from check_jsonschema.builtin_schemas import get_builtin_schema

from tidegate.local_stack.parts.jvm_parts import fetched_jvm_parts
from tidegate.producer.config import ProducerConfig
from tidegate.spark_consumer.config import ConsumerConfig

ROOT = Path(__file__).resolve().parents[2]
IMAGES = {"producer": "producer", "consumer": "spark_consumer"}
COMPOSE = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())
JARS = ROOT / "docker" / "spark_consumer" / "jars"
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


@pytest.mark.parametrize("image", IMAGES)
def test_a_base_image_is_named_by_digest(image):
    bases = re.findall(r"^FROM (\S+)", dockerfile(image).read_text(), re.MULTILINE)
    stages = re.findall(r"^FROM \S+ AS (\S+)", dockerfile(image).read_text(), re.MULTILINE)
    foreign = [one for one in bases if one not in stages]
    assert foreign
    assert [one for one in foreign if not re.fullmatch(r"[a-z]+:[\w.-]+@sha256:\w{64}", one)] == []
    # What one stage compiles runs in the next: both have the same C library.
    assert len({one.partition("@")[0].rpartition("-")[2] for one in foreign}) == 1


def test_an_image_has_the_clients_of_every_source():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    wanted = {re.match(r"[\w-]+", one)[0] for one in (*extras["gcs"], *extras["s3"])}
    assert wanted <= pins("producer.txt").keys()


def sums(name):
    lines = (JARS / f"{name}.sha256").read_text().splitlines()
    return {jar: digest for digest, jar in (line.split("  ") for line in lines)}


def test_the_images_jars_have_checksums():
    ivy = (ROOT / "local_stack" / "parts" / "ivy.xml").read_text()
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
