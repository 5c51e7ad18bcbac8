"""A query with every sink there is, and what any reader of its outputs can see.

The sinks are made from settings, as a run makes them; a function with each release and one with
each batch are beside them.  Some join when the query has released already.  The ordered topic's
broker is in memory: tests/topic_contract.py holds it to what a real one does.  What a query has one
of only, these sinks have in one form: the topic's order is total, tables have no names in a
catalog, the function takes changes and not transactions.

The world stays in one folder, since Iceberg tables hold whole paths: `save` and `load` keep what is
on disk elsewhere.
"""

import copy
import io
import json
import re
import shutil
from types import SimpleNamespace

import deltalake
import fastavro
import pyarrow.parquet

from tests.memory_topic import OUTPUT, MemoryStage
from tests.spark.batch.gate_world import ACCOUNTS, LEDGER, GateWorld
from tests.topics import Change, Topic
from tidegate.program.spark_versions import installed_line
from tidegate.spark_consumer import config as config_module
from tidegate.spark_consumer.batch.effect_loop import EffectLoop
from tidegate.spark_consumer.checkpoint.gate_files import GateFiles, newest_state
from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.config import ConsumerConfig
from tidegate.spark_consumer.core.cadence import Cadence
from tidegate.spark_consumer.core.limits import Limits
from tidegate.spark_consumer.sinks.delta.direct.way import find_direct_way
from tidegate.spark_consumer.sinks.delta.side_tables import DeltaDeadLetters, DeltaLateTable
from tidegate.spark_consumer.sinks.function import BatchFunctionSink, FunctionSink
from tidegate.spark_consumer.spark import sink_factory

ICEBERG = ("iceberg_changelog", "iceberg_mirror") if installed_line().iceberg else ()
"""None for a Spark that Iceberg has no runtime for."""
SINKS = tuple(
    name for name in config_module.SINKS if name in ICEBERG or not name.startswith("iceberg")
)
FUNCTIONS = ("function", "batches")
ALL = (*SINKS, *FUNCTIONS)
JOINING = (*ICEBERG[1:], "parquet_transactions")
"""The sinks that join with the last batch: a mirror, and one that has no past."""

BATCH = 2
"""The batch that is killed."""

_HOUR_US = 3_600_000_000
MINUTE = re.compile(r"(/[0-9]{2,4}){5}")
LIMITS = {
    "release_rows_max": 4,
    "segment_rows_max": 3,
    "segments_max": 1,
    "small_release_rows_max": 100,
    "small_release_bytes_max": 100_000,
    "releases_kept": 1,
}
COLUMNS = {"id": "INT64", "t": "STRING"}


class Killed(BaseException):
    """Stands for SIGKILL."""


class Places:
    """Notes each step of a batch, by effect and name, and ends the process after one of them.

    `seen` has the steps in their order.  `after` is the step whose last occurrence is followed by
    the kill, and `whole` the steps of a run without one.
    """

    END = "end"

    def __init__(self, after=None, whole=()):
        self.seen = []
        self._after, self._times = after, list(whole).count(after)

    def reach(self, step):
        is_next = self.seen[-1:] == [self._after]
        is_last = self.seen.count(self._after) == self._times
        self.seen.append(step)
        if is_next and is_last:
            raise Killed

    @property
    def loop(self):
        """The effect loop that does this."""
        places = self

        class WatchedLoop(EffectLoop):
            def _execute(self, effect):
                self.effect = type(effect).__name__
                return (yield from super()._execute(effect))

            def steps(self):
                for step in super().steps():
                    is_other = self.effect == "StoreDeadLetters" and step.release is not None
                    of = " of a release" if is_other else ""
                    places.reach(f"{self.effect} {step.name}{of}")
                    yield step
                places.reach(places.END)

        return WatchedLoop


