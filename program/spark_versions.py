"""The versions of Spark that Tidegate runs on, and the other parts for each of them.

The only place with these versions: packages, error texts, the local stack's jars and the page
docs/reference/versions.md follow from `SPARK_LINES`.

Standard library only: `dev` uses this module before anything is installed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tidegate.schemas.errors import ConfigError

SCALA = "2.13"
DELTA = "4.4.0"
"""Delta Lake: its Python part has one version, its jars are built for each minor Spark."""

DELTA_PYTHON = f"delta-spark=={DELTA}"


@dataclass(frozen=True, slots=True)
class SparkLine:
    """A minor version of Spark, with the versions of other parts that were tested with it.

    Some patch versions of a part are not in Maven's repository; each of these was fetched from it.
    """

    minor: str
    """The minor version, such as `4.0`."""
    pyspark: str
    """The patch version that the tests use."""
    kafka: str
    """Version of `spark-sql-kafka-0-10`, and of its token provider."""
    avro: str
    """Version of `spark-avro`."""
    kafka_clients: str
    """Version of Kafka's Java client, which `spark-sql-kafka-0-10` brings."""
    commons_pool: str
    iceberg: str
    """Version of `iceberg-spark-runtime`; empty: Iceberg has no runtime for this Spark."""
    hadoop: str
    """The version of Hadoop that Spark is built with, which `hadoop-aws` needs for `s3a://`."""
    java_max: int
    """The newest Java that this Spark supports."""
    python_max: str
    """The newest Python that this Spark names."""

    @property
    def packages(self) -> str:
        """Maven coordinates of the data sources that Spark does not ship, comma-separated."""
        return (
            f"org.apache.spark:spark-sql-kafka-0-10_{SCALA}:{self.kafka},"
            f"org.apache.spark:spark-avro_{SCALA}:{self.avro},"
            f"io.delta:delta-spark_{self.minor}_{SCALA}:{DELTA}"
        )

    @property
    def iceberg_packages(self) -> str:
        """Further packages of the Iceberg sinks; empty if there are none for this Spark."""
        if not self.iceberg:
            return ""
        return f"org.apache.iceberg:iceberg-spark-runtime-{self.minor}_{SCALA}:{self.iceberg}"


SPARK_LINES = (
    SparkLine(
        minor="4.0",
        pyspark="4.0.5",
        kafka="4.0.0",
        avro="4.0.2",
        kafka_clients="3.9.0",
        commons_pool="2.12.0",
        iceberg="1.11.0",
        hadoop="3.4.1",
        java_max=21,
        python_max="3.13",
    ),
    SparkLine(
        minor="4.1",
        pyspark="4.1.4",
        kafka="4.1.1",
        avro="4.1.1",
        kafka_clients="3.9.1",
        commons_pool="2.12.1",
        iceberg="1.12.0",
        hadoop="3.4.2",
        java_max=21,
        python_max="3.14",
    ),
    SparkLine(
        minor="4.2",
        pyspark="4.2.0",
        kafka="4.2.0",
        avro="4.2.0",
        kafka_clients="3.9.2",
        commons_pool="2.13.1",
        iceberg="",
        hadoop="3.5.0",
        java_max=25,
        python_max="3.14",
    ),
)
"""In ascending order.  The first one is used in requirements/ and in the images."""

SUPPORTED = ", ".join(line.minor for line in SPARK_LINES[:-1]) + f" or {SPARK_LINES[-1].minor}"

_VERSION = re.compile(r"(\d+)\.(\d+)")
_VERSION_LINE = re.compile(r"^__version__[^=]*=\s*[\"']([^\"']+)", re.MULTILINE)


def line_of(version: str) -> SparkLine:
    """Return the line of a version of Spark, such as `4.1.2` or `4.1.1-amzn-0`.

    A version that is not in the table uses the nearest line; `require_supported` rejects versions
    that are too old.
    """
    number = _minor(version)
    lines = [line for line in SPARK_LINES if _minor(line.minor) <= number]
    return lines[-1] if lines else SPARK_LINES[0]


def is_newer(version: str) -> bool:
    """Whether a version of Spark is newer than all that Tidegate was tested with."""
    return _minor(version) > _minor(SPARK_LINES[-1].minor)


def require_supported(version: str) -> None:
    """Raise ConfigError for a version of Spark before the first one of the table."""
    if _minor(version) < _minor(SPARK_LINES[0].minor):
        raise ConfigError(
            f"Spark {version} is not supported: the sinks need functions of Spark 4.0",
            hint=f"Use Spark {SUPPORTED}",
            found=version,
        )


def installed_version() -> str:
    """Return the version of the installed pyspark without importing it; empty if there is none."""
    try:
        spec = find_spec("pyspark")
    except (ImportError, ValueError):  # something hides pyspark, or it is a module without a spec
        return ""
    if spec is None or spec.loader is None:
        return ""
    # A cluster may have it in an archive, which only its loader can read.
    loader: Any = spec.loader
    for folder in spec.submodule_search_locations or ():
        try:
            text = loader.get_data(str(Path(folder, "version.py"))).decode()
        except (AttributeError, OSError):
            continue
        if (match := _VERSION_LINE.search(text)) is not None:
            return str(match[1])
    return ""


def installed_line() -> SparkLine:
    """Return the line of the installed pyspark; without pyspark, the line of requirements/."""
    version = installed_version()
    return line_of(version) if version else SPARK_LINES[0]


def _minor(version: str) -> tuple[int, int]:
    match = _VERSION.match(version)
    if match is None:
        raise ConfigError(
            f"{version!r}: not a version of Spark", hint=f"Use Spark {SUPPORTED}", found=version
        )
    return int(match[1]), int(match[2])
