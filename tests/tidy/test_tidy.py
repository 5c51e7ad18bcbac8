"""Rules of the house that no other tool holds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]

PACKAGES = ("schemas", "producer", "spark_consumer", "local_stack")

# A namespace, not an address: nothing is fetched from it.
NAMESPACES = ("http://ant.apache.org/ivy/maven",)


def files(*folders: str, suffixes: tuple[str, ...]) -> list[Path]:
    return [
        path
        for folder in folders
        for path in sorted((REPOSITORY / folder).rglob("*"))
        if path.suffix in suffixes and not _is_built(path.relative_to(REPOSITORY))
    ]


def _is_built(path: Path) -> bool:
    """Whether a tool has made it: caches, and what the conformance programs are built from."""
    return any(part == "__pycache__" or part.startswith(".") for part in path.parts)


def shown(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


SOURCES = files(
    *PACKAGES, "accelerator", "tests", "docker", "spanner_simulator", suffixes=(".py", ".c", ".h")
)
TEXTS = [
    *SOURCES,
    *files(
        *PACKAGES,
        "accelerator",
        "docs",
        "docker",
        "requirements",
        "spanner_simulator",
        suffixes=(".md", ".xml", ".avsc", ".txt"),
    ),
    *(REPOSITORY / name for name in ("dev", "Makefile", "pyproject.toml", ".ci/run")),
]


def test_no_module_is_too_long_to_read():
    lengths = {shown(path): len(path.read_text().splitlines()) for path in SOURCES}

    assert {name: n for name, n in lengths.items() if n > limit_of(name)} == {}


def limit_of(name: str) -> int:
    return 900 if "tests" in Path(name).parts else 500


def test_no_reminders_and_no_paths_of_one_machine_are_left():
    reminder = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|X" + r"XX)\b")
    machine = (f"{REPOSITORY}/", f"{Path.home()}/")
    texts = {shown(path): path.read_text() for path in TEXTS}

    assert [name for name, text in texts.items() if reminder.search(text)] == []
    assert [name for name, text in texts.items() if any(path in text for path in machine)] == []


def test_no_registry_address_is_pinned():
    paths = [
        *files("requirements", suffixes=(".txt", ".in")),
        REPOSITORY / "local_stack" / "parts" / "ivy.xml",
        REPOSITORY / "benchmarks" / "peers" / "ivy.xml",
        REPOSITORY / "pyproject.toml",
        REPOSITORY / "spanner_simulator" / "pyproject.toml",
        REPOSITORY / "accelerator" / "pyproject.toml",
    ]
    addresses = {
        (shown(path), address)
        for path in paths
        for address in re.findall(r"https?://[^\s\"'>]+", path.read_text())
    }

    assert {one for one in addresses if one[1] not in NAMESPACES} == set()


def test_requirements_are_pinned_with_hashes():
    text = (REPOSITORY / "requirements" / "dev.txt").read_text()
    pins = re.findall(r"^[a-z0-9][\w.-]*(?:\[[^\]]*\])?==\S+.*\\$", text, re.MULTILINE)
    entries = re.findall(r"^[a-z0-9]", text, re.MULTILINE)

    assert len(pins) == len(entries) > 50
    assert "--index-url" not in text
    assert "--find-links" not in text


def test_the_simulator_is_not_asked_of_a_registry():
    """It is installed from its folder, at the commit that is checked out."""
    text = (REPOSITORY / "requirements" / "dev.txt").read_text()

    assert re.findall(r"^spanner-simulator.*|^.*file:.*|^-e.*", text, re.MULTILINE) == []


def test_docker_is_no_package():
    """It would shadow the Docker SDK for everybody with the repository on their path."""
    assert list((REPOSITORY / "docker").rglob("__init__.py")) == []


def test_tests_are_no_package():
    assert list((REPOSITORY / "tests").rglob("__init__.py")) == []


def test_images_start_console_scripts_that_exist():
    scripts = re.findall(
        r"^(tidegate-[a-z-]+) =", (REPOSITORY / "pyproject.toml").read_text(), re.MULTILINE
    )
    started = {
        name
        for path in (REPOSITORY / "docker").rglob("Dockerfile")
        for name in re.findall(r'ENTRYPOINT \["(tidegate-[a-z-]+)"', path.read_text())
    }

    assert started
    assert started <= set(scripts)


def test_the_workers_image_has_the_accelerator_and_no_compiler():
    builder, image = re.split(
        r"^FROM ", (REPOSITORY / "docker/producer/Dockerfile").read_text(), flags=re.MULTILINE
    )[1:]
    version = re.match(r"python:([0-9.]+)-([a-z]+)@\S+ AS builder\n", builder)

    assert version
    # A wheel is for one version of Python.
    assert image.startswith(f"python:{version[1]}-slim-{version[2]}@")
    assert "COPY accelerator /src/accelerator\n" in builder
    assert re.search(r"--no-build-isolation \\\n +/src/accelerator ", builder)
    assert "COPY --from=builder /opt/tidegate /opt/tidegate\n" in image
    assert not re.search(r"apt-get|gcc|build-essential", image)


@pytest.mark.parametrize("program", ["producer", "spark_consumer"])
def test_images_serve_probes_to_the_outside(program):
    """On the loopback address of a container nothing would reach them."""
    text = (REPOSITORY / "docker" / program / "Dockerfile").read_text()
    prefix = "TIDEGATE_PRODUCER_" if program == "producer" else "TIDEGATE_CONSUMER_"

    assert f" {prefix}METRICS_HOST=0.0.0.0 \\\n" in text
