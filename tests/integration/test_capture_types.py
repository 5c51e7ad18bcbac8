"""What each value capture type leaves out, as a reader without our code sees it.

The type of one stream is altered while workers read it; in each phase a row is inserted, one of its
columns updated, another one set to NULL, and the row deleted.
"""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from google.cloud.spanner_v1 import KeySet

from spanner_simulator import Simulator
from tests.integration.test_postgresql import messages
from tidegate.local_stack.config import load_config
from tidegate.local_stack.demo.pipeline import Pipeline
from tidegate.local_stack.parts.database_name import DatabaseName
from tidegate.local_stack.parts.programs import Programs
from tidegate.local_stack.parts.stack import LocalStack

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
    "GOOGLE_STANDARD_SQL": [
        "CREATE TABLE Items (Id INT64, A INT64, B STRING(9), C STRING(9)) PRIMARY KEY (Id)",
        "CREATE CHANGE STREAM Feed FOR Items OPTIONS (value_capture_type = '{}')",
    ],
    "POSTGRESQL": [
        'CREATE TABLE "Items" ("Id" bigint, "A" bigint, "B" text, "C" text, PRIMARY KEY ("Id"))',
        'CREATE CHANGE STREAM "Feed" FOR "Items" WITH (value_capture_type = \'{}\')',
    ],
}
ALTER = {
    "GOOGLE_STANDARD_SQL": "ALTER CHANGE STREAM Feed SET OPTIONS (value_capture_type = '{}')",
    "POSTGRESQL": "ALTER CHANGE STREAM \"Feed\" SET (value_capture_type = '{}')",
}


@pytest.fixture(scope="module", params=list(DDL))
def published(request, tmp_path_factory):
    """All messages of the table, by phase and in commit order."""
    folder = tmp_path_factory.mktemp("capture")
    with (
        LocalStack(load_config(data_dir=folder / "stack"), with_simulator=False) as stack,
        Simulator(seed=5) as simulator,
    ):
        name = DatabaseName(simulator.grpc_address, "test-project", "test-instance", "items")
        table, stream = DDL[request.param]
        ddl = [table, stream.format(PHASES[0])]
        simulator.create_database(name.database, ddl=ddl, dialect=request.param)
        database = simulator.client().instance(name.instance).database(name.database)
        pipeline = Pipeline(
            Programs(
                folder=folder,
                bootstrap_servers=stack.bootstrap_servers,
                registry_url=stack.registry_url,
                spanner_address=simulator.grpc_address,
                database=name,
                stream="Feed",
                prefix="items",
            )
        )
        pipeline.start_workers(1, start=datetime.now(UTC).isoformat().replace("+00:00", "Z"))
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
        found = messages((stack, pipeline, database), "items.Items", count=CHANGES * len(PHASES))
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
