"""Starts a Spark session as a run has it, has it work a little, and waits until Java has ended.

What Java loads on the way is recorded, so this uses what the consumer's first batch uses.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from tidegate.spark_consumer.sinks.sql_names import quoted
from tidegate.spark_consumer.spark.session import local_session


def main(arguments: list[str] | None = None) -> int:
    """Run; return Java's exit code."""
    options = _options(arguments)
    spark = local_session(
        master="local[2]",
        packages="",
        jars=options.jars,
        app_name="tidegate-start",
        java_options=options.java_options,
    )
    table = quoted("delta", options.folder)
    spark.range(100).selectExpr("id", "sha2(string(id), 256) AS text").write.format("delta").save(
        options.folder
    )
    spark.range(50, 150).createOrReplaceTempView("changes")
    spark.sql(
        f"MERGE INTO {table} AS held USING changes ON held.id = changes.id "  # noqa: S608 - a folder of our own
        "WHEN MATCHED THEN UPDATE SET text = 'seen' "
        "WHEN NOT MATCHED THEN INSERT (id, text) VALUES (id, 'new')"
    )
    spark.sql(f"SELECT text, count(*), max(id) FROM {table} GROUP BY text ORDER BY text").collect()  # noqa: S608 - as above
    java: Any = spark.sparkContext._gateway.proc  # type: ignore[union-attr]  # noqa: SLF001 - pyspark has no way of its own
    spark.stop()
    java.stdin.close()
    return int(java.wait())


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jars", required=True, help="Jars, with commas")
    parser.add_argument("--folder", required=True, help="Where its table is written")
    parser.add_argument("--java-options", required=True, help="Options of its Java")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
