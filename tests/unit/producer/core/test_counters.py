"""Counters count what a transaction added, not what a token's totals are."""

from __future__ import annotations

from tidegate.producer.core.counters import Counters
from tidegate.producer.core.position import Position
from tidegate.producer.core.stream_partition import Publication, StreamPartition
from tidegate.producer.messages import FORM_RECORD, ParkedChange, PublishableRecord
from tidegate.schemas.progress import ChildPartition, TopicTotals


def totals(mods):
    return {"bank.t": TopicTotals("bank.t", mods, mods, 10 * mods, 7)}


def test_it_adds_the_difference():
    counters = Counters()
    partition = StreamPartition(ChildPartition("p", (), 0), totals=tuple(totals(2).values()))
    publication = Publication((), 0, Position(1), totals(5), finish=None)

    counters.add({"p": partition}, {"p": publication})

    assert counters.published == {"bank.t": TopicTotals("bank.t", 3, 3, 30, 0)}
    assert counters.counts["finished"] == 0


def test_it_counts_finishes():
    counters = Counters()
    partition = StreamPartition(ChildPartition("p", (), 0))

    counters.add({"p": partition}, {"p": Publication((), 0, Position(1), {}, finish=(1, ()))})

    assert counters.counts["finished"] == 1


def test_it_counts_parked_changes_by_topic_and_reason():
    counters = Counters()
    partition = StreamPartition(ChildPartition("p", (), 0))
    partition.start_query(1)
    for at_us in (1, 2):
        change = ParkedChange(
            "bank.t", b"k", b"%d" % at_us, b"U", b"{}", FORM_RECORD, "SchemaError", "why", "p"
        )
        partition.add_items([PublishableRecord(at_us, "tx", "0", (), (change,))], 1)

    counters.add({"p": partition}, {"p": partition.publication()})

    assert counters.parked == {("bank.t", "SchemaError"): 2}
