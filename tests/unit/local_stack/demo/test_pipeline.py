"""Programs of a run: started, waited for, killed and disturbed by a plan."""

from __future__ import annotations

import io
import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tidegate.local_stack.demo import conductor as conductor_module
from tidegate.local_stack.demo import pipeline as pipeline_module
from tidegate.local_stack.demo.conductor import (
    Conductor,
    Disturbance,
    Killer,
    SimulatorControl,
    schedule,
)
from tidegate.local_stack.demo.pipeline import Pipeline, Released
from tidegate.local_stack.demo.report import Kill
from tidegate.local_stack.demo.view import RunView
from tidegate.local_stack.errors import LocalStackError, PartFailedError
from tidegate.local_stack.parts.process import ProcessSpec
from tidegate.local_stack.parts.programs import Program

SLEEPS = "import time; print('still here', flush=True); time.sleep(60)"
WORKS = """import time; print('{"event": "step", "step": "s"}', flush=True); time.sleep(60)"""
DIES = "raise SystemExit('a fine reason')"
ENDS_BADLY = (
    "import signal, time, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(3)); "
    "print('ready', flush=True); time.sleep(60)"
)


class FakePrograms:
    prefix = "bank"
    bootstrap_servers = "k:1"

    def __init__(self, folder: Path, code: str = SLEEPS) -> None:
        self.folder, self.output, self.code = folder, folder / "output", code
        self.checkpoint = folder / "checkpoint"

    def worker(self, name: str, *, start: str) -> Program:
        assert start == "now"
        return self._program(name)

    def consumer(self) -> Program:
        return self._program("consumer")

    def _program(self, name: str) -> Program:
        log = self.folder / f"{name}.log"
        return Program(ProcessSpec(name=name, command=[sys.executable, "-c", self.code], log=log))


@pytest.fixture(autouse=True)
def answers(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, int]]:
    """What Kafka says its topics are, one answer after the other, the last one again and again."""
    said: list[dict[str, int]] = [{"bank-progress": 1}]

    class Admin:
        def __init__(self, config: dict[str, str]) -> None:
            assert config == {"bootstrap.servers": "k:1"}

        def list_topics(self, timeout: float) -> Admin:
            assert timeout > 0
            self.topics = said.pop(0) if len(said) > 1 else said[0]
            return self

    monkeypatch.setattr(pipeline_module, "AdminClient", Admin)
    return said


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    made = Pipeline(FakePrograms(tmp_path))
    yield made
    made.stop()


def test_workers_are_named_by_number_and_the_consumer_waits_for_the_progress_topic(
    pipeline: Pipeline, answers: list[dict[str, int]]
):
    pipeline.start_workers(2, start="now")
    assert [worker.name for worker in pipeline.workers] == ["w1", "w2"]
    answers[:0] = [{}, {"other": 1}]
    pipeline.start_consumer()
    assert answers == [{"bank-progress": 1}]
    assert all(program.process.is_running for program in (*pipeline.workers, pipeline.consumer))


def test_a_program_that_ends_by_itself_ends_the_wait_with_its_log(tmp_path: Path):
    pipeline = Pipeline(FakePrograms(tmp_path, DIES))
    pipeline.start_workers(1, start="now")
    with pytest.raises(PartFailedError, match="w1 ended by itself with exit code 1") as raised:
        pipeline.wait(lambda: False, what="nothing", deadline_s=60)
    assert "a fine reason" in str(raised.value)


def test_a_program_that_was_killed_on_purpose_is_no_failure(pipeline: Pipeline):
    pipeline.start_workers(1, start="now")
    (worker,) = pipeline.workers
    pipeline.going_down(worker)
    worker.kill()
    pipeline.check()
    worker.start()
    pipeline.is_up_again(worker)
    pipeline.check()
    worker.kill()
    with pytest.raises(PartFailedError, match="w1"):
        pipeline.check()


def test_a_deadline_shows_what_was_waited_for_and_all_logs(pipeline: Pipeline):
    pipeline.start_workers(1, start="now")
    ticks: list[int] = []
    with pytest.raises(PartFailedError, match="for the moon") as raised:
        pipeline.wait(lambda: False, what="the moon", deadline_s=0.0, tick=lambda: ticks.append(1))
    assert "w1.log" in str(raised.value)
    assert ticks == [1]


