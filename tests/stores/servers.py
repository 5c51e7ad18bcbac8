"""Stores on this machine: HDFS itself, S3 by moto, Google Cloud Storage by a fake."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import pytest

from tests.stores.cutting_proxy import CuttingProxy
from tidegate.local_stack.parts.installed_java import find_java

PATIENCE_S = 60.0
GCS_SERVER = "github.com/fsouza/fake-gcs-server@v1.56.1"
CONNECTOR = os.environ.get("TIDEGATE_GCS_CONNECTOR", "4.0.0")
"""The version of Google's connector: 3.1 and 4.0 are in use."""


@dataclass(frozen=True, slots=True)
class Store:
    """A server, its proxy, and what reaches it."""

    scheme: str
    proxy: CuttingProxy
    settings: dict[str, str]
    """Spark's."""
    options: dict[str, str]
    """Those of delta-rs."""
    direct_scheme: str
    """How delta-rs calls it."""

    def bucket(self):
        """Create a bucket and return its address."""
        name = f"lake-{uuid4().hex[:12]}"
        if self.scheme == "gs":
            request = urllib.request.Request(
                f"{self.proxy.address}/storage/v1/b?project=test",
                data=json.dumps({"name": name}).encode(),
                headers={"Content-Type": "application/json"},
            )
        else:
            request = urllib.request.Request(f"{self.proxy.address}/{name}", method="PUT")
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            assert answer.status == 200
        return f"{self.scheme}://{name}"


@dataclass(frozen=True, slots=True)
class Hdfs:
    """A name node and a data node."""

    address: str
    class_path: str
    scheme: str = "hdfs"
    settings: dict[str, str] = field(default_factory=dict)

    def bucket(self):
        """Return the address of a folder that does not exist yet."""
        return f"{self.address}/lake-{uuid4().hex[:12]}"

    def copy(self, address, folder):
        """Copy a folder of HDFS to this machine, which delta-rs can read."""
        command = ["-cp", self.class_path, "org.apache.hadoop.fs.FsShell", "-get", address]
        subprocess.run([_java(), *command, str(folder)], check=True, timeout=PATIENCE_S)


@contextlib.contextmanager
def hdfs(folder):
    """Start a name node and a data node of the Hadoop that pyspark has."""
    class_path = os.pathsep.join(map(str, [folder, *_hdfs_jars(), _spark_jars() / "*"]))
    # Hadoop's shell asks for a configuration.
    (folder / "core-site.xml").write_text("<configuration/>")
    details, log = folder / "hdfs.json", folder / "hdfs.log"
    command = [
        *(_java(), f"-Dtest.build.data={folder}", "-cp", class_path),
        *("org.apache.hadoop.test.MiniDFSClusterManager", "-format", "-datanodes", "1"),
        *("-nnport", "0", "-httpport", "0", "-writeDetails", str(details)),
    ]

    def port():
        try:
            return json.loads(details.read_text())["namenode_port"]
        except (FileNotFoundError, json.JSONDecodeError):
            return None

    with _running(command, log, lambda: port() is not None):
        yield Hdfs(f"hdfs://127.0.0.1:{port()}", class_path)


def missing_for_hdfs():
    """Return what to type where a part of HDFS is missing, else nothing."""
    if all(jar.exists() for jar in _hdfs_jars()):
        return ""
    artifact = f"org.apache.hadoop:hadoop-client-minicluster:{hadoop_version()}"
    return f"HDFS is not in Maven's folder; type: mvn dependency:get -Dartifact={artifact}"


def _hdfs_jars():
    version = hadoop_version()
    return [
        _in_maven(f"org/apache/hadoop/hadoop-client-minicluster/{version}"),
        _in_maven("junit/junit/4.13.2"),
        _in_maven("org/hamcrest/hamcrest-core/1.3"),
    ]