class AllSinks(GateWorld):
    """A checkpoint and an output, the topic's broker, and what the functions have kept."""

    def __init__(self, spark, folder, patch):
        super().__init__(spark, folder / "world")
        self.saved = folder / "saved"
        self.sets_aside = self.records_mismatches = True
        self.stage, self.called = MemoryStage(), {name: {} for name in FUNCTIONS}
        self.sinks = tuple(name for name in SINKS if name not in JOINING)
        self.merge_every(_HOUR_US)
        self.make_sinks = self._sinks
        self.make_late = lambda output: DeltaLateTable(output.root)
        self.make_dead_letters = lambda output: DeltaDeadLetters(output.root)
        self.log.topics = {
            ACCOUNTS: Topic("accounts", {2: COLUMNS}, ["id"], key_id=100),
            LEDGER: Topic("ledger", {3: COLUMNS}, ["id"], key_id=101),
        }
        patch.setattr(sink_factory, "KafkaOutputTopic", lambda *_, **__: self.stage.process())
        started = SimpleNamespace(stream="projects/p/instances/i/databases/d/changeStreams/all")
        patch.setattr(sink_factory, "recorded_start", lambda *_, **__: started)

    def merge_every(self, every_us):
        self.limits = Limits(**LIMITS, cadence=Cadence(every_us=every_us))

    def _sinks(self, output):
        config = ConsumerConfig.load(
            None, sinks=",".join(self.sinks), ordered_topic=OUTPUT, prefix="bank",
            output=str(self.folder / "output"), checkpoint=str(self.folder),
            bootstrap_servers="unused:1", registry_url="http://unused",
        )  # fmt: skip
        gate = Storage(self.spark, str(self.folder / "gate"))
        files, newest = GateFiles(gate), newest_state(gate)
        sinks = sink_factory.make_sinks(
            self.spark,
            config,
            output=output,
            direct=find_direct_way(output.root, rows_max=LIMITS["small_release_rows_max"]),
            state=newest,
            stored=files.plan(0 if newest is None else newest.batch + 1),
            further=(
                FunctionSink(self._keep("function"), spark=self.spark),
                BatchFunctionSink(self._keep("batches")),
            ),
        )
        for sink in sinks:
            sink.open(query_id="q", release_max=files.release_max(sink.name))
        return sinks

    def _keep(self, name):
        def keep(frame, called):
            kept = [json.dumps(row.asDict(recursive=True), default=str) for row in frame.collect()]
            assert self.called[name].setdefault(called.number, kept) == kept

        return keep

    def change(self, commit_us, *, key, topic=ACCOUNTS, mod="INSERT", copies=1, place=0, of=1):
        """Write change `place` of the transaction of that time, which has `of` of them."""
        row = {"id": key}
        values = {**row, "t": f"{mod} {commit_us}"}
        new, old = (None, values) if mod == "DELETE" else (values, None)
        one = Change(
            mod, row, new, old, us=commit_us, transaction="x", sequence=place, records=of, token="t"
        )
        framed_key, value = map(bytearray, self.log.topics[topic].framed(one))
        for _ in range(copies):
            record = (False, topic, 0, self.log._next(topic), framed_key, value)
            self.log.rows.append((*record, bytearray(one.order_key), mod[0], one.origin))

    def save(self):
        """Keep what survives the end of a process."""
        shutil.copytree(self.folder, self.saved)
        self._kept = copy.deepcopy((self.stage, self.called))

    def load(self):
        """Go back to what was saved; a new process has read nothing of it."""
        shutil.rmtree(self.folder)
        shutil.copytree(self.saved, self.folder)
        self.stage, self.called = copy.deepcopy(self._kept)
        self.spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()

    def content(self):
        """Return everything that a reader of any sink, or the next batch, can see."""
        output, gate = self.folder / "output", self.folder / "gate"
        manifests = {
            int(file.stem): json.loads(file.read_text())
            for file in sorted((output / "_releases").glob("0*.json"))
        }
        tables = [log.parent for log in sorted(output.rglob("_delta_log"))]
        return {
            "delta": {str(table.relative_to(output)): delta_rows(table) for table in tables},
            "parquet": parquet_rows(output, manifests),
            "by key": {
                str(done.parent.relative_to(output)): rows_in(done.parent)
                for done in sorted(output.glob("parquet_by_key/*/*/_SUCCESS"))
            },
            "files": event_files(output / "datastream_files"),
            "iceberg": self._iceberg_rows(manifests[max(manifests)]),
            "topic": (self.stage.records(), self.stage.releases()),
            "called": self.called,
            "manifests": {number: without_chance(one) for number, one in manifests.items()},
            "plan": comparable((gate / "plans" / f"{BATCH}.json").read_text()),
            "state": comparable((gate / "states" / f"{BATCH}.json").read_text()),
            "gate": {
                name: sorted(one.name for one in (gate / name).glob("[!.]*"))
                for name in ("segments", "frontiers", "plans", "states")
            },
        }

    def _iceberg_rows(self, manifest):
        """Rows of the tables as they are, which are those that the newest manifest names."""
        found = {}
        for table, sinks in manifest["tables"].items():
            for name in ICEBERG:
                path = f"{self.folder}/output/{sinks[name]['path']}"
                reader = self.spark.read.format("iceberg")
                then = reader.option("versionAsOf", sinks[name]["version"]).load(path)
                now = self.spark.read.format("iceberg").load(path)
                rows = [row.asDict(recursive=True) for row in now.collect()]
                assert sorted(map(repr, then.collect())) == sorted(map(repr, now.collect()))
                found[name, table] = in_order(rows)
        return found


