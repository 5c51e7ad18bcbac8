"""Bad input of the consumer, on a real Kafka and registry, through the real command.

Each is one line that names what was found and what to do, exit code 2, no traceback, and an output
in which nothing is missing or half written.  The stream is written by hand: no worker writes this.
"""

from __future__ import annotations

import os
from pathlib import Path

import deltalake
import pytest

from tests.command_server import run_module
from tests.hand_stream import HandStream
from tidegate.local_stack.parts.java import find_java
from tidegate.local_stack.parts.jvm_parts import fetched_jvm_parts
from tidegate.local_stack.parts.programs import quick_start
from tidegate.program.registry_http import HttpSchemaRegistry

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]

PATIENCE_S = 300
FAR_US = 4_000_000_000_000_000
"""In the year 2096: a watermark with which a run has caught up."""


class Consumer:
    """Runs the consumer on a stream until it has caught up, with one output and checkpoint."""

    def __init__(self, stack, folder, prefix, **tables):
        self.stack, self.folder = stack, folder
        self.registry = HttpSchemaRegistry(stack.registry_url)
        self.stream = HandStream(prefix, self.registry.register, **tables)
        self.stream.create(stack.bootstrap_servers)

    def run(self, **settings):
        """Send what was written; return exit code and standard error."""
        self.stream.send(self.stack.bootstrap_servers)
        given = {
            "BOOTSTRAP_SERVERS": self.stack.bootstrap_servers,
            "REGISTRY_URL": self.stack.registry_url,
            "PREFIX": self.stream.names.prefix,
            "OUTPUT": str(self.folder / "output"),
            "CHECKPOINT": str(self.folder / "checkpoint"),
            "UNTIL": "caught-up",
            "MASTER": "local[2]",
            "JARS": ",".join(str(jar) for jar in fetched_jvm_parts().spark_jars),
            "JAVA_OPTIONS": quick_start(),
            "LOG_LEVEL": "warning",
            **settings,
        }
        environ = {f"TIDEGATE_CONSUMER_{name}": value for name, value in given.items()}
        java = {"JAVA_HOME": str(find_java().home), "SPARK_LOCAL_IP": "127.0.0.1"}
        environ = {**os.environ, **java, **environ}
        done = run_module("tidegate.spark_consumer", "run", environ=environ, timeout_s=PATIENCE_S)
        return done.returncode, done.stderr

    def refused(self, *texts, **settings):
        """Run; the error is one line that names these."""
        code, stderr = self.run(**settings)
        (line,) = [one for one in stderr.splitlines() if one.startswith("error: ")]
        assert code == 2, stderr[-3_000:]
        for text in texts:
            assert text in line, line
        assert "Traceback" not in stderr
        return line

    def rows(self, table):
        path = self.folder / "output" / table
        return deltalake.DeltaTable(path).to_pyarrow_table().to_pylist() if path.exists() else []

    def ids(self):
        """Return the keys of all released changes, in commit order."""
        rows = self.rows("changelog/accounts") + self.rows("changelog/ledger")
        return [row["key"]["id"] for row in sorted(rows, key=_order)]

    def manifests(self):
        return sorted(Path(self.folder, "output", "_releases").glob("0*.json"))


def _order(row):
    return row["release"], row["ordinal"]


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (lambda value: b"\0\0\1\0\0" + value[5:], "names a schema that the registry does not know"),
        (lambda value: value[:9], "a value does not fit the schema that it names"),
    ],
    ids=["unknown schema", "undecodable"],
)
def test_a_record_that_cannot_be_decoded_is_named_and_nothing_is_written(
    kafka_and_registry, tmp_path, spoil, text
):
    one = Consumer(kafka_and_registry, tmp_path, f"spoilt{len(text)}")
    one.stream.change(10)
    offset = one.stream.change(11, spoil=spoil)
    one.stream.beat(FAR_US)
    topic = one.stream.tables["accounts"].topic
    one.refused(text, f"topic='{topic}', topic_partition=0, offset={offset}", "on_bad_record")
    assert (one.ids(), one.manifests()) == ([], [])
