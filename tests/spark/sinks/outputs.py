"""Changelog, mirror and history over one folder, which delta-rs and Spark write in turns.

With a plain model of a mirror, and histories for it.
"""

import copy
from datetime import UTC, datetime, timedelta
from pathlib import Path

import deltalake
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from tidegate.spark_consumer.sinks.delta.direct.place import DirectPlace
from tidegate.spark_consumer.sinks.delta.direct.way import DirectWay
from tidegate.spark_consumer.sinks.kinds import changelog_sink
from tidegate.spark_consumer.sinks.merge.history import DeltaHistorySink
from tidegate.spark_consumer.sinks.merge.mirror import DeltaMirrorSink
from tidegate.spark_consumer.sinks.merge.versions import HistoryColumns
from tidegate.spark_consumer.sinks.port import Merge

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MERGING = {"mirror": DeltaMirrorSink, "history": DeltaHistorySink}


def examples(number):
    """Settings of a property over releases on Spark, each of whose examples takes seconds."""
    checks = list(HealthCheck)
    return settings(
        max_examples=number, deadline=None, derandomize=True, suppress_health_check=checks
    )


class Output:
    """The sinks over one folder; `open` does what a restart does.

    Releases that are not small are written as where there is no delta-rs.
    """

    def __init__(self, kit, folder, *, accepted=(), prefix=""):
        self.kit, self.folder, self.accepted = kit, str(folder), accepted
        self.of_sink = {"history": {"columns": HistoryColumns(prefix)}, "mirror": {}}
        self.open()

    def open(self, *, release_max=100, query_id="query-1"):
        self.sinks = {}
        for small in (True, False):
            common = {"direct": DirectWay(DirectPlace(self.folder)) if small else None}
            at = self.kit.spark, self.folder
            self.sinks["changelog", small] = changelog_sink(*at, **common)
            for name, make in MERGING.items():
                of_sink = self.of_sink[name]
                self.sinks[name, small] = make(*at, **common, **of_sink, accepted=self.accepted)
        for (name, _), sink in self.sinks.items():
            sink.open(query_id=query_id, release_max=100 if name == "changelog" else release_max)

    def release(self, number, topic, changes, *, small):
        topic = copy.deepcopy(topic)  # it counts offsets, which are the same in a replay
        pairs = [(topic, change) for change in changes]
        return self.kit.release(number, pairs, topics=[topic], small=small)

    def write(self, number, topic, changes, *, small=False, to="history"):
        return self.sinks[to, small].write(self.release(number, topic, changes, small=small))

    def append(self, number, topic, changes, *, small=True):
        return self.write(number, topic, changes, small=small, to="changelog")

    def merge(self, topic, after, through, *, small, to="history"):
        schemas = {topic.topic: topic.topic_schemas()}
        through_us = (through + 1) * 1_000_000
        merge = Merge("query-1", through, after, through, through_us, schemas)
        return self.sinks[to, small].merge(merge)

    def read(self, folder="history", version=None, table="t"):
        """Rows with times in microseconds; read without Spark."""
        path = Path(self.folder, folder, table)
        if not path.exists():
            return []
        rows = deltalake.DeltaTable(path, version=version).to_pyarrow_table().to_pylist()
        for row in rows:
            for name in {"valid_from", "valid_to"} & row.keys():
                time = row[name]
                row[name] = time and (time - EPOCH) // timedelta(microseconds=1)
        return rows

    def texts(self, folder="history", version=None, table="t"):
        """Rows as text, in which NaN equals NaN, without regard to the order of columns."""
        rows = self.read(folder, version, table)
        return sorted(repr(sorted(row.items())) for row in rows)

    def versions(self, *names, table="t"):
        """Versions as tuples: from, to, and the named columns."""
        rows = self.read(table=table)
        assert all(row["is_current"] == (row["valid_to"] is None) for row in rows)
        found = [
            (row["valid_from"], row["valid_to"], *(row[name] for name in names)) for row in rows
        ]
        return sorted(found, key=str)

    def set_aside(self, folder="history_incomplete", table="t"):
        rows = self.read(folder, table=table)
        return sorted((row["release"], row["ordinal"]) for row in rows)


class PlainMirror:
    """Columns `a` and `b` by key; `incomplete` lists the key of each UPDATE without a row."""

    def __init__(self):
        self.rows = {}
        self.incomplete = []

    def apply_release(self, history):
        """Voids what a later whole change of the release makes void, as the sink does."""
        last_whole = {}
        for n, (mod, key, _) in enumerate(history):
            if mod != "UPDATE":
                last_whole[key] = n
        for n, (mod, key, new) in enumerate(history):
            if mod == "INSERT":
                self.rows[key] = {"a": None, "b": None} | new
            elif mod == "DELETE":
                self.rows.pop(key, None)
            elif key in self.rows:
                self.rows[key] = self.rows[key] | new
            elif n > last_whole.get(key, -1):
                self.incomplete.append(key)


VALUES = st.fixed_dictionaries(
    {}, optional={"a": st.sampled_from([None, "x", "y"]), "b": st.sampled_from([None, 1, 2])}
)
WHOLE = st.fixed_dictionaries(
    {"a": st.sampled_from([None, "x", "y"]), "b": st.sampled_from([None, 1, 2])}
)
STEP = st.one_of(
    st.tuples(st.just("INSERT"), WHOLE),
    st.tuples(st.just("UPDATE"), VALUES),
    st.tuples(st.just("DELETE"), st.none()),
)
# Each key has its own history in each of three releases: one example tries dozens of histories.
HISTORIES = st.lists(
    st.tuples(*(st.lists(STEP, max_size=4) for _ in range(3))), min_size=20, max_size=60
)