def in_order(rows):
    return sorted(rows, key=repr)


def delta_rows(table):
    return in_order(deltalake.DeltaTable(table).to_pyarrow_table().to_pylist())


def parquet_rows(output, manifests):
    """Rows of the folders that manifests name."""
    folders = {
        sinks[name]["path"]
        for manifest in manifests.values()
        for sinks in manifest["tables"].values()
        for name in sinks
        if name.startswith("parquet")  # and only where the release has a change of the table
    }
    return {folder: rows_in(output / folder) for folder in sorted(folders)}


def event_files(folder):
    """The events of each file, by object and name; the minute between is that of its writing."""
    return {
        f"{file.relative_to(folder).parts[0]}/{file.name}": list(fastavro.reader(opened))
        for file in sorted(folder.rglob("*.avro"))
        for opened in [io.BytesIO(file.read_bytes())]
    }


def rows_in(folder):
    return in_order(pyarrow.parquet.read_table(folder, partitioning=None).to_pylist())


def without_chance(manifest):
    """Leave out the numbers of Iceberg's snapshots, and the minute in which a file was written."""
    for sinks in manifest["tables"].values():
        for name, version in sinks.items():
            if name.startswith("iceberg"):
                assert version.pop("version")
            if name == "datastream_files":
                version["path"] = MINUTE.sub("/minute", version["path"])
    return manifest


def comparable(text):
    """Leave out which run and call wrote a file, and wall times."""
    named = re.sub(r'("(?:name|frontier|origins_file)":"[0-9]+[^"/]*)/[0-9]+', r"\1", text.rstrip())
    return re.sub(r'"(decided_at_us|mirror_merged_at_us)":[0-9]+', r'"\1":0', named)


RELEASED_US = (7, 8, 9, 10, 11, 12, 13, 30, 31, 40, 41, 42, 43, 43, 44, 50, 51)
"""The commit time of each change that is released in the end."""
READ = 22
"""How many records of changes the batches have, one of them twice."""
ROWS = {
    "accounts": {
        0: "UPDATE 31",
        2: "INSERT 40",
        3: "INSERT 41",
        4: "INSERT 42",
        9: "INSERT 43",
        107: "INSERT 7",
        108: "INSERT 8",
        109: "INSERT 9",
    },
    "ledger": {12: "UPDATE 44", 50: "INSERT 50", 51: "INSERT 51"},
}
"""What the mirrors have in the end."""
WAITING = {"accounts": {5: "INSERT 60", 7: "INSERT 70"}, "ledger": {61: "INSERT 61"}}
"""What the mirror by key has beside that."""


def write(world):
    """Cut two batches that leave releases, segments and mirrors behind, and one of every step.

    The first has two releases, of which the mirrors take one, and the other with the second batch,
    which brings a new table.  So before the last batch the mirrors lack a release, and there is a
    manifest that nothing needs.  The second batch joins two segments of the first one, so that
    there are files to delete.
    """
    for commit_us in (7, 8, 9):
        world.change(commit_us, key=100 + commit_us)
    for n, commit_us in enumerate((10, 11, 40, 41, 42, 60)):
        world.change(commit_us, key=n)
    world.log.beat(11)
    world.cut()
    for commit_us in (12, 50, 51, 61):
        world.change(commit_us, key=commit_us, topic=LEDGER)
    world.change(13, key=0, mod="UPDATE")
    world.log.beat(20)
    world.cut()
    world.change(15, key=1, mod="UPDATE")  # which is late
    world.change(30, key=1, mod="DELETE")
    world.change(31, key=0, mod="UPDATE", copies=2)
    world.change(43, key=9, of=2)
    world.change(43, key=50, topic=LEDGER, place=1, of=2)
    world.change(44, key=12, mod="UPDATE", topic=LEDGER)
    world.change(70, key=7)
    world.log.foreign()
    world.change(45, key=8)
    del world.log.rows[-1][5][7:]
    world.log.beat(52)
    world.cut()
