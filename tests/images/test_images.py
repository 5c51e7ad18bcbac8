"""Both images, built and run: a change that goes through them, stops, probes, what is in them."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import threading
from contextlib import ExitStack
from dataclasses import replace
from http.client import HTTPConnection

import pytest
import yaml
from deltalake import DeltaTable

from spanner_simulator import Simulator
from tests.images.buildah import RELEASE, REPOSITORY
from tests.images.compose import CONTENT, Compose
from tests.images.conftest import SECRET
from tests.images.containers import Container, until
from tests.images.kafka_service import KafkaService
from tidegate.local_stack.demo.bank_database import create_database
from tidegate.local_stack.parts.installed_java import find_java
from tidegate.local_stack.parts.jvm_parts import fetch_jvm_parts
from tidegate.local_stack.parts.programs import DatabaseName
from tidegate.local_stack.parts.stack import SchemaRegistry

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1_800)]

IMAGES = {"tidegate-producer": "producer", "tidegate-consumer": "spark_consumer"}
DDL = (
    "CREATE TABLE Orders (OrderId INT64 NOT NULL, Note STRING(MAX)) PRIMARY KEY (OrderId)",
    "CREATE CHANGE STREAM Feed FOR ALL OPTIONS (value_capture_type = 'NEW_ROW')",
)
PATIENCE_S = 600.0
VARIABLES = (
    *("SPANNER_PROJECT", "SPANNER_INSTANCE", "SPANNER_DATABASE"),
    *("CHANGE_STREAM", "SPANNER_EMULATOR_HOST"),
)
CHART = yaml.safe_load((REPOSITORY / "deploy/helm/tidegate/values.yaml").read_text())
PROBES = sorted(
    set(
        re.findall(
            r"httpGet: {path: (\S+), ", (REPOSITORY / "deploy/helm/rendered.yaml").read_text()
        )
    )
)

# What an independent reader of the topic finds: it uses no code of Tidegate.
READ_TOPIC = """
import json, sys
from confluent_kafka import Consumer, TopicPartition
servers, topic = sys.argv[1:]
reader = Consumer({"bootstrap.servers": servers, "group.id": "a-reader",
    "isolation.level": "read_committed", "enable.partition.eof": True,
    "auto.offset.reset": "earliest"})
parts = reader.list_topics(topic, timeout=30).topics[topic].partitions
reader.assign([TopicPartition(topic, number, 0) for number in parts])
ended, keys = set(), []
while len(ended) < len(parts):
    record = reader.poll(30)
    if record.error():
        ended.add(record.partition())
    else:
        keys.append(record.key().hex())
