"""A read that finds no row for a while says that it goes on, and gives up in the end."""

import asyncio

import pytest

from tests.reading import received
from tests.unit.producer.backfill.test_stream import Answer, Query
from tidegate.producer.backfill.long_read import SILENT_MAX_S, LongRead
from tidegate.producer.errors import ConditionRefused, QueryInterrupted, QueryRefused

ALIVE = Answer("alive")


class Search(Query):
    """A read whose first answer takes so many sleeps of its reader."""

    def __init__(self, *answers, sleeps=0, rest=()):
        super().__init__(*answers)
        self.sleeps = sleeps
        self.found = asyncio.Event()
        self._rest = rest

    async def sleep(self, _seconds):
        self.sleeps -= 1
        if self.sleeps < 0:
            self.found.set()
            await asyncio.sleep(60)

    async def next_size(self):
        await self.found.wait()
        return await super().next_size()

    def rest(self):
        return list(self._rest), None


def read(search, tasks, every_s=1.0, **known):
    long = LongRead(search, ALIVE, every_s=every_s, sleep=search.sleep, **known)
    return [one.decode()[0] for one in received(long, tasks)], long


@pytest.mark.parametrize("sleeps", [0, 3])
def test_what_is_read_comes_behind_a_sign_of_life_for_each_silent_while(tasks, sleeps):
    found, long = read(Search(Answer("a"), Answer("b"), sleeps=sleeps, rest=["r"]), tasks)

    assert found == [["alive"]] * sleeps + [["a"], ["b"]]
    assert long.rest() == (["r"], None)


def test_an_error_of_the_read_comes_through(tasks):
    with pytest.raises(QueryInterrupted):
        read(Search(QueryInterrupted("gone", code="UNAVAILABLE"), sleeps=2), tasks)


def test_a_read_that_is_silent_for_too_long_is_ended(tasks):
    search = Search(Answer("a"), sleeps=10_000)
    with pytest.raises(ConditionRefused, match="found no row that meets the condition for 600 s"):
        read(search, tasks, every_s=SILENT_MAX_S / 4)
    assert search.sleeps == 10_000 - 4
    assert search.is_cancelled


def test_a_chunk_without_a_condition_is_refused_and_not_its_run(tasks):
    search = Search(Answer("a"), sleeps=10_000)
    with pytest.raises(QueryRefused, match="found no row of the table for 600 s") as raised:
        read(search, tasks, every_s=SILENT_MAX_S / 4, with_condition=False)
    assert not isinstance(raised.value, ConditionRefused)
    assert search.is_cancelled


def test_only_the_silence_before_one_answer_counts(tasks):
    class Twice(Search):
        async def next_size(self):
            size = await super().next_size()
            self.found.clear()
            self.sleeps = 3
            return size

    found, _ = read(Twice(Answer("a"), sleeps=3), tasks, every_s=SILENT_MAX_S / 4)
    assert found == [["alive"]] * 3 + [["a"]] + [["alive"]] * 3


def test_a_reader_that_is_cancelled_ends_the_read(tasks):
    search = Search(sleeps=1_000_000)
    long = LongRead(search, ALIVE, every_s=1.0, sleep=search.sleep)
    long.cancel()

    assert search.is_cancelled
