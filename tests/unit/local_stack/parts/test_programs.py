"""Child programs: started, watched, stopped, and never left behind."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tidegate.local_stack.errors import PartFailedError
from tidegate.local_stack.parts import programs as programs_module
from tidegate.local_stack.parts.kafka_broker import SecureListener
from tidegate.local_stack.parts.process import SUPERVISOR, Cancelled, ChildProcess, ProcessSpec
from tidegate.local_stack.parts.programs import (
    DatabaseName,
    Program,
    Programs,
    StepFollower,
    last_step,
    step_of,
    wait_for_step,
)

PATIENCE_S = 20.0

# Says that it is up, starts a grandchild in its own group, and then waits.
PARENT_OF_ONE = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("child", child.pid, flush=True)
time.sleep(600)
"""

SLEEPS = "import time; time.sleep(600)"

STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", flush=True)
time.sleep(600)
"""


def spec(tmp_path: Path, code: str, **more: object) -> ProcessSpec:
    return ProcessSpec(
        name="the sample",
        command=[sys.executable, "-c", code],
        log=tmp_path / "logs" / "sample.log",
        **more,
    )


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "timed out: the condition does not hold"
        time.sleep(0.02)


def started(child: ChildProcess) -> int:
    """Wait until a child has said something; return the last word as a number, if it is one."""
    child.wait_ready(lambda: child.log_tail() != "", deadline_s=PATIENCE_S)
    word = child.log_tail().split()[-1]
    return int(word) if word.isdigit() else 0


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_output_goes_to_the_log_and_the_exit_code_comes_back(tmp_path):
    code = "import os, sys; print(os.environ['SAMPLE'], os.getcwd()); sys.exit('err')"
    environ = {**os.environ, "SAMPLE": "x"}
    child = ChildProcess(spec(tmp_path, code, environ=environ, folder=tmp_path))
    child.start()
    assert 1 == child.wait(deadline_s=PATIENCE_S)
    assert {"x", str(tmp_path.resolve()), "err"} == set(child.log_tail().split())
    # Standard output can go elsewhere.
    child = ChildProcess(spec(tmp_path / "b", code, environ=environ, stdout=tmp_path / "said"))
    child.start()
    child.wait(deadline_s=PATIENCE_S)
    assert (tmp_path / "said").read_text().startswith("x ")
    assert "err" == child.log_tail()


ENDS_ITSELF = (
    "import signal, sys, time\n"
    "signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))\n"
    "print('up', flush=True)\ntime.sleep(600)"
)


@pytest.mark.parametrize(
    ("code", "grace_ms", "exit_code"),
    [(STUBBORN, 200, 128 + signal.SIGKILL), (ENDS_ITSELF, 5_000, 3)],
    ids=["stubborn", "clean"],
)
def test_a_stop_lets_the_program_end_itself_or_kills_it(tmp_path, code, grace_ms, exit_code):
    child = ChildProcess(spec(tmp_path, code, grace_ms=grace_ms))
    child.start()
    started(child)
    child.stop()
    child.stop()
    assert exit_code == child.exit_code
    wait_until(lambda: not is_alive(child.pid))


# Ends when its own child has set a handler; that one removes its file before it ends.
PARENT_OF_A_TIDY_ONE = """
import subprocess, sys
tidy = (
    "import pathlib, signal, sys, time\\n"
    "def end(*_):\\n"
    "    time.sleep(0.5)\\n"
    "    pathlib.Path(sys.argv[1]).unlink()\\n"
    "    sys.exit()\\n"
    "signal.signal(signal.SIGTERM, end)\\n"
    "print('up', flush=True)\\n"
    "time.sleep(600)\\n"
)
command = [sys.executable, "-c", tidy, sys.argv[1]]
subprocess.Popen(command, stdout=subprocess.PIPE).stdout.readline()
"""


def test_what_a_program_leaves_running_may_remove_its_files(tmp_path):
    """Spark's JVM outlives the Python program, and removes its folders while it ends."""
    file = tmp_path / "temporary"
    file.touch()
    sample = spec(tmp_path, PARENT_OF_A_TIDY_ONE)
    child = ChildProcess(replace(sample, command=[*sample.command, str(file)]))
    child.start()
    assert child.wait(deadline_s=PATIENCE_S) == 0
    assert not file.exists()


