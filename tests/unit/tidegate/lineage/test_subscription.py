"""Which topics belong to a prefix, and which only look like it."""

import re

import pytest

from tidegate.lineage.errors import ProtocolError
from tidegate.lineage.subscription import Subscription
from tidegate.schemas.topics import TopicNames

SUBSCRIPTION = Subscription(TopicNames("a.b-c"))


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ("a.b-c.accounts", True),
        ("a.b-c.sales.accounts_2", True),
        ("a.b-c-progress", True),
        ("a.b-c-dead-letter", False),
        ("other.accounts", False),
        ("axb-c.accounts", False),
    ],
)
def test_membership(topic, expected):
    assert SUBSCRIPTION.includes(topic) is expected


def test_the_pattern_matches_data_topics_only():
    topics = ["a.b-c.x", "a.b-c.s.x", "a.b-c-progress", "a.b-c.y-progress", "a.b-c.1.2.3"]
    matching = [t for t in topics if re.fullmatch(SUBSCRIPTION.data_pattern, t)]
    assert matching == ["a.b-c.x", "a.b-c.s.x"]


def test_a_data_topic_that_the_pattern_leaves_out_is_never_left_out_in_silence():
    with pytest.raises(ProtocolError):
        SUBSCRIPTION.includes("a.b-c.odd name")


def test_the_table_is_the_topic_without_its_prefix():
    assert SUBSCRIPTION.table("a.b-c.sales.accounts") == "sales.accounts"
