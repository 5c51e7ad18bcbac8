"""Runs that are killed and replace each other at any call: each change comes out once."""

from __future__ import annotations

import random

import pytest

from tests.memory_topic import MemoryStage
from tests.topic_contract import Killed, Watched, opened, published, release, values
from tidegate.spark_consumer.errors import ReleaseUnconfirmed, WriterReplaced

RELEASES = 4
RUNS_MAX = 12


class World:
    """The checkpoint, `done`, and runs that begin within each other's calls."""

    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.stage = MemoryStage()
        self.done = 0
        self.runs = 0
        self.ends = []

    def run(self, *, calm=False):
        """A run that goes on from the checkpoint, until its end or to the last release."""
        self.runs += 1
        number = self.runs

        def require_writer():
            if number < self.runs:
                raise WriterReplaced("a younger run")

        disturb = (lambda *_: None) if calm else self.disturb
        topic = Watched(self.stage.process(), before=disturb, after=disturb)
        done = self.done
        try:
            # The plan of the next release may be stored.
            sink = opened(topic, release_max=done, require_writer=require_writer)
            while done < RELEASES:
                require_writer()
                sink.write(release(done))
                require_writer()
                done = self.done = done + 1
        except (Killed, ReleaseUnconfirmed) as error:
            self.ends.append(type(error).__name__)
        except WriterReplaced as error:
            if number == self.runs:
                raise
            self.ends.append(type(error).__name__)

    def disturb(self, name, _number):
        """What may happen before and after each call."""
        event = self.chance.random()
        if event < 0.02:
            raise Killed
        if event < 0.04 and name == "commit":
            raise ReleaseUnconfirmed("no answer")
        if event < 0.08 and self.runs < RUNS_MAX:
            self.run()


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_each_change_comes_out_once_and_in_order(first):
    ends = set()
    for seed in range(first, first + 100):
        world = World(seed)
        while world.done < RELEASES and world.runs < RUNS_MAX:
            world.run()
        world.run(calm=True)
        assert world.done == RELEASES, seed
        assert published(world.stage) == values(*range(RELEASES)), seed
        ends.update(world.ends)
    assert ends >= {"Killed", "TopicWriterReplaced", "WriterReplaced"}
