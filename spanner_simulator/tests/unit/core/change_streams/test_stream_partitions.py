from __future__ import annotations

import random

import pytest

from spanner_simulator.core.change_streams.stream_partitions import StreamPartitions
from spanner_simulator.core.rows.storage import KeyRange
from spanner_simulator.errors import Code, SpannerError


@pytest.fixture
def partitions() -> StreamPartitions:
    return StreamPartitions(random.Random(1), [b"g", b"p"], start_us=5)


def test_a_split_ends_the_parent_where_the_children_start(partitions: StreamPartitions) -> None:
    parent = partitions.live[1]
    parent.recent_keys.extend([b"h", b"k", b"n"])
    left, right = partitions.split(parent, b"k", at_us=20)

    assert (parent.end_us, parent.children) == (20, (left, right))
    assert (left.low, left.high, right.low, right.high) == (b"g", b"k", b"k", b"p")
    assert left.start_us == right.start_us == 20
    assert left.parents == right.parents == (parent.token,)
    assert (list(left.recent_keys), list(right.recent_keys)) == ([b"h"], [b"k", b"n"])
    assert not parent.recent_keys
    assert partitions.locate(b"k") is right


def test_a_move_keeps_the_keys(partitions: StreamPartitions) -> None:
    parent = partitions.live[2]
    (child,) = partitions.move(parent, at_us=20)

    assert (child.low, child.high, child.parents) == (b"p", None, (parent.token,))
    assert partitions.active_at(19_999) == partitions.active_at(5_000)
    assert child in partitions.active_at(20_000)
    assert parent not in partitions.active_at(20_000)


def test_what_cannot_be_is_refused(partitions: StreamPartitions) -> None:
    first, second, third = partitions.live
    for act in (
        lambda: partitions.split(second, b"g", at_us=20),
        lambda: partitions.split(second, b"p", at_us=20),
        lambda: partitions.merge([first, third], at_us=20),
        lambda: partitions.merge([first], at_us=20),
    ):
        with pytest.raises(SpannerError) as caught:
            act()
        assert caught.value.code is Code.INVALID_ARGUMENT


def test_only_live_ones_are_found_by_token(partitions: StreamPartitions) -> None:
    parent = partitions.live[0]
    partitions.move(parent, at_us=20)

    with pytest.raises(SpannerError, match="has ended already"):
        partitions.find_live(parent.token)
    with pytest.raises(SpannerError, match="No stream partition"):
        partitions.find_live("nope")


def test_keys_that_move_have_one_holder_and_take_their_history_along() -> None:
    partitions = StreamPartitions(random.Random(1), [b"m"], start_us=5, is_mutable=True)
    source, destination = partitions.live
    source.recent_keys.extend([b"a", b"d", b"k"])
    partitions.move_keys(source, destination, KeyRange(b"c", b"f"), at_us=20)

    assert source.ranges == (KeyRange(b"", b"c"), KeyRange(b"f", b"m"))
    assert destination.ranges == (KeyRange(b"c", b"f"), KeyRange(b"m", None))
    assert [partitions.locate(key) for key in (b"b", b"c", b"f", b"m")] == [
        source,
        destination,
        source,
        destination,
    ]
    assert (list(source.recent_keys), list(destination.recent_keys)) == ([b"a", b"k"], [b"d"])


def test_keys_that_the_source_does_not_hold_cannot_move() -> None:
    partitions = StreamPartitions(random.Random(1), [b"m"], start_us=5, is_mutable=True)
    one, other = partitions.live
    for source, destination, keys in (
        (one, other, KeyRange(b"m", None)),
        (one, one, KeyRange(b"", None)),
    ):
        with pytest.raises(SpannerError, match="keys that the first of them holds") as caught:
            partitions.move_keys(source, destination, keys, at_us=20)
        assert caught.value.code is Code.INVALID_ARGUMENT
    assert [len(one.records) for one in partitions.live] == [0, 0]
