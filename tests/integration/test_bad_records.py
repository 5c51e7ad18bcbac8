"""Bad input of the consumer, on a real Kafka and registry, through the real command.

Each is one line that names what was found and what to do, exit code 2, no traceback, and an output
in which nothing is missing or half written.  The stream is written by hand: no worker writes this.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import deltalake
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from tests.hand_stream import HandStream
from tidegate.local_stack.config import load_config
from tidegate.local_stack.parts.java import find_java
from tidegate.local_stack.parts.jvm_parts import fetched_jvm_parts
from tidegate.local_stack.parts.stack import LocalStack
from tidegate.program.registry_http import HttpSchemaRegistry
from tidegate.schemas.progress import ChildPartition, StreamStarted
from tidegate.spark_consumer.commands.status import status

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]

PATIENCE_S = 300
FAR_US = 4_000_000_000_000_000
"""In the year 2096: a watermark with which a run has caught up."""


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    config = load_config(data_dir=tmp_path_factory.mktemp("stack"))
    with LocalStack(config, with_simulator=False) as running:
        yield running


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
            "JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "LOG_LEVEL": "warning",
            **settings,
        }
        environ = {f"TIDEGATE_CONSUMER_{name}": value for name, value in given.items()}
        java = {"JAVA_HOME": str(find_java().home), "SPARK_LOCAL_IP": "127.0.0.1"}
        done = subprocess.run(
            [sys.executable, "-m", "tidegate.spark_consumer", "run"],
            env={**os.environ, **java, **environ},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
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


def test_records_of_others_end_the_run_and_by_setting_become_dead_letters(stack, tmp_path):
    """Foreign, of an unknown schema, and undecodable, one after the other as each is found."""
    one = Consumer(stack, tmp_path, "foreign")
    topic = one.stream.tables["accounts"].topic
    one.stream.change(10)
    foreign = one.stream.write(topic, b"k", b'{"hello": 1}', [("trace", b"7")])
    unknown = one.stream.change(11, spoil=lambda value: b"\0\0\1\0\0" + value[5:])
    cut = one.stream.change(12, spoil=lambda value: value[:9])
    one.stream.change(13, table="ledger")
    one.stream.beat(FAR_US)
    line = one.refused(f"{topic}/0/{foreign}", "order key", "on_bad_record")
    assert "rows=1" in line
    assert (one.rows("changelog/accounts"), one.manifests()) == ([], [])

    code, stderr = one.run(ON_BAD_RECORD="dead_letter")
    assert code == 0, stderr[-3_000:]
    assert one.ids() == [10, 13]
    found = sorted(one.rows("dead_letters"), key=lambda row: row["offset"])
    assert [(row["topic"], row["topic_partition"], row["offset"]) for row in found] == [
        (topic, 0, foreign), (topic, 0, unknown), (topic, 0, cut),
    ]  # fmt: skip
    sent = [record for record in one.stream.records if record[0] == topic]
    for row in found:
        _, key, value, headers = sent[row["offset"]]
        assert (row["key"], row["value"]) == (key, value)
        assert [(one["key"], one["value"]) for one in row["headers"]] == headers
    assert [row["reason"] for row in found] == [
        "its first header is no order key",
        "a value has a schema id that the plan does not name",
        "a value does not fit the schema that it names",
    ]
    assert status(str(tmp_path / "checkpoint"))["dead_letters"] == 3

    # Two of them were changes of the stream: its marker proves that they are missing.
    one.stream.finish(end_us=FAR_US + 10)
    one.stream.beat(FAR_US + 20, token="u")
    one.refused(
        "a stream partition is not as its completion marker states", "changes are missing",
        "dead_letters has 3 records", ON_BAD_RECORD="dead_letter",
    )  # fmt: skip
    code, stderr = one.run(ON_BAD_RECORD="dead_letter", ON_MISMATCH="record")
    assert code == 0, stderr[-3_000:]
    assert status(str(tmp_path / "checkpoint"))["mismatches"] == 1
    assert len(one.rows("dead_letters")) == 3


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (lambda value: b"\0\0\1\0\0" + value[5:], "names a schema that the registry does not know"),
        (lambda value: value[:9], "a value does not fit the schema that it names"),
    ],
    ids=["unknown schema", "undecodable"],
)
def test_a_record_that_cannot_be_decoded_is_named_and_nothing_is_written(
    stack, tmp_path, spoil, text
):
    one = Consumer(stack, tmp_path, f"spoilt{len(text)}")
    one.stream.change(10)
    offset = one.stream.change(11, spoil=spoil)
    one.stream.beat(FAR_US)
    topic = one.stream.tables["accounts"].topic
    one.refused(text, f"topic='{topic}', topic_partition=0, offset={offset}", "on_bad_record")
    assert (one.ids(), one.manifests()) == ([], [])


def test_a_progress_topic_of_another_stream_or_a_newer_version_is_named(stack, tmp_path):
    one = Consumer(stack, tmp_path / "two", "two", tables=("accounts",))
    one.stream.change(10)
    child = ChildPartition("t", ("",), 0)
    place = one.stream.progress(StreamStarted("other", "g", 0, None, "x", 1, "i", (), (child,)))
    one.stream.beat(FAR_US)
    one.refused("two streams", "'s', 'other'", f"slot=0, offset={place}")
    assert one.ids() == []

    other = Consumer(stack, tmp_path / "later", "later", tables=("accounts",))
    later = {
        "type": "record", "name": "ProgressRecord", "namespace": "tidegate.later",
        "fields": [{"name": "of_version_9", "type": "string"}],
    }  # fmt: skip
    schema_id = other.registry.register("later-record", later)
    other.stream.change(10)
    value = b"\0" + schema_id.to_bytes(4, "big") + b"\x02x"
    place = other.stream.write(other.stream.names.progress, b"k", value)
    other.stream.beat(FAR_US)
    other.refused("cannot be read", f"slot=0, offset={place}", "upgrade this program")
    assert other.ids() == []


def test_what_retention_has_removed_is_named_by_offsets_and_by_time(stack, tmp_path):
    one = Consumer(stack, tmp_path, "expired", tables=("accounts",))
    one.stream.change(10)
    one.stream.beat(FAR_US)
    code, stderr = one.run()
    assert (code, one.ids()) == (0, [10]), stderr[-3_000:]
    for commit_us in range(1, 4):
        one.stream.change(FAR_US + commit_us)
    one.stream.send(stack.bootstrap_servers)
    topic = one.stream.tables["accounts"].topic
    admin = AdminClient({"bootstrap.servers": stack.bootstrap_servers})
    for future in admin.delete_records([TopicPartition(topic, 0, 3)]).values():
        future.result(60)
    one.stream.beat(FAR_US + 10)
    one.refused(
        f"topic='{topic}', topic_partition=0, lost_from=1, lost_through=2",
        "committed_after='2096-10-02T07:06:40+00:00'", "committed_before='",
    )  # fmt: skip
    assert one.ids() == [10]


def test_a_data_topic_that_is_gone_is_named(stack, tmp_path):
    one = Consumer(stack, tmp_path, "gone", tables=("accounts",))
    one.stream.change(10)
    one.stream.change(11)
    one.stream.beat(FAR_US)
    code, stderr = one.run()
    assert code == 0, stderr[-3_000:]
    topic = one.stream.tables["accounts"].topic
    admin = AdminClient({"bootstrap.servers": stack.bootstrap_servers})
    for future in admin.delete_topics([topic]).values():
        future.result(60)
    give_up_at = time.monotonic() + 60
    while topic in admin.list_topics(timeout=10).topics:
        assert time.monotonic() < give_up_at
        time.sleep(0.2)
    one.stream.beat(FAR_US + 10)
    one.refused(topic, "deleted")
    assert one.ids() == [10, 11]


def test_a_mirror_that_somebody_else_wrote_to_is_named(stack, tmp_path):
    one = Consumer(stack, tmp_path, "shared", tables=("accounts",))
    one.stream.change(10)
    one.stream.beat(FAR_US)
    code, stderr = one.run()
    assert code == 0, stderr[-3_000:]
    mirror = deltalake.DeltaTable(tmp_path / "output" / "mirror" / "accounts")
    mirror.delete("id = 10")
    one.stream.change(FAR_US + 1, key=11)
    one.stream.beat(FAR_US + 10)
    one.refused("mirror/accounts", "DELETE", "tidegate-consumer adopt")
    assert (one.ids(), len(one.manifests())) == ([10], 1)