def test_released_is_the_newest_manifest(pipeline: Pipeline):
    assert pipeline.released() == Released(0, 0)
    folder = pipeline.programs.output / "_releases"
    folder.mkdir(parents=True)

    def publish(number: int, through_us: int, mirror: dict[str, int] | None) -> None:
        sinks = {"changelog": {}} if mirror is None else {"changelog": {}, "mirror": mirror}
        content = {"release": number, "through_us": through_us, "tables": {"t": sinks}}
        (folder / f"{number:012d}.json").write_text(json.dumps(content))

    publish(0, 10, {})
    for mirror in (None, {"release": 0}):
        publish(1, 25, mirror)
        assert pipeline.released() == Released(2, 25, is_mirrored=False)
        with pytest.raises(PartFailedError):
            pipeline.wait_released(25, deadline_s=0.0)
    publish(1, 25, {"release": 1})
    assert pipeline.released() == Released(2, 25)
    pipeline.wait_released(25, deadline_s=0.0)
    with pytest.raises(PartFailedError):
        pipeline.wait_released(26, deadline_s=0.0)


def test_a_deadline_of_a_release_says_how_far_the_consumer_is(pipeline: Pipeline):
    pipeline.start_consumer()
    with pytest.raises(PartFailedError, match=r"through_us=0.*no batch"):
        pipeline.wait_released(1, deadline_s=0.0)
    batches = [
        json.dumps({"event": event, "watermark_us": us})
        for event, us in [("batch", 1), ("batch", 2), ("step", 3)]
    ]
    pipeline.consumer.spec.log.write_text("\n".join(batches))
    with pytest.raises(PartFailedError, match=r'log: \{"event": "batch", "watermark_us": 2\}\n'):
        pipeline.wait_released(1, deadline_s=0.0)


@pytest.mark.parametrize(
    ("code", "exit_code", "faults"),
    [(SLEEPS, 143, 0), (WORKS, 143, 1), (ENDS_BADLY, 3, 1)],
    ids=["before its first step", "after it", "badly"],
)
def test_stopping_names_the_program_with_a_failed_exit(
    tmp_path: Path, code: str, exit_code: int, faults: int
):
    pipeline = Pipeline(FakePrograms(tmp_path, code))
    pipeline.start_workers(1, start="now")
    (worker,) = pipeline.workers
    log = worker.spec.log
    pipeline.wait(lambda: log.exists() and log.stat().st_size > 0, what="a line", deadline_s=30)
    failures = pipeline.stop()
    assert worker.process.exit_code == exit_code
    text = f"w1 was stopped and ended with exit code {exit_code}"
    assert [text in failure for failure in failures] == [True] * faults
    assert pipeline.stop() == []


@pytest.mark.parametrize(("names", "batches"), [([], 0), (["0", "9", "10", ".10.crc"], 11)])
def test_batches_are_counted_by_sparks_commits(tmp_path: Path, names: list[str], batches: int):
    commits = tmp_path / "checkpoint" / "spark" / "commits"
    commits.mkdir(parents=True)
    for name in names:
        (commits / name).touch()
    assert Pipeline(FakePrograms(tmp_path)).batches() == batches
    assert Pipeline(FakePrograms(tmp_path / "none")).batches() == 0


def test_the_records_of_a_topic_are_counted_and_none_before_it_has_a_leader(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
):
    failures = [KafkaException(KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION))]

    class Client:
        def __init__(self, _: object) -> None:
            pass

        def list_topics(self, topic: str, timeout: float) -> object:
            return SimpleNamespace(topics={topic: SimpleNamespace(partitions={0: None, 1: None})})

        def get_watermark_offsets(self, place: TopicPartition, timeout: float) -> tuple[int, int]:
            if failures:
                raise failures.pop()
            return 2, 5 + place.partition

        def close(self) -> None:
            pass

    monkeypatch.setattr(pipeline_module, "Consumer", Client)

    assert [pipeline.records_in("t"), pipeline.records_in("t")] == [0, 7]


PLAN = [
    Disturbance(0.1, "split"),
    Disturbance(0.2, "kill-worker"),
    Disturbance(0.3, "merge"),
    Disturbance(0.4, "kill-consumer"),
    Disturbance(0.5, "split"),
]


class Control:
    def __init__(self, refusals: int = 0) -> None:
        self.story: list[str] = []
        self.refusals = refusals

    def split(self) -> None:
        self._do("split")

    def merge(self) -> None:
        self._do("merge")

    def _do(self, what: str) -> None:
        if self.refusals:
            self.refusals -= 1
            raise LocalStackError("too early")
        self.story.append(what)


