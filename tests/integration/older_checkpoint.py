"""Writes a checkpoint and an output with the program that it runs with, then is killed.

It made `older_checkpoint.tar.gz`, with the program of commit 3376232~1, whose states and plans have
format 7.  To repeat that, in a clone of that commit, with this file and `tests/hand_stream.py`:

    python -m tests.integration.older_checkpoint FOLDER
    tar -C FOLDER -czf older_checkpoint.tar.gz checkpoint output

The process ends in the middle of the last batch, between two sinks: the first release is in every
sink and has a manifest; of the second one the changelog is written and the mirror is not.  So the
checkpoint has a stored plan, and no state, of that batch.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from tests.hand_stream import HandStream, Ids

__all__ = ["BATCHES", "PREFIX", "SETTINGS", "write_batch"]

PREFIX = "older"
BATCHES = 3
SETTINGS = {"prefix": PREFIX, "release_rows_max": 3, "mirror_interval_ms": 0, "log_level": "error"}
"""With small releases, so that the last batch has several."""

_PATIENCE_S = 240
_KILLED_WRITE = 2
"""Of the mirror in the last batch: that of its second release."""


def write_batch(stream: HandStream, batch: int) -> None:
    """Write what a batch reads: inserts, updates, a delete, changes that wait, and a copy."""
    base = 100 * (batch + 1)
    for number in range(6):
        table = "ledger" if number % 2 else "accounts"
        stream.change(base + 10 * number, table=table, key=number, text=f"{batch}/{number}")
    stream.change(base + 55, key=4, mod="DELETE")
    stream.change(base + 145, key=50 + batch, text="waits")
    stream.beat(base + 60)


def main(folder: Path) -> None:
    """Run batch after batch on a real Kafka; end the process in the last one."""
    from tests.spark.conftest import local_spark
    from tidegate.local_stack.config import load_config
    from tidegate.local_stack.parts.stack import LocalStack
    from tidegate.spark_consumer.config import ConsumerConfig
    from tidegate.spark_consumer.sinks.delta.mirror import DeltaMirrorSink
    from tidegate.spark_consumer.spark.query import build_query

    ids = Ids()
    stream = HandStream(PREFIX, ids.register)
    config = load_config(data_dir=folder / "stack")
    with LocalStack(config, with_simulator=False) as stack:
        stream.create(stack.bootstrap_servers)
        spark = local_spark(folder / "spark", {})
        settings = ConsumerConfig.load(
            None,
            **SETTINGS,
            output=str(folder / "output"),
            checkpoint=str(folder / "checkpoint"),
            bootstrap_servers=stack.bootstrap_servers,
            registry_url="http://127.0.0.1:1",
        )
        states = folder / "checkpoint" / "gate" / "states"
        for batch in range(BATCHES):
            write_batch(stream, batch)
            stream.send(stack.bootstrap_servers)
            if batch == BATCHES - 1:
                _end_in_the_mirror(DeltaMirrorSink)
            query = build_query(spark, settings, registry=ids)
            give_up_at = time.monotonic() + _PATIENCE_S
            while not (states / f"{batch}.json").exists():
                assert time.monotonic() < give_up_at
                time.sleep(0.2)
            query.stop()


def _end_in_the_mirror(sink) -> None:
    written, write = [], sink.write

    def count(self, release):
        written.append(release.number)
        if len(written) == _KILLED_WRITE:
            os._exit(9)
        return write(self, release)

    sink.write = count


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