@contextlib.contextmanager
def moto(folder):
    """Start a server that speaks S3, and decides between two requests for a new object."""
    port = _free_port()
    command = [sys.executable, "-m", "tests.stores.moto_server", "-H", "127.0.0.1", "-p", str(port)]
    proxy = CuttingProxy(port)
    settings = {
        "endpoint": proxy.address,
        "endpoint.region": "us-east-1",
        "path.style.access": "true",
        "access.key": "any",
        "secret.key": "any",
        # A request that is lost is lost: no test waits for repetitions.
        "attempts.maximum": "1",
        "retry.limit": "1",
        "retry.interval": "10ms",
    }
    options = {
        "AWS_ENDPOINT_URL": proxy.address,
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "any",
        "AWS_SECRET_ACCESS_KEY": "any",
        "AWS_ALLOW_HTTP": "true",
    }
    with _running(command, folder / "moto.log", lambda: _answers(port)):
        yield Store(
            "s3a",
            proxy,
            {f"spark.hadoop.fs.s3a.{name}": value for name, value in settings.items()},
            options,
            "s3",
        )
        proxy.close()


@contextlib.contextmanager
def fake_gcs(folder):
    """Start a server that speaks Google's JSON API, with generations."""
    program = _gcs_program()
    port = _free_port()
    proxy = CuttingProxy(port, "gcs_dialect")
    command = [
        *(program, "-scheme", "http", "-host", "127.0.0.1", "-port", str(port)),
        *("-backend", "memory", "-external-url", proxy.address, "-log-level", "warn"),
        *("-public-host", proxy.address.removeprefix("http://")),
    ]
    settings = {
        "impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem",
        "storage.root.url": f"{proxy.address}/",
        "auth.type": "UNAUTHENTICATED",
        # The server cannot move an object in one request.
        "operation.move.enable": "false",
        "http.max.retry": "1",
        # Hadoop's default from 3.5.0 on is 64m, which the connector cannot read.
        "block.size": str(64 * 1024**2),
    }
    key = {"disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}
    options = {
        "GOOGLE_BASE_URL": proxy.address,
        "GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(key),
    }
    with _running(command, folder / "gcs.log", lambda: _answers(port)):
        yield Store(
            "gs",
            proxy,
            {f"spark.hadoop.fs.gs.{name}": value for name, value in settings.items()},
            options,
            "gs",
        )
        proxy.close()


def gcs_connector():
    """Return the jar of Google's connector, as Maven has fetched it.

    Ivy, by which Spark fetches packages, does not find the parent that the connector names.
    """
    return _in_maven(f"com/google/cloud/bigdataoss/gcs-connector/{CONNECTOR}", "-shaded")


def missing_for_gcs():
    """Return what to type where a part for Google Cloud Storage is missing, else nothing."""
    if _gcs_program() is None:
        return f"fake-gcs-server is not on PATH; type: go install {GCS_SERVER}"
    if not gcs_connector().exists():
        artifact = f"com.google.cloud.bigdataoss:gcs-connector:{CONNECTOR}:jar:shaded"
        command = f"mvn dependency:get -Dtransitive=false -Dartifact={artifact}"
        return f"Google's connector is not in Maven's folder; type: {command}"
    return ""


def _gcs_program():
    usual = str(Path.home() / "go" / "bin")
    return shutil.which("fake-gcs-server") or shutil.which("fake-gcs-server", path=usual)


def hadoop_aws():
    """Return the Maven coordinate of S3A; it has the version of Spark's own Hadoop."""
    return f"org.apache.hadoop:hadoop-aws:{hadoop_version()}"


def hadoop_version():
    (client,) = _spark_jars().glob("hadoop-client-api-*.jar")
    return client.stem.removeprefix("hadoop-client-api-")


def _spark_jars():
    return Path(pytest.importorskip("pyspark").__file__).parent / "jars"


def _in_maven(place, suffix=""):
    """Return where Maven keeps the jar of an artifact's version."""
    *_, name, version = place.split("/")
    return Path.home() / ".m2/repository" / place / f"{name}-{version}{suffix}.jar"


def _java():
    return str(find_java().program)


@contextlib.contextmanager
def _running(command, log, is_ready):
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        give_up_at = time.monotonic() + PATIENCE_S
        while not is_ready():
            assert process.poll() is None, log.read_text()[-2_000:]
            assert time.monotonic() < give_up_at, log.read_text()[-2_000:]
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def _free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def _answers(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}", timeout=5):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