@pytest.mark.parametrize("is_paused", [False, True])
def test_kill_is_a_crash_of_a_paused_group_too(tmp_path, is_paused):
    child = ChildProcess(spec(tmp_path, PARENT_OF_ONE))
    child.start()
    grandchild = started(child)
    if is_paused:
        child.pause()
    child.kill()
    child.resume()
    assert 128 + signal.SIGKILL == child.exit_code
    wait_until(lambda: not is_alive(grandchild))


def test_a_paused_group_stands_still_goes_on_and_is_stopped_as_a_whole(tmp_path):
    with ChildProcess(spec(tmp_path, PARENT_OF_ONE)) as child:
        pids = (child.pid, started(child))
        group = [psutil.Process(pid) for pid in pids]
        child.pause()
        wait_until(lambda: all(one.status() == psutil.STATUS_STOPPED for one in group))
        child.resume()
        wait_until(lambda: all(one.status() != psutil.STATUS_STOPPED for one in group))
        assert child.is_running
        assert all(map(is_alive, pids))
    assert not child.is_running
    wait_until(lambda: not any(map(is_alive, pids)))


def test_a_killed_and_a_missing_program_are_seen(tmp_path):
    with ChildProcess(spec(tmp_path, SLEEPS)) as child:
        os.kill(child.pid, signal.SIGKILL)
        assert 128 + signal.SIGKILL == child.wait(deadline_s=PATIENCE_S)
    missing = replace(spec(tmp_path, SLEEPS), command=["/no/such/program"])
    child = ChildProcess(missing)
    with pytest.raises(PartFailedError, match=r"cannot be started: .*No such file"):
        child.start()
    assert not child.is_running


def test_waiting_ends_with_the_program_a_deadline_or_a_cancellation(tmp_path):
    with (
        ChildProcess(spec(tmp_path, "import sys; sys.exit('the reason')")) as child,
        pytest.raises(PartFailedError, match=r"ended with code 1(.|\n)*the reason"),
    ):
        child.wait_ready(lambda: False, deadline_s=PATIENCE_S)
    with (
        ChildProcess(spec(tmp_path, SLEEPS)) as child,
        pytest.raises(PartFailedError, match=r"was not ready within 0\.2 s"),
    ):
        child.wait_ready(lambda: False, deadline_s=0.2)
    cancelled = threading.Event()
    cancelled.set()
    with (
        ChildProcess(spec(tmp_path, SLEEPS), cancelled=cancelled) as child,
        pytest.raises(Cancelled),
    ):
        child.wait_ready(lambda: False, deadline_s=PATIENCE_S)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_parent_that_dies_leaves_nothing_behind(tmp_path, how):
    """The parent is another Python, so that it can be killed without a chance to clean up."""
    code = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from tidegate.local_stack.parts.process import ChildProcess, ProcessSpec\n"
        f"log = Path({str(tmp_path / 'sample.log')!r})\n"
        f"command = [sys.executable, '-c', {PARENT_OF_ONE!r}]\n"
        "child = ChildProcess(ProcessSpec(name='x', command=command, log=log))\n"
        "child.start()\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    ) as parent:
        child = int(parent.stdout.readline())
        log = tmp_path / "sample.log"
        wait_until(lambda: log.read_text().endswith("\n"))
        grandchild = int(log.read_text().split()[-1])
        assert is_alive(child)
        parent.send_signal(how)

    wait_until(lambda: not is_alive(child) and not is_alive(grandchild))