class FakePipeline:
    def __init__(self) -> None:
        self.workers = [SimpleNamespace(name="w1"), SimpleNamespace(name="w2")]
        self.consumer = SimpleNamespace(name="consumer")
        self.failure: Exception | None = None
        self.going_down = self.is_up_again = lambda _: None

    def check(self) -> None:
        if self.failure:
            raise self.failure


class FakeKiller:
    def __init__(self, *_: Any) -> None:
        self.kills: list[Any] = []

    def kill_and_restart(self, victim: Any, **_: Any) -> Any:
        killed = Kill(victim.name, "fence", 1.0)
        self.kills.append(killed)
        return killed


class Conducted:
    """A conductor whose customers have made some transfers of 100, and all that it acts on."""

    def __init__(self) -> None:
        self.customers = SimpleNamespace(done=100, transfers=100, has_finished=False)
        self.control, self.pipeline, self.events = Control(), FakePipeline(), []
        view = SimpleNamespace(seconds=1.0, event=self.events.append)
        self.conductor = Conductor(
            seed=1,
            customers=self.customers,
            control=self.control,
            pipeline=self.pipeline,
            view=view,
        )

    def conduct(self, plan: list[Disturbance] = PLAN, tick: Any = lambda: None) -> None:
        self.conductor.conduct(plan, tick)


@pytest.fixture
def conducted(monkeypatch: pytest.MonkeyPatch) -> Conducted:
    monkeypatch.setattr(conductor_module, "Killer", FakeKiller)
    monkeypatch.setattr(conductor_module, "_REFUSED_AGAIN_S", 0.0)
    return Conducted()


@pytest.mark.parametrize("cut", [0, 1])
@pytest.mark.parametrize("refusals", [0, 5])
def test_everything_planned_is_done(conducted: Conducted, cut: int, refusals: int):
    """A second plan goes on counting, and a refusal is tried again."""
    conducted.control.refusals = refusals
    conducted.conduct(PLAN[:cut])
    conducted.conduct(PLAN[cut:])
    made = conducted.conductor
    assert conducted.control.story == ["split", "merge", "split"]
    assert (made.splits, made.merges) == (2, 1)
    assert [kill.worker for kill in made.consumer_killer.kills] == ["consumer"]
    assert made.worker_killer.kills[0].worker in {"w1", "w2"}
    # Spark takes long to start, and meanwhile no figure moves.
    assert sorted(conducted.events) == [
        "killed consumer in step fence; it starts again: no release comes for some seconds",
        f"killed {made.worker_killer.kills[0].worker} in step fence; it starts again",
    ]


def test_nothing_is_done_before_its_time(conducted: Conducted):
    conducted.customers.done = 15
    is_caught_up = threading.Event()

    def tick() -> None:
        if conducted.control.story == ["split"] and not is_caught_up.is_set():
            is_caught_up.set()
            conducted.customers.done = 100

    conducted.conduct(tick=tick)
    assert is_caught_up.is_set()
    assert conducted.control.story == ["split", "merge", "split"]


class FailedCustomers:
    done, transfers = 0, 100

    @property
    def has_finished(self) -> bool:
        raise PartFailedError("the bank's customers failed")


@pytest.mark.parametrize(
    ("done", "kind", "text"),
    [
        (100, LocalStackError, "too early"),
        (0, PartFailedError, "w1 ended by itself"),
        (45, PartFailedError, "goes on to transfer 50"),
        (None, PartFailedError, "customers failed"),
    ],
    ids=["refusals", "a dead program", "customers that wait", "customers that failed"],
)
def test_what_lasts_or_fails_ends_the_run_and_its_threads(
    conducted: Conducted, monkeypatch: pytest.MonkeyPatch, done: int | None, kind: Any, text: str
):
    conducted.customers.done = done
    if done is None:
        conducted.conductor.customers = FailedCustomers()
    elif done == 100:
        conducted.control.refusals = 1_000
    elif done == 0:
        conducted.pipeline.failure = PartFailedError(text)
    else:
        monkeypatch.setattr(conductor_module, "_IDLE_MAX_S", 0.0)
    with pytest.raises(kind, match=text):
        conducted.conduct()
    assert ("split" in conducted.control.story) == (done == 45)


CYCLES = """
import itertools, json, time
for step in itertools.cycle(["begin", "publish", "fence"]):
    print(json.dumps({"event": "step", "step": step}), flush=True)
    time.sleep(0.03)
"""


