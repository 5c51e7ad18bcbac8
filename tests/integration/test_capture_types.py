"""What each value capture type leaves out, as a reader without our code sees it.

The type of one stream is altered while workers read it; in each phase a row is inserted, one of its
columns updated, another one set to NULL, and the row deleted.
"""

from __future__ import annotations

import pytest
from google.cloud.spanner_v1 import KeySet

from tests.integration.shared_stack import now, open_shared_stack
from tests.integration.topic_reading import read_published
from tidegate.local_stack.demo.bank import Dialect
from tidegate.local_stack.demo.pipeline import Pipeline

pytestmark = [pytest.mark.integration, pytest.mark.slow]

KEY, ALL = ["Id"], ["Id", "A", "B", "C"]
NOTHING = None
CAPTURED = {
    # Of an update of A, of setting B to NULL, and of the delete: the new columns, the old ones.
    "OLD_AND_NEW_VALUES": (
        (["Id", "A"], ["Id", "A"]), (["Id", "B"], ["Id", "B"]), (NOTHING, ALL),
    ),
    "NEW_VALUES": ((["Id", "A"], NOTHING), (["Id", "B"], NOTHING), (NOTHING, KEY)),
    "NEW_ROW": ((ALL, NOTHING), (ALL, NOTHING), (NOTHING, KEY)),
    "NEW_ROW_AND_OLD_VALUES": ((ALL, ["Id", "A"]), (ALL, ["Id", "B"]), (NOTHING, ALL)),
}  # fmt: skip
PHASES = [*CAPTURED, "OLD_AND_NEW_VALUES"]
CHANGES = 4
DDL = {
    Dialect.GOOGLESQL: [
        "CREATE TABLE Items (Id INT64, A INT64, B STRING(9), C STRING(9)) PRIMARY KEY (Id)",
        "CREATE CHANGE STREAM Feed FOR Items OPTIONS (value_capture_type = '{}')",
    ],
    Dialect.POSTGRESQL: [
        'CREATE TABLE "Items" ("Id" bigint, "A" bigint, "B" text, "C" text, PRIMARY KEY ("Id"))',
        'CREATE CHANGE STREAM "Feed" FOR "Items" WITH (value_capture_type = \'{}\')',
    ],
}
ALTER = {
    Dialect.GOOGLESQL: "ALTER CHANGE STREAM Feed SET OPTIONS (value_capture_type = '{}')",
    Dialect.POSTGRESQL: "ALTER CHANGE STREAM \"Feed\" SET (value_capture_type = '{}')",
}


@pytest.fixture(scope="module", params=list(DDL))
def published(request, kafka_and_registry, tmp_path_factory):
    """All messages of the table, by phase and in commit order."""
    folder = tmp_path_factory.mktemp("capture")
    with open_shared_stack(kafka_and_registry, folder, stream_partitions=2) as stack:
        table, stream = DDL[request.param]
        ddl = [table, stream.format(PHASES[0])]
        database = stack.create_database(ddl, dialect=request.param)
        pipeline = Pipeline(stack.programs("Feed"))
        pipeline.start_workers(1, start=now())
        for number, kind in enumerate(PHASES):
            if number:
                database.update_ddl([ALTER[request.param].format(kind)]).result(timeout=60)
            for change in (
                lambda batch, key: batch.insert("Items", ALL, [(key, 1, "b", None)]),
                lambda batch, key: batch.update("Items", ["Id", "A"], [(key, 2)]),
                lambda batch, key: batch.update("Items", ["Id", "B"], [(key, None)]),
                lambda batch, key: batch.delete("Items", KeySet(keys=[[key]])),
            ):
                with database.batch() as batch:
                    change(batch, number)
        found = read_published(stack, pipeline, stack.topic("Items"), count=CHANGES * len(PHASES))
        assert pipeline.stop() == []
    found.sort(key=lambda message: dict(message.headers())["order"])
    return [found[first : first + CHANGES] for first in range(0, len(found), CHANGES)]


def captured(value, side):
    """Return the captured columns of a side with their values; None without a row."""
    names = value[f"{side}_columns"]
    assert (names is None) == (value[f"{side}_values"] is None)
    return None if names is None else {name: value[f"{side}_values"][name] for name in names}


def chosen(row, names):
    return None if names is None else {name: row[name] for name in names}


@pytest.mark.rule("spanner-capture-types", "spanner-mods", "P3")
def test_a_plain_reader_tells_what_is_absent_from_what_is_null(published):
    assert len(published) == len(PHASES)
    for number, (kind, changes) in enumerate(zip(PHASES, published, strict=True)):
        insert, update, clear, delete = [message.value() for message in changes]
        rows = [
            {"Id": number, "A": 1, "B": "b", "C": None},
            {"Id": number, "A": 2, "B": "b", "C": None},
            {"Id": number, "A": 2, "B": None, "C": None},
        ]
        assert {message.key()["Id"] for message in changes} == {number}
        assert {one["source"]["value_capture_type"] for one in (insert, update, clear)} == {kind}
        assert (captured(insert, "new"), captured(insert, "old")) == (rows[0], None)
        steps = zip((update, clear, delete), CAPTURED[kind], rows, [*rows[1:], None], strict=True)
        for value, (new, old), before, after in steps:
            assert captured(value, "new") == chosen(after, new), (kind, value["mod_type"])
            assert captured(value, "old") == chosen(before, old), (kind, value["mod_type"])