@pytest.fixture
def supervise():
    """Start a supervisor; gives it and the line that it says."""
    started = []

    def start(*command: str, grace_ms: int = 5000):
        read_end, write_end = os.pipe()
        program = subprocess.Popen(
            [sys.executable, "-I", "-S", SUPERVISOR, str(write_end), str(grace_ms), *command],
            stdin=subprocess.PIPE,
            pass_fds=(write_end,),
        )
        started.append(program)
        os.close(write_end)
        with os.fdopen(read_end) as status:
            return program, status.readline().strip()

    yield start
    for program in started:
        program.stdin.close()
        program.wait(PATIENCE_S)


def test_it_runs_isolated_and_without_site_packages(supervise):
    program, said = supervise("/bin/sh", "-c", "exit 5")
    assert said.isdigit()
    assert program.wait(PATIENCE_S) == 5
    program, said = supervise("/no/such/program")
    assert said.startswith("-1 ")
    assert program.wait(PATIENCE_S) == 127


@pytest.mark.parametrize("number", [None, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_the_pipe_or_a_signal_ends_the_program(supervise, number):
    program, _ = supervise("/bin/sleep", "600")
    if number is None:
        program.stdin.close()
    else:
        program.send_signal(number)
    assert 128 + signal.SIGTERM == program.wait(PATIENCE_S)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can tie a child to its parent")
def test_the_program_dies_with_its_supervisor(supervise):
    program, said = supervise("/bin/sleep", "600")
    child = psutil.Process(int(said))
    program.kill()
    psutil.wait_procs([child], timeout=PATIENCE_S)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


WORKS = """
import json, sys, time
for step in sys.argv[1:]:
    print(json.dumps({"event": "step", "step": step}), flush=True)
time.sleep(60)
"""


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    command = [sys.executable, "-c", WORKS, "begin", "fence"]
    made = Program(ProcessSpec(name="w1", command=command, log=tmp_path / "w1.log"))
    yield made
    made.stop()


def test_a_kill_reports_the_step_and_a_new_start_begins_again(program: Program):
    program.start()
    wait_until(lambda: program.step == "fence")
    first_pid = program.process.pid
    assert program.kill() == "fence"
    assert not program.process.is_running
    program.start()
    wait_until(lambda: program.step == "fence")
    assert program.log_began > 0
    assert program.process.pid != first_pid


def test_stopping_what_was_never_started_is_nothing(program: Program):
    assert program.stop() is None
    assert not program.has_begun


def make(folder: Path) -> Programs:
    return Programs(
        folder=folder,
        bootstrap_servers="k:1",
        registry_url="http://r:2",
        spanner_address="s:3",
        database=DatabaseName(address="s:3"),
        stream="changes",
        prefix="bank",
        more={"EXTRA": "x"},
    )


def test_a_worker_gets_its_settings_and_none_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("TIDEGATE_PRODUCER_SLOTS", "99")
    monkeypatch.setenv("tidegate_consumer_until", "caught-up")
    spec = make(tmp_path).worker("w7", start="2026-01-01T00:00:00Z").spec
    environ = spec.environ or {}
    assert spec.command[-2:] == ["tidegate.producer", "run"]
    assert environ["TIDEGATE_PRODUCER_WORKER"] == "w7"
    assert environ["TIDEGATE_PRODUCER_CHANGE_STREAM"] == "changes"
    assert environ["TIDEGATE_PRODUCER_START"] == "2026-01-01T00:00:00Z"
    assert environ["SPANNER_EMULATOR_HOST"] == "s:3"
    assert environ["EXTRA"] == "x"
    assert "TIDEGATE_PRODUCER_SLOTS" not in environ
    assert "tidegate_consumer_until" not in environ


def test_the_consumer_gets_java_and_jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    class Java:
        home = Path("/java")

    class Parts:
        spark_jars = (Path("/a.jar"), Path("/b.jar"))
        iceberg_jars = (Path("/c.jar"),)

    monkeypatch.setattr(programs_module, "find_java", Java)
    monkeypatch.setattr(programs_module, "fetched_jvm_parts", Parts)
    programs = make(tmp_path)
    environ = programs.consumer().spec.environ or {}

    assert environ["JAVA_HOME"] == "/java"
    assert environ["TIDEGATE_CONSUMER_JARS"] == "/a.jar,/b.jar"
    assert environ["TIDEGATE_CONSUMER_OUTPUT"] == str(programs.output)
    assert environ["TIDEGATE_CONSUMER_CHECKPOINT"] == str(programs.checkpoint)
    # A killed JVM leaves its folders: they go with the folder of the run.
    temporary = tmp_path / "programs" / "consumer" / "tmp"
    assert f"-Djava.io.tmpdir={temporary}" in shlex.split(environ["TIDEGATE_CONSUMER_JAVA_OPTIONS"])
    assert temporary.is_dir()
    programs.write_settings_files()
    assert "tmpdir" not in programs.consumer_file.read_text()
    more = replace(programs, has_iceberg=True).consumer().spec.environ or {}
    assert more["TIDEGATE_CONSUMER_JARS"] == "/a.jar,/b.jar,/c.jar"


def test_workers_log_in_and_may_read_another_source(tmp_path: Path):
    secure = SecureListener(9093, tmp_path / "secure")
    plain = make(tmp_path)
    source = '{"kind": "datastream", "location": "/files"}'
    made = replace(plain, secure=secure, source=source)
    environ = made.worker("w1", start="now").spec.environ or {}
    assert made.bootstrap_servers == plain.bootstrap_servers
    assert environ["TIDEGATE_PRODUCER_BOOTSTRAP_SERVERS"] == "127.0.0.1:9093"
    assert json.loads(environ["TIDEGATE_PRODUCER_KAFKA_OPTIONS"]) == secure.client_options()
    assert environ["TIDEGATE_PRODUCER_SOURCE"] == source
    # Names of Spanner are an error beside it.
    names = ("PROJECT", "INSTANCE", "DATABASE", "CHANGE_STREAM")
    assert [name for name in names if f"TIDEGATE_PRODUCER_{name}" in environ] == []


def line(step: str) -> str:
    return json.dumps({"level": "debug", "event": "step", "step": step}) + "\n"


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ('{"event": "step", "step": "fence"}', "fence"),
        ('{"step":"fence","event":"step"}', "fence"),
        ('prefix {"event": "step", "step": "fence"}', "fence"),
        ('{"event": "other", "step": "fence"}', None),
        ('{"event": "step", "step": "fen', None),
        ('no braces but "step"', None),
        ("plain text", None),
    ],
)
def test_only_whole_step_lines_count(text: str, step: str | None):
    assert step_of(text.encode()) == step