def program(folder: Path, code: str) -> Program:
    command = [sys.executable, "-c", code]
    return Program(ProcessSpec(name="w1", command=command, log=folder / "w1.log"))


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Program]:
    made = program(tmp_path, CYCLES)
    made.start()
    yield made
    made.stop()


def killer(seed: int, steps: tuple[str, ...]) -> Killer:
    return Killer(seed, steps, lambda: 12.34)


def test_the_victim_is_hit_and_runs_again(victim: Program):
    pid = victim.process.pid
    order: list[str] = []
    done = killer(1, ("fence",)).kill_and_restart(
        victim,
        before=lambda program: order.append(f"before {program.process.pid}"),
        after=lambda program: order.append(f"after {program.process.is_running}"),
    )
    assert order == [f"before {pid}", "after True"]
    assert victim.process.pid != pid
    assert done.worker == "w1"
    assert done.step in {"begin", "publish", "fence"}
    assert done.at == 12.3


def test_a_step_that_never_comes_is_not_waited_for_forever(
    victim: Program, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(conductor_module, "_AIM_DEADLINE_S", 0.1)
    monkeypatch.setattr(Killer, "aim", lambda _: "no such step")
    killing = killer(1, ("fence",))
    killing.kill_and_restart(victim)
    assert len(killing.kills) == 1


def test_a_victim_is_not_killed_before_it_has_gone_through_a_cycle(
    victim: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(conductor_module, "_CYCLE_DEADLINE_S", 0.5)
    with pytest.raises(PartFailedError, match="finished no cycle"):
        killer(1, ("begin", "a last step that never comes")).kill_and_restart(victim)
    assert victim.process.is_running
    never = program(tmp_path / "never", "raise SystemExit(1)")
    never.start()
    with pytest.raises(PartFailedError, match="finished no cycle"):
        killer(1, ("fence",)).kill_and_restart(never)


def test_a_kill_that_waits_for_its_victim_ends_with_the_run(
    victim: Program, monkeypatch: pytest.MonkeyPatch
):
    """The first failure, or Ctrl-C, ends the run: not minutes later, and without another kill."""
    monkeypatch.setattr(conductor_module, "_CYCLE_DEADLINE_S", 20.0)
    monkeypatch.setattr(Killer, "aim", lambda _: "a step that never comes")
    pid = victim.process.pid

    def interrupt() -> None:
        if time.monotonic() > began + 0.5:
            raise KeyboardInterrupt

    for steps in (("fence", "a step that never comes"), ("fence",)):
        monkeypatch.setattr(conductor_module, "WORKER_STEPS", steps)
        conducted = Conducted()
        conducted.pipeline.workers = [victim]
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            conducted.conduct([Disturbance(0.1, "kill-worker")], interrupt)
        assert time.monotonic() - began < 10
        assert (conducted.conductor.count, victim.process.pid) == (0, pid)
        assert victim.process.is_running


def test_every_step_is_aimed_at_before_any_again():
    steps = ("a", "b", "c", "d")
    aiming = killer(3, steps)
    first = [aiming.aim() for _ in steps]
    assert sorted(first) == list(steps)
    assert aiming.aim() in steps
    assert len({tuple(killer(seed, steps).aim() for _ in (0, 1)) for seed in range(20)}) > 1


COUNTS = st.integers(0, 8)


@given(st.integers(0, 1_000), COUNTS, COUNTS, COUNTS, COUNTS)
def test_everything_asked_for_is_planned_in_time(
    seed: int, splits: int, merges: int, workers: int, consumer: int
):
    asked = {
        "splits": splits,
        "merges": merges,
        "kill_workers": workers,
        "kill_consumer": consumer,
        "kills_from": 0.75,
    }
    plan = schedule(seed, **asked)
    shares = [step.at_share for step in plan]

    assert Counter(step.kind for step in plan) == Counter(
        {"split": splits, "merge": merges, "kill-worker": workers, "kill-consumer": consumer}
    )
    assert shares == sorted(shares)
    assert all(0.0 < share < 0.9 for share in shares)
    assert all(step.at_share > 0.75 for step in plan if step.kind.startswith("kill"))
    assert plan == schedule(seed, **asked)


def test_seeds_differ_merges_never_outrun_splits_and_kills_keep_their_distance():
    plans = set()
    for seed in range(50):
        plan = schedule(seed, splits=6, merges=4, kill_workers=0, kill_consumer=2, kills_from=0.75)
        plans.add(tuple(plan))
        kinds = [step.kind for step in plan]
        ahead = [kinds[:n].count("split") - kinds[:n].count("merge") for n in range(len(kinds))]
        assert min(ahead) >= 0
        assert (kinds.count("split"), kinds.count("merge")) == (6, 4)
        first, second = (step.at_share for step in plan if step.kind == "kill-consumer")
        assert second - first > 0.05
    assert len(plans) == 50


@contextmanager
def answering(status: int, body: object) -> Iterator[tuple[SimulatorControl, list[Any]]]:
    """A control whose simulator answers once; and what it was asked."""
    asked: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            given = json.loads(self.rfile.read(length) or b"{}")
            asked.append((self.command, self.path, given))
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = answer  # noqa: N815 - the names are http.server's

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        address = f"127.0.0.1:{server.server_port}"
        yield SimulatorControl(address, database="d", stream="s"), asked


STREAM = {"database": "d", "stream": "s"}
FAULT = {"database": "d", "method": "StreamingRead", "kind": "slow", "delay_ms": 300, "count": None}


@pytest.mark.parametrize(
    ("verb", "arguments", "path", "given"),
    [
        *((verb, (), f"/{verb}", STREAM) for verb in ("split", "merge", "move")),
        ("slow_reads", (300,), "/add-fault", FAULT),
        ("clear_faults", (), "/clear-faults", {}),
    ],
)
def test_verbs_name_database_and_stream_and_return_the_result(
    verb: str, arguments: tuple[int, ...], path: str, given: dict[str, Any]
):
    came = {"start_timestamp_us": 5, "parents": ["a"], "children": [{"token": "b"}]}
    with answering(200, came) as (control, asked):
        result = getattr(control, verb)(*arguments)
    assert result == (came if path == f"/{verb}" else None)
    assert asked == [("POST", path, given)]


def test_live_stream_partitions_are_a_list():
    with answering(200, {"stream_partitions": [{"token": "a"}]}) as (control, _):
        assert control.stream_partitions() == [{"token": "a"}]


def test_a_refusal_says_what_the_simulator_said_and_a_silent_port_is_named():
    with (
        answering(400, {"message": "nothing to merge"}) as (control, _),
        pytest.raises(LocalStackError, match="nothing to merge"),
    ):
        control.merge()
    with pytest.raises(LocalStackError, match=control.address):
        control.split()


def shown(*, is_terminal: bool = False) -> tuple[RunView, io.StringIO]:
    text = io.StringIO()
    return RunView(Console(file=text, width=200, force_terminal=is_terminal)), text


def test_stages_and_events_are_lines_figures_and_details_come_now_and_then():
    view, text = shown()
    with view:
        view.stage("starting")
        view.stage("starting")
        view.event("killed [w1]")
        lines = text.getvalue().splitlines()
        assert [line.partition(" s ")[2].strip() for line in lines] == ["starting", "killed [w1]"]
        view.began -= 100
        view.figures(transfers="3/10")
        view.figures(transfers="4/10", live_stream_partitions=4)
        assert text.getvalue().count("transfers") == 1
        view.began -= 100
        view.figures(transfers="5/10")
        assert "transfers 5/10, live stream partitions 4" in text.getvalue()
        view.began -= 100
        view.detail("first")
        view.detail("second")
    assert "first" in text.getvalue()
    assert "second" not in text.getvalue()


def test_a_terminal_sees_stage_and_figures_while_it_runs():
    view, text = shown(is_terminal=True)
    with view:
        view.stage("working hard")
        view.figures(releases=7)
        view.console.print("drawn")
    assert "working hard" in text.getvalue()
    assert "releases" in text.getvalue()


def test_what_is_printed_while_it_is_hidden_begins_a_line_of_its_own():
    view, text = shown(is_terminal=True)
    with view:
        view.stage("starting")
        before = text.getvalue()
        with view.hidden():
            text.write("export A=1\n")
            text.write("export B=2\n")
        view.stage("up")

    written = text.getvalue()[len(before) :]
    head, _, rest = written.partition("export A=1\nexport B=2\n")
    # The drawn line is erased, and the cursor is where it began.
    assert head.endswith("\x1b[2K")
    assert "up" in rest
    plainly, text = shown()
    with plainly, plainly.hidden():
        text.write("export A=1\n")
    assert text.getvalue() == "export A=1\n"
