"""A tally counts what a transaction added, not what a token's totals are."""

from __future__ import annotations

from tidegate.producer.core.stream_partition import Position, Publication, StreamPartition
from tidegate.producer.core.tally import Tally
from tidegate.schemas.progress import ChildPartition, TopicTotals


def totals(mods):
    return {"bank.t": TopicTotals("bank.t", mods, mods, 10 * mods, 7)}


def test_it_adds_the_difference():
    tally = Tally()
    partition = StreamPartition(ChildPartition("p", (), 0), totals=tuple(totals(2).values()))
    publication = Publication((), 0, Position(1), totals(5), finish=None)

    tally.add({"p": partition}, {"p": publication})

    assert tally.published == {"bank.t": TopicTotals("bank.t", 3, 3, 30, 0)}
    assert tally.counts["finished"] == 0


def test_it_counts_finishes():
    tally = Tally()
    partition = StreamPartition(ChildPartition("p", (), 0))

    tally.add({"p": partition}, {"p": Publication((), 0, Position(1), {}, finish=(1, ()))})

    assert tally.counts["finished"] == 1
