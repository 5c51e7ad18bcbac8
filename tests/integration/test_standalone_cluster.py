"""A standalone cluster of Spark: a master, two workers, and a run that loses parts of it."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import deltalake
import psutil
import pyarrow.compute as pc
import pytest

from benchmarks.consumer.backfill import registry
from benchmarks.consumer.feed import Feed, KafkaFeed
from tidegate import spark_consumer
from tidegate.local_stack.parts.installed_java import find_java
from tidegate.local_stack.parts.jvm_parts import fetched_jvm_parts
from tidegate.local_stack.parts.process import choose_ports

pytestmark = [pytest.mark.integration, pytest.mark.deep, pytest.mark.timeout(2_400)]

ROWS = 1_000_000
PATIENCE_S = 1_500
DAY_US = 86_400_000_000
HOST = "127.0.0.1"
FINISHED = re.compile(r"Finished task .* \(executor (\d+)\)")


class Cluster:
    """A master and its workers, each a process that has one core for executors."""

    def __init__(self, folder: Path, home: Path) -> None:
        self.folder, self._home = folder, home
        self.environ = {
            **os.environ,
            "JAVA_HOME": str(find_java().home),
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_DIRS": str(folder / "local"),
            "PYSPARK_PYTHON": sys.executable,
        }
        ports = choose_ports({"master": 0, "ui": 0})
        self.address = f"spark://{HOST}:{ports['master']}"
        own = ("--host", HOST, "--port", str(ports["master"]), "--webui-port", str(ports["ui"]))
        self._processes = [self._start("master.Master", *own)]
        self.workers = [self._worker(number) for number in range(2)]
        self._processes += self.workers

    def _worker(self, number: int) -> psutil.Popen:
        own = ("--host", HOST, "--webui-port", "0", "--cores", "1", "--memory", "1g")
        work = ("--work-dir", str(self.folder / f"work-{number}"))
        return self._start("worker.Worker", *own, *work, self.address)

    def _start(self, name: str, *arguments: str) -> psutil.Popen:
        program = [str(self._home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}"]
        with (self.folder / "cluster.log").open("ab") as log:
            return psutil.Popen([*program, *arguments], env=self.environ, stdout=log, stderr=log)

    def executors(self, worker: psutil.Popen) -> list[psutil.Process]:
        """Return the executors of a worker that run."""
        found = []
        for child in worker.children(recursive=True):
            try:
                if "CoarseGrainedExecutorBackend" in " ".join(child.cmdline()):
                    found.append(child)
            except psutil.Error:  # it has ended
                continue
        return found

    def stop(self) -> None:
        """End every process that was started here."""
        end(*self._processes)


def end(*processes: psutil.Popen) -> None:
    """Kill processes and what they have started."""
    every = list(processes)
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            every += process.children(recursive=True)
    for one in every:
        with suppress(psutil.NoSuchProcess):
            one.kill()
    psutil.wait_procs(every)


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    pyspark = pytest.importorskip("pyspark")
    started = Cluster(folder, Path(pyspark.__file__).parent)
    try:
        yield started
    finally:
        started.stop()


def published(bootstrap_servers: str) -> Feed:
    """Publish a release of all rows, and the heartbeat that lets it go."""
    feed = Feed("standalone", stream="projects/p/instances/i/databases/d/changeStreams/all")
    kafka = KafkaFeed(bootstrap_servers, feed)
    for record in feed.opening():
        kafka.send(record)
    now_us = time.time_ns() // 1_000
    for record in feed.backfilled(ROWS, us=now_us):
        kafka.send(record)
    # A day ahead: the run ends when the watermark has passed its own begin.
    kafka.send(feed.beat(now_us + DAY_US))
    kafka.flush()
    return feed


def submitted(place: Cluster, feed: Feed, *, bootstrap_servers: str, registry_url: str):
    """Start a run as a user of the cluster does."""
    parts = fetched_jvm_parts()
    assert parts is not None
    settings = {
        "spark.driver.host": HOST,
        "spark.driver.bindAddress": HOST,
        "spark.ui.enabled": "false",
        "spark.cores.max": "2",
        "spark.executor.cores": "1",
        "spark.executor.memory": "1g",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (place.folder / "events").as_uri(),
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false",
    }
    launcher = Path(spark_consumer.__path__[0]) / "__main__.py"
    flags = {
        "prefix": feed.prefix,
        "bootstrap-servers": bootstrap_servers,
        "registry-url": registry_url,
        "output": place.folder / "output",
        "checkpoint": place.folder / "checkpoint",
        "until": "caught-up",
        "log-level": "debug",
    }
    with (place.folder / "run.log").open("ab") as log:
        return psutil.Popen(
            [
                str(Path(sys.executable).with_name("spark-submit")),
                *("--master", place.address),
                *("--jars", ",".join(map(str, parts.spark_jars))),
                *(word for one in settings.items() for word in ("--conf", "=".join(one))),
                *(str(launcher), "run"),
                *(str(word) for name, one in flags.items() for word in (f"--{name}", one)),
            ],
            env=place.environ, stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip


def wait_for(is_there, what: str, *, process: psutil.Popen, log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_there():
        assert process.poll() is None, (what, log.read_text()[-3_000:])
        assert time.monotonic() < deadline, (what, log.read_text()[-3_000:])
        time.sleep(0.2)


def executors_of_release(log: Path) -> set[str]:
    """Return which executors have finished a task of the release so far."""
    _, begun, later = log.read_text(errors="replace").partition('"step": "release"')
    return set(FINISHED.findall(later)) if begun else set()


def tasks_by_executor(folder: Path) -> Counter[str]:
    """Return how many tasks each executor has finished, from Spark's event log."""
    (log,) = folder.iterdir()
    events = [json.loads(line) for line in log.read_text().splitlines()]
    return Counter(
        event["Task Info"]["Executor ID"]
        for event in events
        if event["Event"] == "SparkListenerTaskEnd"
        and event["Task End Reason"]["Reason"] == "Success"
    )


