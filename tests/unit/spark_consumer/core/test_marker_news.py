"""What a batch reads of stream partitions and their markers."""

import json
from dataclasses import asdict, replace

from tidegate.schemas.progress import (
    ChecksumKind,
    ChildPartition,
    PartitionAnnounced,
    PartitionFinished,
    TopicTotals,
)
from tidegate.spark_consumer.core.marker_news import NO_NEWS, MarkerChunk, MarkerNews, NewsReader
from tidegate.spark_consumer.core.origin_sums import OriginSum

A = "bank.a"
MARKER = MarkerChunk("t", 50, 1, True, 0, 1, ((A, OriginSum(2, 20, 7)),))


def announced(token, start_ns):
    return PartitionAnnounced(ChildPartition(token, (), start_ns), "parent")


def finished(token="t", **changes):
    totals = (TopicTotals(A, 1, 2, 20, 7),)
    one = PartitionFinished(token, (), 10_000, 50_999, (), totals, parked=1)
    return replace(one, **{"checksums": ChecksumKind.XXHASH_64, **changes})


def read(*bodies, after_us=-1, items_max=10):
    reader = NewsReader(after_us=after_us, items_max=items_max)
    for body in bodies:
        reader.take(body)
    return reader.news


def test_news_are_in_whole_microseconds_and_each_once():
    news = read(announced("t", 10_999), announced("t", 10_999), finished(), finished())
    assert news == MarkerNews((("t", 10),), (MARKER,))
    version_1 = finished(checksums=ChecksumKind.BLAKE2B_64)
    assert not read(version_1).finished[0].has_checksum
    assert read() == NO_NEWS


def test_an_announcement_from_before_the_watermark_is_a_repeated_one():
    assert read(announced("t", 10_000), announced("u", 11_000), after_us=11).announced == (
        ("u", 11),
    )


def test_too_many_news_forget_everything_that_had_begun():
    bodies = [announced(f"{n}", n * 1_000) for n in (5, 9, 7)]
    assert read(*bodies, announced("last", 10_000), items_max=2) == MarkerNews(
        (("last", 10),), (), 9
    )


def test_news_are_restored_from_json():
    news = MarkerNews((("t", 10),), (MARKER,), 4)
    assert MarkerNews.restore(json.loads(json.dumps(asdict(news)))) == news
