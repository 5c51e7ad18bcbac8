"""Progress records that can be decoded and make no sense: a watermark, none, or a typed error."""

import json
from dataclasses import replace

from hypothesis import example, given
from hypothesis import strategies as st

from tidegate.lineage.frontier import Frontier, ProgressRow
from tidegate.lineage.subscription import Subscription
from tidegate.schemas.progress import (
    ChildPartition,
    DataTopic,
    PartitionAnnounced,
    PartitionFinished,
    ProgressRecord,
    SlotProgress,
    StreamStarted,
    TokenSnapshot,
    TopicOffset,
    TopicTotals,
)
from tidegate.schemas.topics import TopicNames
from tidegate.spark_consumer.errors import ConsumerError

SUBSCRIPTION = Subscription(TopicNames("bank"))
TOPICS = st.sampled_from(["bank.a", "bank-progress", "other.a", ""])
INT32 = st.sampled_from([0, 1, -1, 2**31 - 1, -(2**31)]) | st.integers(0, 3)
INT64 = st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63)]) | st.integers(0, 5)
TEXT = st.sampled_from(["", "a", "b", "c"])
TEXTS = st.lists(TEXT, max_size=2).map(tuple)
SMALL = st.integers(0, 2)


def tuples(of):
    return st.lists(of, max_size=2).map(tuple)


CHILD = st.builds(ChildPartition, TEXT, TEXTS, INT64)
TOTALS = st.builds(TopicTotals, TOPICS, INT64, INT64, INT64, st.integers(0, 2**64 - 1))
TOKEN = st.builds(TokenSnapshot, TEXT, INT64, TEXTS, TEXTS, INT64, st.just(()), tuples(TOTALS))
# A decoded chunk is one that its set can have.
CHUNK = st.sampled_from([(0, 1), (0, 1), (0, 2), (1, 2), (1, 3), (2, 3)])
BODIES = st.one_of(
    st.builds(
        lambda chunk, *fields: StreamStarted(*fields, chunk=chunk[0], chunks=chunk[1]),
        CHUNK, TEXT, TEXT, INT64, st.none() | INT64, TEXT, INT32 | SMALL, TEXT,
        tuples(st.builds(DataTopic, TOPICS, TEXT, INT32, INT32)), tuples(CHILD), TEXTS,
    ),
    st.builds(PartitionAnnounced, CHILD, TEXT),
    st.builds(
        lambda chunk, *fields: PartitionFinished(*fields, chunk=chunk[0], chunks=chunk[1]),
        CHUNK, TEXT, TEXTS, INT64, INT64, tuples(CHILD), tuples(TOTALS),
    ),
    st.builds(
        lambda chunk, *fields: SlotProgress(*fields, chunk=chunk[0], chunks=chunk[1]),
        CHUNK, SMALL, INT64, INT64, INT64,
        tuples(st.builds(TopicOffset, TOPICS, INT32, INT64)), tuples(TOKEN),
    ),
)  # fmt: skip
ROWS = st.builds(
    lambda slot, offset, epoch, body: ProgressRow(
        slot,
        offset,
        ProgressRecord(
            epoch,
            "w",
            replace(body, slot=slot) if isinstance(body, SlotProgress) and offset % 8 else body,
        ),
    ),
    SMALL,
    st.integers(0, 40),
    st.sampled_from(["e", "e", "e", "e", "e", "f"]),
    BODIES,
)
REACHED = st.dictionaries(TOPICS, st.dictionaries(SMALL, INT64, max_size=3), max_size=3)
START = StreamStarted("s", "d", 1, None, "g", 1, "id", (), ())


def row(offset, body):
    return ProgressRow(0, offset, ProgressRecord("e", "w", body))


@given(st.lists(st.tuples(st.lists(ROWS, max_size=8), REACHED), max_size=4))
@example([([row(0, START), row(1, SlotProgress(0, 1, 0, 0, (), ()))],
           {"bank-progress": {0: 2}})])  # fmt: skip
@example([([row(0, replace(START, slots=2**31 - 1))], {"bank-progress": {0: 1}})])
@example([([row(0, replace(START, slots=0))], {})])
def test_any_records(assert_reportable, batches):
    frontier = Frontier(SUBSCRIPTION)
    try:
        for rows, reached in batches:
            frontier.fold(rows, reached=reached)
            frontier.check_invariants()
            frontier.watermark()
            kept = json.loads(json.dumps(list(frontier.items_since(None))))
            again = Frontier(SUBSCRIPTION)
            again.apply(kept)
            assert list(again.items_since(None)) == kept
    except ConsumerError as error:
        assert_reportable(error)
