"""The side tables: each release once, with the ordinals that its changes were released with."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from tidegate.spark_consumer.sinks.delta.changelog_reader import ORDINALS
from tidegate.spark_consumer.sinks.delta.commit_log import Commit
from tidegate.spark_consumer.sinks.delta.direct_way import find_direct_way
from tidegate.spark_consumer.sinks.delta.incomplete import IncompleteTables

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.mark.parametrize("is_direct", [False, True], ids=["spark", "delta-rs"])
@pytest.mark.parametrize("of", ["mirror", "history"])
def test_changes_are_appended_once_and_counted(kit, is_direct, of):
    topic = kit.Topic("t", {1: {"id": "INT64", "a": "INT64"}}, ["id"])
    changes = [(topic, kit.Change("UPDATE", {"id": n}, {"a": n}, us=n + 1)) for n in range(3)]
    release = kit.release(4, changes, small=True)
    (one,) = release.tables.values()
    for change in one.changes:
        change["ordinal"] += 2 * ORDINALS
    direct = find_direct_way(kit.output, rows_max=100) if is_direct else None
    commit = Commit("query-1", of, 4, release.through_us)
    for again in (False, True):
        side = IncompleteTables(kit.output, name="aside", of=of, direct=direct)
        side.open(kit.spark, query_id="query-1", release_max=4)
        with capture_logs() as lines:
            if is_direct:
                side.append_rows(one, one.changes[1:], commit=commit)
            else:
                later = f"ordinal + {2 * ORDINALS} as ordinal"
                rest = [name for name in one.frame.columns if name != "ordinal"]
                frame = one.frame.where("ordinal > 0").selectExpr(later, *rest)
                side.append_frame(one, frame, commit=commit)
        assert side.changes == (0 if again else 2)
        assert [line["event"] for line in lines] == (
            [] if again else [f"updates of rows that the {of} lacks"]
        )
    rows = kit.read("aside/t").to_pylist()
    assert [(row["release"], row["ordinal"], row["key"]["id"]) for row in rows] == [
        (4, 1, 1),
        (4, 2, 2),
    ]


def test_nothing_makes_no_table(kit):
    topic = kit.Topic("t", {1: {"id": "INT64", "a": "INT64"}}, ["id"])
    (one,) = kit.release(0, [], topics=[topic], small=True).tables.values()
    side = IncompleteTables(kit.output, name="aside", of="mirror")
    side.open(kit.spark, query_id="query-1", release_max=4)
    side.append_rows(one, [], commit=Commit("query-1", "mirror", 0, 1))
    side.open(kit.spark, query_id="query-1", release_max=4)
    assert side.changes == 0
