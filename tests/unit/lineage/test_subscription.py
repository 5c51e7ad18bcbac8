"""Which topics belong to a prefix, and which only look like it."""

import re
from dataclasses import replace

import pytest

from tidegate.lineage.errors import ProtocolError
from tidegate.lineage.subscription import ProgressOnly, Subscription
from tidegate.schemas.errors import ConfigError
from tidegate.schemas.progress import StreamStarted
from tidegate.schemas.topics import TopicNames

SUBSCRIPTION = Subscription(TopicNames("a.b-c"))
NAMES = TopicNames("bank", "{prefix}-{table}")


def test_the_pattern_matches_data_topics_only():
    topics = ["a.b-c.x", "a.b-c.s.x", "a.b-c-progress", "a.b-c.y-progress", "a.b-c.1.2.3"]
    matching = [t for t in topics if re.fullmatch(SUBSCRIPTION.data_pattern, t)]
    assert matching == ["a.b-c.x", "a.b-c.s.x"]


@pytest.mark.parametrize(
    ("names", "topic"),
    [
        (TopicNames("a.b-c"), "a.b-c.odd name"),
        (TopicNames("bank"), "bank-accounts"),
        (TopicNames("bank"), "bank.accounts.of.v1"),
        (TopicNames("bank", "{prefix}-{table}"), "bank.accounts"),
        (TopicNames("bank", "{prefix}.{table}.v1"), "bank.accounts"),
        (TopicNames("bank", "{prefix}.{table}.v1"), "bank.accounts.v2"),
    ],
)
def test_a_data_topic_that_the_pattern_leaves_out_is_never_left_out_in_silence(names, topic):
    with pytest.raises(ProtocolError, match="does not match the pattern"):
        Subscription(names).includes(topic)


@pytest.mark.parametrize(
    ("names", "topic", "expected"),
    [
        (TopicNames("a.b-c"), "a.b-c.accounts", True),
        (TopicNames("a.b-c"), "a.b-c.sales.accounts_2", True),
        (TopicNames("a.b-c"), "a.b-c-progress", True),
        (TopicNames("a.b-c"), "a.b-c-dead-letter", False),
        (TopicNames("a.b-c"), "a.b", False),
        (TopicNames("a.b-c"), "other.accounts", False),
        (TopicNames("a.b-c"), "axb-c.accounts", False),
        (NAMES, "bank-accounts", True),
        (NAMES, "bank-progress", True),
        (NAMES, "bank-dead-letter", False),
        (NAMES, "bankers-accounts", False),
    ],
)
def test_membership(names, topic, expected):
    assert Subscription(names).includes(topic) is expected


def test_a_stream_that_was_begun_with_another_template_is_refused():
    started = StreamStarted("s", "d", 0, None, "g", 1, "id", (), ())
    other = replace(started, filters=("exclude_insert=true", *NAMES.recorded))
    Subscription(NAMES).require_stream(other)
    SUBSCRIPTION.require_stream(started)
    ProgressOnly("bank-progress").require_stream(other)
    for subscription, body in ((Subscription(NAMES), started), (SUBSCRIPTION, other)):
        with pytest.raises(ConfigError, match="topic_template: the stream was begun with"):
            subscription.require_stream(body)


@pytest.mark.parametrize("template", ["{prefix}.{table}", "{prefix}-{table}-v1"])
def test_a_table_has_a_topic_beside_its_data_topic(template):
    names = TopicNames("bank", template)
    subscription = Subscription(names)
    both = names.data("Sales.Items"), names.data("Sales.Items__backfill")
    assert [subscription.topics_of(topic) for topic in both] == [both, both]
    assert [subscription.table(topic) for topic in both] == ["Sales.Items"] * 2
    assert all(subscription.includes(topic) for topic in both)
    assert subscription.topics_of("other.Items") is None
