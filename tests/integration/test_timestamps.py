"""Timestamps with nanoseconds, as keys, values and in arrays, from Spanner to the Delta output."""

from __future__ import annotations

import time

import deltalake
import pytest

from tests.integration.shared_stack import now
from tests.integration.topic_reading import read_published
from tidegate.local_stack.demo.bank_database import commit_time_us
from tidegate.local_stack.demo.pipeline import Pipeline

pytestmark = [pytest.mark.integration, pytest.mark.slow]

STREAM = "Feed"
TABLE = "Moment TIMESTAMP NOT NULL, V INT64, Last TIMESTAMP, Times ARRAY<TIMESTAMP>"
DDL = [
    f"CREATE TABLE Seen ({TABLE}) PRIMARY KEY (Moment)",
    f"CREATE CHANGE STREAM {STREAM} FOR Seen OPTIONS (value_capture_type = 'NEW_ROW')",
]
COLUMNS = ("Moment", "V", "Last", "Times")
# One microsecond holds the keys of the first three.
KEYS = [f"2024-01-02T03:04:05.{fraction}Z" for fraction in ("123456001", "123456", "123456999")]
KEYS += ["2024-01-02T03:04:05Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999Z"]
LAST = "1969-12-31T23:59:59.000000001Z"
TIMES = ["2262-04-12T00:00:00.1Z", None]
DEADLINE_S = 240


@pytest.mark.timeout(600)
def test_nanoseconds_arrive_as_text_in_keys_values_and_arrays(shared_stack, tmp_path):
    topic = shared_stack.topic("Seen")
    database = shared_stack.create_database(DDL)
    start = now()
    pipeline = Pipeline(shared_stack.programs(STREAM, TIDEGATE_PRODUCER_TIMESTAMPS="string"))
    try:
        pipeline.start_workers(1, start=start)
        for version in range(3):
            with database.batch() as batch:
                batch.insert_or_update(
                    "Seen", COLUMNS, [(key, version, LAST, TIMES) for key in KEYS]
                )
        changes = read_published(shared_stack, pipeline, topic, count=3 * len(KEYS))
        pipeline.start_consumer()
        pipeline.wait_released(commit_time_us(batch.committed), deadline_s=DEADLINE_S)
    finally:
        faults = pipeline.stop()
    assert faults == []

    other = shared_stack.programs(STREAM).worker("other", start=start)
    other.start()
    give_up_at = time.monotonic() + DEADLINE_S
    while other.process.exit_code is None and time.monotonic() < give_up_at:
        time.sleep(0.1)
    assert other.process.exit_code == 2
    assert "timestamps: recorded 'string', now 'micros'" in other.process.log_tail(20)

    assert sorted(change.key()["Moment"] for change in changes) == sorted(3 * KEYS)
    for key in KEYS:
        rows = [one.value()["new_values"] for one in changes if one.key()["Moment"] == key]
        assert [row["V"] for row in rows] == [0, 1, 2]
        assert all((row["Last"], row["Times"]) == (LAST, TIMES) for row in rows)
    mirror = deltalake.DeltaTable(tmp_path / "output" / "mirror" / "Seen").to_pyarrow_table()
    found = {row["Moment"]: (row["V"], row["Last"], row["Times"]) for row in mirror.to_pylist()}
    assert found == dict.fromkeys(KEYS, (2, LAST, TIMES))
    assert mirror.num_rows == len(KEYS)
    changelog = deltalake.DeltaTable(tmp_path / "output" / "changelog" / "Seen").to_pyarrow_table()
    assert sorted(row["key"]["Moment"] for row in changelog.to_pylist()) == sorted(3 * KEYS)
