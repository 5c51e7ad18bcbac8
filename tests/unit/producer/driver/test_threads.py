"""Threads of the operating system behind the driver's port."""

from __future__ import annotations

import threading

from tidegate.producer.driver.threads import SystemThreads

WAIT_S = 30


def test_a_thread_runs_beside_its_caller_and_is_joined():
    go_on = threading.Event()
    thread = SystemThreads().start(lambda: go_on.wait(WAIT_S), name="reader-7")
    assert thread.is_alive()
    assert thread.name == "reader-7"
    assert thread.daemon

    go_on.set()
    thread.join(WAIT_S)
    assert not thread.is_alive()


def test_a_condition_is_waited_for():
    condition, found = SystemThreads().condition(), []

    def wait():
        with condition:
            found.append(condition.wait_for(lambda: bool(found) or ready, WAIT_S))

    ready = []
    thread = SystemThreads().start(wait, name="waits")
    with condition:
        ready.append(True)
        condition.notify_all()
    thread.join(WAIT_S)

    assert found[0]
