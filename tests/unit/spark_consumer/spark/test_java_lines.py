"""What a JVM writes while it starts is held back, and shown where it does not start."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager

import pytest

from tidegate.spark_consumer.spark.java_lines import _Lines

PROGRAM = """
import os, subprocess, sys, threading
from tidegate.spark_consumer.spark.java_lines import held_back

try:
    with held_back():
        script = "import os\\nos.write(2, b'early\\\\n'); input(); os.write(2, b'later\\\\n')"
        child = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE)
        os.write(2, b'{"event": "ours"}\\n')
        if sys.argv[1] == "fails":
            raise SystemExit("does not start")
finally:
    child.communicate(b"\\n")
    for copying in [one for one in threading.enumerate() if one.name == "java-lines"]:
        copying.join()
"""

DYING = """
import os, subprocess, sys
from tidegate.spark_consumer.spark.java_lines import held_back

try:
    with held_back():
        script = "import os, time; print(flush=True); time.sleep(0.3); os.write(2, b'why\\\\n')"
        child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
        child.stdout.readline()
        raise SystemExit
finally:
    os.write(2, b"does not start\\n")
    os._exit(1)
"""


IN_TURNS = """
def opened():
    for copying in [one for one in threading.enumerate() if one.name == "java-lines"]:
        copying.join()
    return len(os.listdir("/proc/self/fd"))

before = opened()
found = []
for _ in range(3):
    with held_back():
        pass
found.append(opened() - before)
with held_back():  # a JVM that lives longer than the block
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
child.communicate(b"\\n")
found.append(opened() - before)
try:
    with held_back():
        raise ValueError
except ValueError:
    found.append(opened() - before)
print(found)
"""


@contextmanager
def written():
    """Yield lines that are passed on to a pipe, and a function that reads what came there."""
    read, write = os.pipe()
    os.set_blocking(read, False)

    def found():
        try:
            return os.read(read, 1 << 20).decode().splitlines()
        except BlockingIOError:
            return []

    yield _Lines(write), found
    os.close(read)
    os.close(write)


def copy(lines, *texts):
    read, write = os.pipe()
    os.write(write, "".join(f"{text}\n" for text in texts).encode())
    os.close(write)
    lines.copy(read)


def test_lines_are_held_except_our_own_and_then_passed_on():
    with written() as (lines, found):
        copy(lines, "a", '{"event": "ours"}', "b")
        assert found() == ['{"event": "ours"}']
        lines.drop()
        copy(lines, "c", "{}")
        assert found() == ["c", "{}"]


def test_the_last_lines_are_shown_in_order_where_java_does_not_start():
    with written() as (lines, found):
        copy(lines, *map(str, range(400)))
        lines.show()
        copy(lines, "later")
        assert found() == [*map(str, range(100, 400)), "later"]


@pytest.mark.parametrize(
    ("how", "shown"),
    [("starts", ["later", '{"event": "ours"}']), ("fails", ["does not start", "early", "later"])],
)
def test_a_process_writes_past_the_block_to_the_same_place(how, shown):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=False
    )
    assert set(shown) <= set(done.stderr.splitlines()), done.stderr


def test_the_last_words_of_a_process_that_dies_come_before_the_error():
    done = subprocess.run(
        [sys.executable, "-c", DYING], capture_output=True, text=True, check=False
    )
    assert done.stderr.splitlines() == ["why", "does not start"]


def test_no_file_stays_open_once_nothing_writes_any_more():
    """Each session of a program passes here, also one that finds a JVM that runs."""
    program = PROGRAM.split("\n\n", maxsplit=1)[0] + IN_TURNS
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.stdout == "[0, 0, 0]\n", done.stderr


def test_without_a_standard_error_nothing_happens():
    program = "import os; os.close(2)\n" + PROGRAM.split("\n\n", maxsplit=1)[0]
    program += "\nwith held_back(): print('in')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout == b"in\n"
