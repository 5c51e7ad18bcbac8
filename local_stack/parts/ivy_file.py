"""What Ivy fetches for a version of Spark: `ivy.xml`, with the versions that belong to it.

`python -m tidegate.local_stack.parts.ivy_file` prints it for the installed pyspark.
"""

from __future__ import annotations

import sys
from importlib import resources
from string import Template

from tidegate.program.spark_versions import DELTA, SparkLine, installed_line

_ICEBERG = (
    '    <dependency org="{}" name="{}" rev="{}" conf="iceberg->default" transitive="false"/>\n'
)


def ivy_file(line: SparkLine) -> bytes:
    """Return the `ivy.xml` of the JVM parts with the connectors of a Spark."""
    template = resources.files("tidegate.local_stack.parts").joinpath("ivy.xml").read_text()
    text = Template(template).substitute(
        minor=line.minor,
        kafka=line.kafka,
        kafka_clients=line.kafka_clients,
        commons_pool=line.commons_pool,
        avro=line.avro,
        delta=DELTA,
        iceberg=_ICEBERG.format(*line.iceberg_packages.split(":")) if line.iceberg else "",
    )
    return text.encode()


if __name__ == "__main__":
    sys.stdout.buffer.write(ivy_file(installed_line()))
