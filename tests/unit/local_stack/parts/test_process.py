"""A child program: started, watched, stopped, and never left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from tidegate.local_stack.errors import PartFailedError
from tidegate.local_stack.parts.process import Cancelled, ChildProcess, ProcessSpec

PATIENCE_S = 20.0

# Says that it is up, starts a grandchild in its own group, and then waits.
PARENT_OF_ONE = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("child", child.pid, flush=True)
time.sleep(600)
"""

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


def wait_until(condition) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "timed out: the condition does not hold"
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def said(child: ChildProcess) -> bool:
    return child.log_tail() != ""


def test_output_goes_to_the_log_and_the_exit_code_comes_back(tmp_path):
    code = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(7)"
    child = ChildProcess(spec(tmp_path, code))
    child.start()

    assert 7 == child.wait(deadline_s=PATIENCE_S)
    assert {"out", "err"} == set(child.log_tail().split())


def test_standard_output_can_go_elsewhere(tmp_path):
    stdout = tmp_path / "said"
    code = "import sys; print('out'); print('err', file=sys.stderr)"
    child = ChildProcess(spec(tmp_path, code, stdout=stdout))
    child.start()
    child.wait(deadline_s=PATIENCE_S)

    assert "out\n" == stdout.read_text()
    assert "err" == child.log_tail()


def test_environment_and_folder_are_handed_over(tmp_path):
    code = "import os; print(os.environ['SAMPLE'], os.getcwd())"
    environ = {**os.environ, "SAMPLE": "x"}
    child = ChildProcess(spec(tmp_path, code, environ=environ, folder=tmp_path))
    child.start()
    child.wait(deadline_s=PATIENCE_S)

    assert f"x {tmp_path.resolve()}" == child.log_tail()


def test_stop_ends_the_whole_group(tmp_path):
    with ChildProcess(spec(tmp_path, PARENT_OF_ONE)) as child:
        child.wait_ready(lambda: said(child), deadline_s=PATIENCE_S)
        grandchild = int(child.log_tail().split()[-1])
        assert is_alive(grandchild)

    assert not child.is_running
    wait_until(lambda: not is_alive(child.pid) and not is_alive(grandchild))


def test_stop_kills_what_does_not_listen(tmp_path):
    child = ChildProcess(spec(tmp_path, STUBBORN, grace_ms=200))
    child.start()
    child.wait_ready(lambda: said(child), deadline_s=PATIENCE_S)
    child.stop()

    assert 128 + signal.SIGKILL == child.exit_code
    wait_until(lambda: not is_alive(child.pid))


def test_a_clean_stop_lets_the_program_end_itself(tmp_path):
    code = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))\n"
        "print('up', flush=True)\ntime.sleep(600)"
    )
    child = ChildProcess(spec(tmp_path, code))
    child.start()
    child.wait_ready(lambda: said(child), deadline_s=PATIENCE_S)
    child.stop()
    child.stop()

    assert 3 == child.exit_code


def test_kill_is_a_crash(tmp_path):
    child = ChildProcess(spec(tmp_path, PARENT_OF_ONE))
    child.start()
    child.wait_ready(lambda: said(child), deadline_s=PATIENCE_S)
    grandchild = int(child.log_tail().split()[-1])
    child.kill()

    assert 128 + signal.SIGKILL == child.exit_code
    wait_until(lambda: not is_alive(grandchild))


def test_a_paused_group_stands_still_and_goes_on(tmp_path):
    with ChildProcess(spec(tmp_path, PARENT_OF_ONE)) as child:
        child.wait_ready(lambda: said(child), deadline_s=PATIENCE_S)
        group = [psutil.Process(pid) for pid in (child.pid, int(child.log_tail().split()[-1]))]
        child.pause()
        wait_until(lambda: all(one.status() == psutil.STATUS_STOPPED for one in group))
        child.resume()
        wait_until(lambda: all(one.status() != psutil.STATUS_STOPPED for one in group))

        assert child.is_running


def test_a_paused_group_can_be_killed(tmp_path):
    child = ChildProcess(spec(tmp_path, PARENT_OF_ONE))
    child.start()
    child.wait_ready(lambda: said(child), deadline_s=PATIENCE_S)
    child.pause()
    child.kill()
    child.resume()

    assert 128 + signal.SIGKILL == child.exit_code


def test_killing_the_program_itself_is_seen(tmp_path):
    with ChildProcess(spec(tmp_path, "import time; time.sleep(600)")) as child:
        os.kill(child.pid, signal.SIGKILL)

        assert 128 + signal.SIGKILL == child.wait(deadline_s=PATIENCE_S)


def test_no_such_program(tmp_path):
    child = ChildProcess(
        ProcessSpec(name="the sample", command=["/no/such/program"], log=tmp_path / "log")
    )

    with pytest.raises(PartFailedError, match=r"cannot be started: .*No such file"):
        child.start()
    assert not child.is_running


def test_an_early_end_shows_the_log(tmp_path):
    with (
        ChildProcess(spec(tmp_path, "import sys; sys.exit('the reason')")) as child,
        pytest.raises(PartFailedError, match=r"ended with code 1(.|\n)*the reason"),
    ):
        child.wait_ready(lambda: False, deadline_s=PATIENCE_S)


def test_a_deadline_passes(tmp_path):
    with (
        ChildProcess(spec(tmp_path, "import time; time.sleep(600)")) as child,
        pytest.raises(PartFailedError, match=r"was not ready within 0\.2 s"),
    ):
        child.wait_ready(lambda: False, deadline_s=0.2)


def test_waiting_can_be_cancelled(tmp_path):
    cancelled = threading.Event()
    cancelled.set()
    with (
        ChildProcess(spec(tmp_path, "import time; time.sleep(600)"), cancelled=cancelled) as child,
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
