"""Topic names and slots."""

import re
import zlib
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.schemas.errors import ConfigError
from tidegate.schemas.topics import (
    HEADER_MOD,
    HEADER_ORDER,
    HEADER_ORIGIN,
    HEADERS_PARKED,
    ROOT_TOKEN,
    TopicNames,
    slot_of,
)


def test_every_name_follows_from_the_prefix():
    names = TopicNames("bank")
    assert names.progress == "bank-progress"
    assert names.dead_letter == "bank-dead-letter"
    assert names.group == "bank-fleet"
    assert names.data("accounts") == "bank.accounts"
    assert names.data("sales.orders") == "bank.sales.orders"
    assert names.key_subject("bank.accounts") == "bank.accounts-key"
    assert names.value_subject("bank.accounts") == "bank.accounts-value"
    assert (HEADER_ORDER, HEADER_MOD, HEADER_ORIGIN) == ("order", "mod", "origin")
    assert HEADER_ORIGIN not in HEADERS_PARKED  # they hold the token itself


def test_a_table_follows_from_its_topic():
    names = TopicNames("bank")
    assert names.table("bank.sales.orders") == "sales.orders"
    assert names.table("bank-progress") is None
    assert names.table("other.accounts") is None


@pytest.mark.parametrize("prefix", ["a", "a.b-c_D9", "_x", "x" * 100])
def test_prefixes(prefix):
    assert TopicNames(prefix).prefix == prefix


@pytest.mark.parametrize("prefix", ["", ".", "-a", ".a", "a b", "a/b", "ä", "x" * 101, "a\n"])
def test_other_prefixes_are_refused(prefix):
    with pytest.raises(ConfigError):
        TopicNames(prefix)


def test_the_roots_slot():
    assert ROOT_TOKEN == ""
    assert slot_of(ROOT_TOKEN, 16) == 0
    assert slot_of("token", 16) == zlib.crc32(b"token") % 16 == 11


@given(st.text(st.characters(exclude_categories=["Cs"])), st.integers(1, 1000))
def test_every_token_has_one_slot(token, slots):
    assert 0 <= slot_of(token, slots) < slots
    assert slot_of(token, slots) == zlib.crc32(token.encode()) % slots


def test_tokens_spread_over_the_slots():
    owned = Counter(slot_of(f"token-{number}", 16) for number in range(1600))
    assert set(owned) == set(range(16))
    assert max(owned.values()) < 200


PREFIX = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}", fullmatch=True)
NAME = st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,20}(\.[A-Za-z][A-Za-z0-9_]{0,20})?", fullmatch=True)


@given(PREFIX, NAME, NAME)
def test_a_prefixs_names_are_legal_for_kafka_and_never_meet(prefix, table, other):
    names = TopicNames(prefix)
    topic = names.data(table)
    assert names.table(topic) == table
    assert (names.data(other) == topic) == (other == table)
    own = {topic, names.progress, names.dead_letter}
    assert len(own) == 3
    assert names.table(names.progress) is None
    assert names.table(names.dead_letter) is None
    assert all(re.fullmatch(r"[A-Za-z0-9._-]{1,249}", one) for one in own)
    assert names.key_subject(topic) != names.value_subject(topic)


@given(st.text(max_size=120))
def test_any_prefix_is_taken_as_it_is_or_refused(prefix):
    try:
        assert TopicNames(prefix).prefix == prefix
    except ConfigError:
        return
    assert prefix.isascii()
    assert prefix[0] not in ".-"


@pytest.mark.parametrize(
    ("prefix", "other", "overlaps"),
    [
        ("orders", "orders.eu", True),
        ("orders.eu", "orders", True),
        ("orders.eu.items", "orders", True),
        ("orders", "orders", False),
        ("orders", "orders_eu", False),
        ("orders", "ordersx.eu", False),
        ("orders.eu", "orders.us", False),
        ("orders.eu", "order", False),
    ],
)
def test_prefixes_that_continue_each_other_overlap(prefix, other, overlaps):
    topics = [f"{other}-progress", f"{other}.items", "unrelated-progress", f"{prefix}.eu.items"]
    assert TopicNames(prefix).overlapping(topics) == ([f"{other}-progress"] if overlaps else [])


@given(PREFIX, PREFIX, NAME, NAME)
def test_streams_that_do_not_overlap_share_no_data_topic(first, second, table, other):
    names = TopicNames(first)
    if first != second and not names.overlapping([f"{second}-progress"]):
        assert names.data(table) != TopicNames(second).data(other)


@pytest.mark.parametrize(
    ("subject", "is_one"),
    [
        ("bank.accounts-key", True),
        ("bank.accounts-value", True),
        ("bank.shop.Items-value", True),
        ("bank-progress-key", True),
        ("bank.accounts", False),
        ("bank-progress", False),
        ("bank2.accounts-key", False),
        ("bank.a.b.c-value", False),
        ("bank-value", False),
    ],
)
def test_a_subject_is_the_streams_if_its_topic_is(subject, is_one):
    assert TopicNames("bank").is_subject(subject) is is_one
