"""A server that speaks S3, with conditional writes, and a Spark session that reaches it."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

from tests.spark.conftest import local_spark
from tests.spark.sinks.conftest import kit

__all__ = ["kit"]

_PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class S3Server:
    """The server of `server`: buckets in memory, requests in threads."""

    address: str

    def bucket(self) -> str:
        """Create a bucket and return its name."""
        name = f"lake-{uuid4().hex[:12]}"
        request = urllib.request.Request(f"{self.address}/{name}", method="PUT")
        with urllib.request.urlopen(request, timeout=_PATIENCE_S) as answer:
            assert answer.status == 200
        return name

    @property
    def settings(self) -> dict[str, str]:
        """What Spark needs to know to reach it."""
        return {
            "spark.hadoop.fs.s3a.endpoint": self.address,
            "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.access.key": "any",
            "spark.hadoop.fs.s3a.secret.key": "any",
        }


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """Start the server on a free port of the loopback."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path_factory.mktemp("s3") / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.s3.server", "-H", "127.0.0.1", "-p", str(port)],
            stdout=output,
            stderr=output,
        )
    found = S3Server(f"http://127.0.0.1:{port}")
    give_up_at = time.monotonic() + _PATIENCE_S
    while not _answers(found.address):
        assert process.poll() is None, log.read_text()[-2_000:]
        assert time.monotonic() < give_up_at, log.read_text()[-2_000:]
        time.sleep(0.1)
    yield found
    process.terminate()
    process.wait(_PATIENCE_S)


@pytest.fixture(scope="session")
def hadoop_aws() -> str:
    """Return the Maven coordinate of S3A; it has the version of Spark's own Hadoop."""
    pyspark = pytest.importorskip("pyspark")
    (client,) = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    version = client.stem.removeprefix("hadoop-client-api-")
    return f"org.apache.hadoop:hadoop-aws:{version}"


@pytest.fixture(scope="session")
def spark(server, hadoop_aws, tmp_path_factory):
    """Start Spark as a user would, who lets it fetch S3A (600 MB, once)."""
    session = local_spark(
        tmp_path_factory.mktemp("spark"), {**server.settings, "spark.jars.packages": hadoop_aws}
    )
    yield session
    session.stop()


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=5):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
