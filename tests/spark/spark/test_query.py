"""A replaced run writes to Spark's part of the checkpoint while the run that replaced it works.

Spark's queries, logs and errors are real, and so are the gate's batches; a source of numbers stands
for Kafka, and the rows of each batch are hand-made.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from tests.spark.batch.gate_world import GateWorld
from tidegate.program.status_server import Health
from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.config import ConsumerConfig
from tidegate.spark_consumer.errors import WriterReplaced
from tidegate.spark_consumer.metrics import consumer_metrics
from tidegate.spark_consumer.spark import query

pytestmark = [pytest.mark.spark, pytest.mark.slow]

DISTURBED, LAST = 2, 5
CHANGES = 3
"""In each batch."""


class ConcurrentModificationError(Exception):
    """Stands for Java's."""


class LateRun:
    """What a replaced run writes below `spark` while a batch of its successor runs."""

    def __init__(self, folder, *files):
        self._folder, self._files = folder, files
        self._due: list[tuple[Path, str]] = []

    def start(self, writing):
        """Start a query; Spark looks for `metadata`, and finds it when it writes its own."""
        if self._files == ("metadata",):
            self._files = ()
            raise ConcurrentModificationError(
                "Multiple streaming queries are concurrently using file:/check/spark/metadata."
            )
        return writing.start()

    def during(self, batch):
        if batch != DISTURBED:
            return
        committed = (self._folder / "commits" / f"{batch - 1}").read_text()
        *head, source = (self._folder / "offsets" / f"{batch}").read_text().splitlines()
        end = {name: value + 1 for name, value in json.loads(source).items()}
        texts = {
            f"commits/{batch}": committed,
            f"offsets/{batch + 1}": "\n".join([*head, json.dumps(end)]),
        }
        for name, text in texts.items():
            # A killed run leaves such a file.
            folder, number = name.split("/")
            (self._folder / folder / f".{number}.0f5c.tmp").write_text("v1")
            if {name, f"{name} after Spark has looked"} & set(self._files):
                self._create(name, text)

    def _create(self, name, text):
        """Create a file; one that Spark does not see before it names its own begins as a folder.

        Spark cannot open that, so it writes its own under another name, and cannot give it the
        name.
        """
        path = self._folder / name
        if f"{name} after Spark has looked" in self._files:
            path.mkdir()
            self._due.append((path, text))
        else:
            path.write_text(text)

    def finish(self):
        """Write what the folders stand for."""
        for path, text in self._due:
            path.rmdir()
            path.write_text(text)
        self._due.clear()


class Batches:
    """The gate's batches with hand-made rows, whatever rows Spark has."""

    def __init__(self, world, gate, late, stop):
        self._batch = world.start(gate=gate)
        self._world, self._late, self._stop = world, late, stop
        self.finished = lambda _: None

    @property
    def failure(self):
        return self._batch.failure

    @property
    def idle_s(self):
        return self._batch.idle_s

    def __call__(self, _rows, number):
        world = self._world
        self._late.during(number)
        while len(world.cuts) <= number:
            for _ in range(CHANGES):
                world.log.change(10 * len(world.log.sent) + 10)
            world.log.beat(10 * len(world.log.sent))
            world.cut()
        self._batch.finished = self.finished
        world.ask(self._batch, number)
        if number == LAST:
            self._stop.set()

    def stop(self):
        self._batch.stop()
        self._late.finish()

    def close(self):
        self._batch.close()


class OnlySession:
    """The session of all tests, which a run must not stop."""

    def __init__(self, spark):
        self._spark = spark

    def __getattr__(self, name):
        return getattr(self._spark, name)

    def stop(self):
        pass


@pytest.fixture
def work(spark, tmp_path, monkeypatch):
    """Run a consumer beside a late run; return its world, last state and log lines."""
    folder = tmp_path / "check"
    world = GateWorld(spark, folder)
    config = ConsumerConfig.load(
        None,
        bootstrap_servers="127.0.0.1:1",
        registry_url="http://127.0.0.1:1",
        prefix="bank",
        output=str(tmp_path / "output"),
        checkpoint=str(folder),
    )
    stop = threading.Event()
    monkeypatch.setattr(query, "_POLL_SECONDS", 0.1)
    monkeypatch.setattr(query, "session_of", lambda _: OnlySession(spark))

    def run(*files, on_start=lambda: None):
        late = LateRun(folder / "spark", *files)

        def prepare(spark, config, gate, _output, **_):
            on_start()
            batches = Batches(world, gate, late, stop)
            rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
            writing = rows.writeStream.foreachBatch(batches)
            writing = writing.option("checkpointLocation", f"{config.checkpoint}/spark")
            return batches, SimpleNamespace(start=lambda: late.start(writing))

        monkeypatch.setattr(query, "prepare", prepare)
        with capture_logs() as lines:
            state = query.run(
                config, stop=stop, begun_us=0, metrics=consumer_metrics(), health=Health()
            )
        return world, state, lines

    return run


@pytest.mark.parametrize(
    "files",
    [
        pytest.param(["commits/2"], marks=pytest.mark.deep),
        pytest.param(["commits/2", "offsets/3"], marks=pytest.mark.deep),
        pytest.param(["offsets/3"], marks=pytest.mark.deep),
        ["commits/2 after Spark has looked"],
        pytest.param(
            ["commits/2 after Spark has looked", "offsets/3 after Spark has looked"],
            marks=pytest.mark.deep,
        ),
        pytest.param(["offsets/3 after Spark has looked"], marks=pytest.mark.deep),
        pytest.param(["metadata"], marks=pytest.mark.deep),
    ],
    ids=", ".join,
)
@pytest.mark.timeout(300)
def test_the_query_starts_again_and_nothing_is_lost_or_repeated(work, files):
    world, state, lines = work(*files)

    assert state.batch == LAST
    released = [row for number in sorted(world.released) for row in world.released[number]]
    assert [change for *_, change in released] == [
        10 * number + 10 for number in range((LAST + 1) * CHANGES)
    ]
    assert world.late == {}
    warnings = [line for line in lines if line["event"] == "a replaced run wrote late"]
    assert len(warnings) == 1
    assert "Spark's part of this checkpoint" in warnings[0]["cause"]


@pytest.mark.timeout(300)
def test_a_run_that_is_replaced_itself_ends(work, spark, tmp_path):
    starts = []

    def replace():
        starts.append(None)
        if len(starts) == 2:
            Storage(spark, str(tmp_path / "check" / "gate")).take()

    with pytest.raises(WriterReplaced):
        work("commits/2", on_start=replace)
    assert len(starts) == 2


@pytest.mark.deep
@pytest.mark.timeout(300)
def test_nothing_late_starts_nothing_again(work):
    _, state, lines = work()
    assert state.batch == LAST
    assert [line for line in lines if line["event"] == "a replaced run wrote late"] == []
