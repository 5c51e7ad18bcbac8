"""Totals are sums over all changes that are in a data topic."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tidegate.producer.core.totals import counted
from tidegate.producer.messages import FORM_RECORD, ChangeMessage, ParkedChange, PublishableRecord
from tidegate.schemas.checksums import xxhash_64
from tidegate.schemas.progress import ChecksumKind, TopicTotals


def added_one_by_one(records, totals):
    """The oracle: each message is added to the totals before it."""
    found = dict(totals)
    for one in records:
        for topic in {message.topic for message in one.messages}:
            before = found.get(topic, TopicTotals(topic, 0, 0, 0, 0))
            found[topic] = replace(before, records=before.records + 1)
        for message in one.messages:
            before = found[message.topic]
            found[message.topic] = replace(
                before,
                mods=before.mods + 1,
                value_bytes=before.value_bytes + len(message.value),
                checksum=(before.checksum + xxhash_64(message.order_key)) % 2**64,
            )
    return found


MESSAGES = st.builds(
    ChangeMessage,
    topic=st.sampled_from(["a", "b", "c"]),
    key=st.just(b"k"),
    value=st.binary(max_size=5),
    order_key=st.binary(min_size=1, max_size=5),
    mod=st.just(b"U"),
)
NUMBERS = st.integers(0, 2**64 - 1)
TOTALS = st.lists(
    st.builds(TopicTotals, st.sampled_from("ad"), NUMBERS, NUMBERS, NUMBERS, NUMBERS), max_size=2
)


@given(st.lists(st.lists(MESSAGES, max_size=4), max_size=4), TOTALS)
def test_totals_are_those_of_each_message_added_to_the_ones_before(batches, before):
    records = [PublishableRecord(at, "t", "0", tuple(batch)) for at, batch in enumerate(batches)]
    totals = {entry.topic: entry for entry in before}

    found = counted(records, totals, ChecksumKind.XXHASH_64)

    assert {**totals, **found} == added_one_by_one(records, totals)
    assert found.keys() == {message.topic for batch in batches for message in batch}


def test_parked_changes_are_not_counted():
    parked = ParkedChange("a", b"k", b"o", b"U", b"{}", FORM_RECORD, "SchemaError", "why", "token")
    record = PublishableRecord(1, "t", "0", (), (parked,))

    assert counted([record], {}, ChecksumKind.XXHASH_64) == {}
