"""An output is read by other engines, as docs/how-to/read-it.md prints it."""

from __future__ import annotations

import pytest

from tests.tidy.printed_commands import blocks
from tidegate.spark_consumer.sinks.delta.direct.place import DirectPlace
from tidegate.spark_consumer.sinks.delta.direct.way import DirectWay
from tidegate.spark_consumer.sinks.merge.mirror import DeltaMirrorSink

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PAGE = "docs/how-to/read-it.md"
COLUMNS = {"AccountId": "INT64", "Balance": "INT64", "Note": "STRING(MAX)"}


def test_the_engines_of_the_page_read_what_spark_and_delta_rs_have_written(kit):
    pytest.importorskip("polars")
    topic = kit.Topic("accounts", {1: COLUMNS}, ["AccountId"])
    direct = DirectWay(DirectPlace(kit.output))
    sink = DeltaMirrorSink(kit.spark, kit.output, direct=direct)
    sink.open(query_id="query-1", release_max=100)
    rows = {}
    for number, small in enumerate((True, False, True)):
        new = {"Balance": 100 * number, "Note": f"ü{number}" if number else None}
        changes = [("INSERT", {"AccountId": number}, new)]
        rows[number] = new
        if number:
            rows[0] = rows[0] | {"Balance": 50 + number}
            changes.append(("UPDATE", {"AccountId": 0}, {"Balance": 50 + number}))
        of_topic = [(topic, kit.Change(*one, us=10 * number + n)) for n, one in enumerate(changes)]
        sink.write(kit.release(number, of_topic, topics=[topic], small=small))

    (printed,) = (block for block in blocks("python") if block.page == PAGE)
    found = {"output": kit.output}
    exec(compile(printed.content, PAGE, "exec"), found)

    expected = [{"AccountId": key, **row} for key, row in rows.items()]
    by_key = [
        sorted(one, key=lambda row: row["AccountId"])
        for one in (
            found["table"].to_pyarrow_table().to_pylist(),
            found["frame"].astype(object).where(found["frame"].notna(), None).to_dict("records"),
            found["lazy"].collect().to_dicts(),
        )
    ]
    assert by_key == [expected] * 3
    assert [row[0] for row in found["rich"].fetchall()] == [
        row["AccountId"] for row in expected if row["Balance"] > 100
    ]