print(json.dumps(keys))
"""


# ---------------------------------------------------------------- what is in them


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_has_neither_build_tools_nor_the_builds_secret(store, image):
    with store.container(image) as (_, root):
        files = [path for path in root.rglob("*") if path.is_file() and not path.is_symlink()]
        names = {path.name for path in files}
        own = root / "opt" / "tidegate"
        assert (own / "bin" / "tidegate-producer").exists()
        assert names & {"gcc", "cc1", "ld", "make", "javac"} == set()
        assert [path for path in own.rglob("*") if path.name in {"pip", "hatchling"}] == []
        assert not (root / "root" / ".cache").exists()
        result = subprocess.run(
            ["grep", "-rlF", SECRET, str(root)], capture_output=True, text=True, check=False
        )
        assert result.stdout == ""
    assert SECRET not in store.history(image)


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_is_as_large_as_its_page_says(store, image):
    *_, row = re.findall(
        rf"`{IMAGES[image]}/Dockerfile` \|.*?\((\d+) MB",
        (REPOSITORY / "docker/README.md").read_text(),
    )
    megabytes = max(store.layers(image)[1:]) / 1e6
    assert abs(megabytes - int(row)) < 0.1 * int(row), store.layers(image)


def test_the_local_base_is_the_release_of_debian_that_the_images_have(store):
    for folder in IMAGES.values():
        text = (REPOSITORY / "docker" / folder / "Dockerfile").read_text()
        assert set(re.findall(r"=python:[\w.]+-(?:slim-)?(\w+)@", text)) == {RELEASE}


# ---------------------------------------------------------------- the Compose file


def hosts_file(folder):
    """Write the names of all services, and of this machine, for a network of one address."""
    file = folder / "hosts"
    names = ("localhost", *CONTENT["services"], socket.gethostname())
    file.write_text(f"127.0.0.1 {' '.join(names)}\n")
    return file


class Project:
    """What `docker compose up` starts, in the order in which the services wait for each other."""

    def __init__(self, store, folder, *, tools, roots):
        self.store, self.folder, self.roots = store, folder, roots
        self.hosts = hosts_file(folder)
        self.tools = tools
        self.containers, self.started = [], []

    def __enter__(self):
        with ExitStack() as stack:
            self._start(stack)
            self.running = stack.pop_all()
        return self

    def __exit__(self, *_):
        self.running.close()

    def _start(self, stack):
        spanner = stack.enter_context(Simulator(seed=7, stream_partitions=2))
        name = DatabaseName(address=spanner.grpc_address)
        self.database = create_database(name, DDL)
        values = (name.project, name.instance, name.database, "Feed", name.address)
        self.compose = Compose(dict(zip(VARIABLES, values, strict=True)))
        service = self.compose.service("kafka")
        kafka = KafkaService(
            environ={key: str(value) for key, value in service["environment"].items()},
            health=service["healthcheck"]["test"][1:],
            folder=self.folder / "kafka",
            hosts=self.hosts,
            tools=self.tools,
        )
        stack.callback(kafka.stop)
        kafka.start()
        java = find_java()
        registry = SchemaRegistry(
            java=java,
            parts=fetch_jvm_parts(java),
            data_dir=self.folder / "registry",
            port=8080,
            cancelled=threading.Event(),
        )
        stack.callback(registry.stop)
        registry.start()
        stack.callback(self._remove)

    def _remove(self):
        for container in self.started:
            container.remove()

    def spec(self, service, **environ):
        """Return the container of a service, with more variables."""
        image = self.compose.service(service)["image"]
        spec = self.compose.container(
            service,
            store=self.store,
            root=self.roots[image],
            volumes=self.folder / "volumes",
            hosts=self.hosts,
        )
        part = CHART[image.removeprefix("tidegate-")]
        limit = part["resources"]["limits"]["memory"]
        assert limit.endswith("Gi")
        memory = int(limit.removesuffix("Gi")) * 2**30
        return replace(spec, environ={**spec.environ, **environ}, memory=memory)

    def start(self, spec):
        container = Container(spec, self.folder)
        self.containers.append(container)
        self.started.append(container)
        container.start()
        return container

    def command(self, service, *arguments):
        """Return the container of a command of a service's program."""
        spec = self.spec(service)
        return replace(spec, command=[*spec.command[:-1], *arguments])

    def until(self, condition, what):
        """Wait for a condition while all containers run."""
        until(condition, self.containers, patience_s=PATIENCE_S, what=what)

    def published(self):
        """Return how many changes a reader of the topic finds; none twice."""
        worker = next(
            container for container in self.containers if container.spec.name.startswith("worker")
        )
        servers = worker.spec.environ["TIDEGATE_PRODUCER_BOOTSTRAP_SERVERS"]
        read = worker.run("python", "-c", READ_TOPIC, servers, "orders.Orders")
        assert read.returncode == 0, read.stderr
        keys = json.loads(read.stdout)
        assert len(set(keys)) == len(keys)
        return len(keys)

    def write(self, first, last):
        with self.database.batch() as batch:
            batch.insert(
                "Orders", ["OrderId", "Note"], [[key, f"{key}"] for key in range(first, last)]
            )

    def mirrored(self):
        """Return how many rows the mirror has."""
        table = self.folder / "volumes" / "lake" / "output" / "mirror" / "Orders"
        return DeltaTable(table).to_pyarrow_table().num_rows if table.exists() else 0


