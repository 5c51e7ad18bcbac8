"""The verdict on a stream's topics: compares them with the commit log and with one another."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.chaos.judge.partitions import (
    Query,
    StreamPartitions,
    compare_markers,
    compare_queries,
    compare_revisions,
)
from tests.chaos.judge.published import Findings, compare_published, is_never_poison
from tests.chaos.judge.topics import Published
from tests.chaos.judge.watermark import late_changes
from tidegate.local_stack.judge.log import LoggedChange, LoggedTransaction


def judge_topics(
    published: Published,
    transactions: Sequence[LoggedTransaction],
    *,
    stream: StreamPartitions,
    queries: Sequence[Query] = (),
    seed: int,
    is_poison: Callable[[LoggedChange], bool] = is_never_poison,
) -> Findings:
    """Compare all topics of a stream with everything that was committed.

    `queries` are those that workers have begun; `seed` decides in which orders topics are read.
    """
    found = compare_published(published.topics, transactions, published.data, is_poison=is_poison)
    last_us = max((transaction.commit_timestamp_us for transaction in transactions), default=0)
    return {
        **found,
        **late_changes(published, seed=seed, last_us=last_us),
        "revisions": compare_revisions(published),
        "markers": compare_markers(published, stream),
        "lineage": compare_queries(published, queries, stream),
        "foreign_records": list(published.foreign),
    }
