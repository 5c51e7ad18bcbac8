"""Conditions of the operating system's threads behind the driver's port."""

from __future__ import annotations

import threading

from tidegate.producer.driver.threads import SystemThreads

WAIT_S = 30


def test_a_condition_is_waited_for():
    condition, found = SystemThreads().condition(), []

    def wait():
        with condition:
            found.append(condition.wait_for(lambda: bool(found) or ready, WAIT_S))

    ready = []
    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    with condition:
        ready.append(True)
        condition.notify_all()
    thread.join(WAIT_S)

    assert found[0]
