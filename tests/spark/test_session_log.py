"""A session of ours leaves it to the run to report why its query failed."""

import subprocess
import sys

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FAILING_RUN = """
import sys
from tidegate.spark_consumer.spark.session import local_session

spark = local_session(master="local[1]", packages="", jars=sys.argv[1], app_name="t")

def fail(rows, number):
    raise ValueError("on purpose")

source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
query = source.writeStream.foreachBatch(fail).option("checkpointLocation", sys.argv[2]).start()
try:
    query.awaitTermination()
except Exception as error:
    print("reported" if "on purpose" in str(error) else error)
"""


def test_a_failed_query_prints_no_stack_trace(spark, tmp_path):
    jars = spark.conf.get("spark.jars")
    outcome = subprocess.run(
        [sys.executable, "-c", FAILING_RUN, jars, str(tmp_path)],
        capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    assert outcome.stdout.strip() == "reported", outcome
    assert "Traceback" not in outcome.stderr
    assert "\tat " not in outcome.stderr
