"""A streaming query whose batch takes a while; it says what it does, in a file.

`spark-submit` starts it, or Python, in a process group that gets SIGTERM in the middle of a batch.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from pathlib import Path

from tidegate.spark_consumer.spark.requirements import is_submitted
from tidegate.spark_consumer.spark.session import local_session, submitted_session
from tidegate.spark_consumer.spark.shutdown import stopped_before_java

BATCH_S = 4.0


def main(folder: Path, jars: str, java_options: str) -> None:
    """Run until it is stopped."""
    said, stop = folder / "said", threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())

    def say(line: str) -> None:
        with said.open("a") as file:
            file.write(f"{line}\n")

    def batch(frame, number):
        if not stop.is_set():
            say(f"begin {number}")
            time.sleep(BATCH_S)
            say(f"end {number} {frame.sparkSession.range(10).count()}")

    spark = (
        submitted_session(app_name="stopped")
        if is_submitted()
        else local_session(
            master="local[1]",
            packages="",
            jars=jars,
            app_name="stopped",
            java_options=java_options,
        )
    )
    with stopped_before_java(spark, stop):
        rows = spark.readStream.format("rate").load().writeStream.foreachBatch(batch)
        query = rows.option("checkpointLocation", str(folder / "checkpoint")).start()
        stop.wait()
        while any("begin" in line for line in said.read_text().splitlines()[-1:]):
            time.sleep(0.1)
            if not query.isActive:
                say("cancelled")
                break
        spark.stop()
        say("stopped")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
