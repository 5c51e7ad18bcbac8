"""Tasks: they run side by side on one thread, wait for signals, and end with it."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tidegate.producer.driver.tasks import TaskThread

WAIT_S = 30


@pytest.fixture
def own():
    running = TaskThread(name="own")
    yield running
    running.close()


def test_tasks_share_one_thread(own):
    threads, done = [], threading.Semaphore(0)

    async def note():
        threads.append(threading.current_thread())
        done.release()

    for number in range(5):
        own.start(note, name=f"task-{number}")
    for _ in range(5):
        assert done.acquire(timeout=WAIT_S)

    assert len(set(threads)) == 1
    assert threads[0].name == "own"
    assert threads[0].daemon


def test_a_signal_from_another_thread_ends_the_wait(own):
    signal, facts, found, done = own.signal(), [], [], threading.Event()

    async def wait():
        found.append(await signal.wait_for(lambda: bool(facts)))
        done.set()

    own.start(wait, name="waits")
    own.start(wait, name="waits too")
    signal.notify()  # nothing has changed
    facts.append(1)
    signal.notify()
    assert done.wait(WAIT_S)
    while len(found) < 2:
        threading.Event().wait(0.001)

    assert found == [True, True]


def test_a_wait_ends_with_its_time(own):
    signal = own.signal()

    assert own.run(lambda: signal.wait_for(lambda: False, 0.001)) is False
    assert own.run(lambda: signal.wait_for(lambda: True, 0.001)) is True


def test_what_blocks_runs_beside_the_tasks(own):
    going_on = threading.Event()

    async def both():
        blocking = asyncio.create_task(own.in_thread(lambda: going_on.wait(WAIT_S)))
        await asyncio.sleep(0)
        going_on.set()  # the tasks' thread is free
        return await blocking

    assert own.run(both) is True


def test_an_error_of_what_blocks_is_raised_in_its_task(own):
    def fail():
        raise KeyError("no")

    with pytest.raises(KeyError, match="no"):
        own.run(lambda: own.in_thread(fail))


def test_few_calls_block_at_a_time(own):
    running, most, going_on = [], [], threading.Event()
    all_block = threading.Semaphore(0)

    def block():
        running.append(1)
        most.append(len(running))
        all_block.release()
        assert going_on.wait(WAIT_S)
        running.pop()

    async def many():
        await asyncio.gather(*[own.in_thread(block) for _ in range(20)])

    caller = threading.Thread(target=lambda: own.run(many))
    caller.start()
    for _ in range(4):
        assert all_block.acquire(timeout=WAIT_S)
    going_on.set()
    caller.join(WAIT_S)

    assert max(most) == 4


def test_closing_cancels_what_runs_and_ends_the_thread():
    tasks, ended, started = TaskThread(), [], threading.Event()

    async def forever():
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    tasks.start(forever, name="forever")
    assert started.wait(WAIT_S)
    thread = tasks._thread
    tasks.close()
    tasks.close()

    assert ended == [True]
    assert not thread.is_alive()


def test_closing_does_not_wait_for_a_call_that_blocks():
    tasks, going_on, began = TaskThread(), threading.Event(), threading.Event()

    def block():
        began.set()
        return going_on.wait(WAIT_S)

    async def wait():
        await tasks.in_thread(block)

    tasks.start(wait, name="waits")
    assert began.wait(WAIT_S)
    tasks.close()
    assert not tasks._thread.is_alive()
    going_on.set()


def test_nothing_starts_after_the_end(own):
    tasks, ran = TaskThread(), []

    async def run():
        ran.append(True)

    tasks.close()
    tasks.start(run, name="late")
    tasks.signal().notify()

    assert ran == []