@pytest.mark.rule("P5")
def test_a_release_loses_an_executor_and_then_a_worker_and_is_whole(mortal_broker, tmp_path):
    servers = mortal_broker.bootstrap_servers
    (tmp_path / "events").mkdir()
    feed = published(servers)
    log = tmp_path / "run.log"
    with registry(feed) as registry_url, cluster(tmp_path) as place:
        began = time.monotonic()
        run = submitted(place, feed, bootstrap_servers=servers, registry_url=registry_url)
        try:
            wait_for(
                lambda: len(executors_of_release(log)) == 2,
                "a release on both workers", process=run, log=log,
            )  # fmt: skip
            first, second = place.workers
            (executor,) = place.executors(first)
            executor.kill()
            wait_for(
                lambda: any(one.pid != executor.pid for one in place.executors(first)),
                "a new executor", process=run, log=log,
            )  # fmt: skip
            for one in place.executors(second):
                one.kill()
            second.kill()
            code = run.wait(PATIENCE_S)
        finally:
            end(run)
        seconds = time.monotonic() - began

    assert code == 0, log.read_text()[-5_000:]
    (path,) = (tmp_path / "output/_releases").glob("0*.json")
    assert json.loads(path.read_bytes())["rows"] == ROWS
    changes = deltalake.DeltaTable(str(tmp_path / "output/changelog/table0")).to_pyarrow_table(
        columns=["ordinal", "order_key"]
    )
    assert changes.num_rows == ROWS
    ordered = changes.sort_by("ordinal")
    assert ordered["ordinal"].to_pylist() == list(range(ROWS))
    keys = ordered["order_key"].to_pylist()
    assert all(one < two for one, two in itertools.pairwise(keys))
    mirror = deltalake.DeltaTable(str(tmp_path / "output/mirror/table0")).to_pyarrow_table(
        columns=["id"]
    )
    assert pc.count_distinct(mirror["id"]).as_py() == mirror.num_rows == ROWS
    tasks = tasks_by_executor(tmp_path / "events")
    # Both of the first ones, and the one in the place of the killed one.
    assert tasks.keys() - {"driver"} >= {"0", "1", "2"}, tasks
    sys.stdout.write(f"{ROWS} changes in {seconds:.0f} s, tasks by executor {dict(tasks)}\n")
