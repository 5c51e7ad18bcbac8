"""Writes a checkpoint and an output with the program of its clone, which is killed at the end.

It made `older_checkpoint.tar.gz` in a clone of commit c3b63422, the last one whose states and plans
have format 7.  To repeat that, with this file and `tests/hand_stream.py` copied into such a clone:

    python -m tests.spark.older_checkpoint /tmp/older
    tar -C /tmp/older --exclude='*.crc' --sort=name -czf older_checkpoint.tar.gz checkpoint output

The mirror stands behind the changelog until the last batch, which first merges what it lacks.  Then
the process ends between two sinks of the batch's first release: the changelog has it and the mirror
does not.  So the checkpoint has a plan of that batch, and no state.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

from tests.hand_stream import HandStream, Ids
from tidegate.local_stack.parts.installed_java import find_java
from tidegate.local_stack.parts.jvm_parts import fetch_jvm_parts
from tidegate.local_stack.parts.kafka_broker import KafkaBroker
from tidegate.local_stack.parts.process import choose_ports

PREFIX = "older"
BATCHES = 3
SETTINGS = {"prefix": PREFIX, "release_rows_max": 3, "log_level": "error"}
"""With small releases, so that the last batch has several."""

_HOUR_MS = 3_600_000
_PATIENCE_S = 600
_KILLED = 9
_KILLED_WRITE = 2
"""The mirror's write in the last batch: the first one merges the rows that it lacks."""


def write_batch(stream: HandStream, batch: int) -> None:
    """Write what a batch reads: inserts or updates of them, a delete, a copy, one that waits.

    The copy is of a change that was released long before: it is late.
    """
    base, mod = 100 * (batch + 1), "UPDATE" if batch else "INSERT"
    for number in range(6):
        table = "ledger" if number % 2 else "accounts"
        stream.change(
            base + 10 * number, table=table, key=number, mod=mod, text=f"{batch}/{number}"
        )
    if batch:
        stream.change(base + 55, key=49 + batch, mod="DELETE")
        stream.write(
            *next(record for record in stream.records if record[0] != stream.names.progress)
        )
    stream.change(base + 145, key=50 + batch, text="waits")
    stream.beat(base + 60)


@contextmanager
def broker(folder: Path):
    """Run a broker below a folder; yields its address."""
    java = find_java()
    ports = choose_ports({"kafka_port": 0, "controller_port": 0})
    kafka = KafkaBroker(
        java=java,
        parts=fetch_jvm_parts(java),
        data_dir=folder,
        port=ports["kafka_port"],
        controller_port=ports["controller_port"],
        cancelled=threading.Event(),
    )
    try:
        kafka.start()
        yield kafka.bootstrap_servers
    finally:
        kafka.stop()


def main(folder: Path) -> None:
    """Run the consumer in a process of its own, on a real Kafka."""
    with broker(folder / "kafka") as bootstrap_servers:
        command = [sys.executable, "-m", "tests.spark.older_checkpoint", str(folder)]
        done = subprocess.run([*command, bootstrap_servers], check=False)
    assert done.returncode == _KILLED


def consume(folder: Path, bootstrap_servers: str) -> None:
    """Write and read batch after batch; end the process in the last one."""
    from tests.spark.conftest import local_spark
    from tidegate.spark_consumer.config import ConsumerConfig
    from tidegate.spark_consumer.sinks.merge.mirror import DeltaMirrorSink
    from tidegate.spark_consumer.spark.query import build_query

    ids = Ids()
    stream = HandStream(PREFIX, ids.register)
    stream.create(bootstrap_servers)
    spark = local_spark(folder / "spark", {})
    committed = folder / "checkpoint" / "spark" / "commits"
    for batch in range(BATCHES):
        is_last = batch == BATCHES - 1
        settings = ConsumerConfig.load(
            None,
            **SETTINGS,
            mirror_interval_ms=0 if is_last else _HOUR_MS,
            output=str(folder / "output"),
            checkpoint=str(folder / "checkpoint"),
            bootstrap_servers=bootstrap_servers,
            registry_url="http://127.0.0.1:1",
        )
        write_batch(stream, batch)
        stream.send(bootstrap_servers)
        if is_last:
            _end_in_the_mirror(DeltaMirrorSink)
        query = build_query(spark, settings, registry=ids)
        give_up_at = time.monotonic() + _PATIENCE_S
        while not (committed / str(batch)).exists():
            assert time.monotonic() < give_up_at
            time.sleep(0.2)
        query.stop()


def _end_in_the_mirror(sink) -> None:
    written, write = [], sink.write

    def count(self, release):
        written.append(release.number)
        if len(written) == _KILLED_WRITE:
            os._exit(_KILLED)
        return write(self, release)

    sink.write = count


if __name__ == "__main__":
    _folder = Path(sys.argv[1]).resolve()
    consume(_folder, sys.argv[2]) if sys.argv[2:] else main(_folder)