@pytest.fixture(scope="module")
def roots(store):
    with (
        store.container("tidegate-producer") as (_, producer),
        store.container("tidegate-consumer") as (_, consumer),
    ):
        yield {"tidegate-producer": producer, "tidegate-consumer": consumer}


@pytest.mark.parametrize("service", ["worker-1", "consumer"])
def test_a_start_with_a_setting_missing_ends_with_2_and_names_it(
    store, roots, own_network, tmp_path, service
):
    compose = Compose(dict.fromkeys(VARIABLES, "any"))
    image = compose.service(service)["image"]
    spec = compose.container(
        service,
        store=store,
        root=roots[image],
        volumes=tmp_path / "volumes",
        hosts=hosts_file(tmp_path),
    )
    environ = {name: one for name, one in spec.environ.items() if not name.endswith("_PREFIX")}
    container = Container(replace(spec, environ=environ), tmp_path)
    container.start()
    try:
        assert container.wait(PATIENCE_S) == 2, container.log.read_text()
    finally:
        container.remove()
    text = container.log.read_text()
    assert "prefix" in text
    assert "Traceback" not in text
    assert "Exception" not in text


@pytest.fixture
def project(store, roots, own_network, kafka_tools, tmp_path):
    with Project(store, tmp_path, tools=kafka_tools, roots=roots) as opened:
        yield opened


def answer(port, path):
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path)
    return connection.getresponse().status


def state(worker):
    """Return the stream's state, as a command in the worker's container prints it."""
    return json.loads(worker.run("tidegate-producer", "status", "--json").stdout)["state"]


def foreign_lines(container):
    """Return the lines of a log that are not those of Tidegate's programs."""
    lines = container.log.read_text().splitlines()
    return [line for line in lines if not line.startswith("{")]


def test_a_change_goes_through_the_images_as_the_compose_file_starts_them(project):
    workers = [
        project.start(project.spec("worker-1")),
        # One network has one of each port.
        project.start(project.spec("worker-2", TIDEGATE_PRODUCER_METRICS_PORT="9466")),
    ]
    consumer = project.start(project.spec("consumer"))
    everything = [*workers, consumer]
    project.until(lambda: all(one.is_healthy for one in everything), "healthy containers")
    for port, path in [(port, path) for port in (9464, 9465, 9466) for path in PROBES]:
        project.until(lambda port=port, path=path: answer(port, path) == 200, f"{port}{path}")
    project.until(lambda: state(workers[0]) == "Running", "a stream that runs")
    project.write(0, 20)
    project.until(lambda: project.mirrored() == 20, "20 rows in the mirror")
    assert project.published() == 20

    # A restart in place: under the same name, within the group's time-out.
    project.write(20, 40)
    assert workers[0].terminate() == 0
    project.containers.remove(workers[0])
    project.start(project.spec("worker-1"))
    project.until(lambda: project.mirrored() == 40, "20 more rows")
    assert project.published() == 40

    # As its page says: the JVM is the container's first process, and ends by the signal.
    assert consumer.terminate() == 143
    for container in (workers[1], project.containers[-1]):
        assert container.terminate() == 0
    project.containers.clear()
    audit = project.start(project.command("consumer", "audit", "--json"))
    assert audit.wait(PATIENCE_S) == 0, audit.log.read_text()
    used = [line for line in workers[0].log.read_text().splitlines() if '"accelerator"' in line]
    assert json.loads(used[0])["state"] == "used"
    assert [foreign_lines(worker) for worker in workers] == [[], []]
    # Java announces the module for vectors that Spark asks for.
    assert [line for line in foreign_lines(consumer) if "incubator" not in line] == []