def test_the_last_step_is_the_last_line_that_names_one(tmp_path: Path):
    log = tmp_path / "log"
    log.write_text(line("begin") + "something else\n" + line("publish") + '{"event": "step", "st')
    assert last_step(log) == "publish"
    # A process that has logged nothing is at its start.
    assert last_step(log, since=log.stat().st_size) == "start"
    assert last_step(tmp_path / "none") == "start"


def test_a_follower_sees_what_is_added_once(tmp_path: Path):
    log = tmp_path / "log"
    log.write_text(line("begin"))
    follower = StepFollower.at_end(log)
    whole = line("publish") + line("fence")
    with log.open("a") as file:
        file.write(whole[:-5])
        file.flush()
        first = follower.new_steps()
        file.write(whole[-5:])
    second = follower.new_steps()
    assert (first, second, follower.new_steps()) == (["publish"], ["fence"], [])


def test_waiting_ends_with_the_step_or_with_the_program(tmp_path: Path):
    log = tmp_path / "log"
    follower = StepFollower.at_end(log)
    log.write_text(line("begin") + line("fence"))
    assert wait_for_step(
        follower, accept=lambda step: step == "fence", go_on=lambda: True, deadline_s=10
    )
    assert not wait_for_step(follower, accept=lambda _: True, go_on=lambda: False, deadline_s=10)
