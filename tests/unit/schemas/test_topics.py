"""Names of topics, their template, and the slot of a stream partition."""

from __future__ import annotations

import re
import zlib

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from tidegate.schemas.errors import ConfigError
from tidegate.schemas.topics import (
    HEADER_MOD,
    HEADER_ORDER,
    HEADER_ORIGIN,
    HEADERS_PARKED,
    ROOT_TOKEN,
    SEPARATORS,
    TEMPLATE_DEFAULT,
    TopicNames,
    TopicTemplate,
    beside,
    slot_of,
    table_of,
    topic_collisions,
    topics_of_one_name,
)

DASHED, UNDERSCORED = "{prefix}-{table}", "{prefix}_{table}"
VERSIONED = "{prefix}.{table}.v1"


def test_every_name_follows_from_prefix_and_template():
    names = TopicNames("bank")
    dashed = TopicNames("bank", DASHED)
    for one in (names, dashed):
        assert one.progress == "bank-progress"
        assert one.dead_letter == "bank-dead-letter"
        assert one.group == "bank-fleet"
    assert [names.data(table) for table in ("accounts", "s.t")] == ["bank.accounts", "bank.s.t"]
    assert [dashed.data(table) for table in ("accounts", "s.t")] == ["bank-accounts", "bank-s.t"]
    assert TopicNames("bank", "{prefix}.public.{table}.v1").data("t") == "bank.public.t.v1"
    assert names.key_subject("bank.accounts") == "bank.accounts-key"
    assert names.value_subject("bank.accounts") == "bank.accounts-value"
    assert (HEADER_ORDER, HEADER_MOD, HEADER_ORIGIN) == ("order", "mod", "origin")
    assert HEADER_ORIGIN not in HEADERS_PARKED  # they hold the token itself


@pytest.mark.parametrize(
    ("template", "table"),
    [
        ("{prefix}-{table}", "progress"),
        ("{prefix}-pro{table}", "gress"),
        ("{prefix}-{table}ss", "progre"),
        ("{prefix}-{table}-letter", "dead"),
    ],
)
def test_a_table_whose_topic_could_be_another_one_is_refused_by_name(template, table):
    names = TopicNames("bank", template)
    with pytest.raises(ConfigError, match=f"table {table}: .* would be named like another kind"):
        names.data(table)
    topic = template.replace("{prefix}", "bank").replace("{table}", table)
    assert not names.is_data(topic)
    assert names.table(topic) is None
    for other in (f"x{table}", f"s.{table}"):
        assert names.table(names.data(other)) == other


@pytest.mark.parametrize("end", ["-progress", "-dead-letter"])
def test_a_template_that_ends_like_another_topic_is_refused(end):
    with pytest.raises(ConfigError, match="ends like the name of another topic"):
        TopicNames("bank", f"{{prefix}}.{{table}}{end}")


def test_a_topics_name_that_is_too_long_is_refused_with_its_length():
    prefix = "p" * 100
    assert len(TopicNames(prefix).data("t" * 148)) == 249
    with pytest.raises(ConfigError, match=r"table t+: its topic's name has 250 .* allows 249"):
        TopicNames(prefix).data("t" * 149)
    TopicNames(prefix, "{prefix}." + "x" * 147 + "{table}").data("t")
    with pytest.raises(ConfigError, match="leaves no room for a table"):
        TopicNames(prefix, "{prefix}." + "x" * 148 + "{table}")


def test_a_stream_keeps_the_template_that_it_was_begun_with():
    names, default = TopicNames("bank", DASHED), TopicNames("bank")
    assert default.recorded == ()
    assert names.recorded == ("producer.topic_template={prefix}-{table}",)
    filters = ("exclude_insert=true", "producer.tables=a", *names.recorded)
    assert TopicNames.recorded_template(filters) == DASHED
    assert TopicNames.recorded_template(filters[:2]) == "{prefix}.{table}"
    names.require_recorded(names.recorded)
    default.require_recorded(["exclude_insert=true"])
    for other, recorded, wanted in (
        (default, names.recorded, DASHED),
        (names, [], "{prefix}.{table}"),
    ):
        with pytest.raises(ConfigError, match="begun with") as caught:
            other.require_recorded(recorded)
        assert caught.value.hint == f'Set topic_template = "{wanted}"'


@given(st.text(max_size=120) | st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}", fullmatch=True))
@example("a.b-c_D9")
@example("x" * 100)
def test_any_prefix_is_taken_as_it_is_or_refused(prefix):
    if re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}", prefix):
        assert TopicNames(prefix).prefix == prefix
        return
    with pytest.raises(ConfigError):
        TopicNames(prefix)


@given(st.text(st.characters(exclude_categories=["Cs"])), st.integers(1, 1000))
@example("token", 16)
def test_every_token_has_one_slot(token, slots):
    assert 0 <= slot_of(token, slots) < slots
    assert slot_of(token, slots) == zlib.crc32(token.encode()) % slots
    assert slot_of(ROOT_TOKEN, slots) == 0 == len(ROOT_TOKEN)


PREFIX = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}", fullmatch=True)
NAME = st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,20}(\.[A-Za-z][A-Za-z0-9_]{0,20})?", fullmatch=True)


LITERAL = st.sampled_from(["", "", ".v1", "-x", "progress"]) | st.text("abgs-._7", max_size=5)
TEMPLATE = st.just("{prefix}.{table}") | st.builds(
    "{{prefix}}{}{}{{table}}{}".format, st.sampled_from("._-"), LITERAL, LITERAL
)


def names_of(prefix, template):
    """Return the names, unless the template is refused."""
    try:
        return TopicNames(prefix, template)
    except ConfigError:
        assume(False)


def topic_of(names, table):
    try:
        return names.data(table)
    except ConfigError:
        assume(False)


@given(PREFIX, TEMPLATE, NAME, NAME)
def test_under_every_template_a_topic_is_one_tables_and_no_other_topic(
    prefix, template, table, other
):
    names = names_of(prefix, template)
    topic = topic_of(names, table)
    assert names.is_data(topic)
    assert names.table(topic) == table
    assert (topic_of(names, other) == topic) == (other == table)
    assert not topic.endswith(("-progress", "-dead-letter"))
    assert len({topic, names.progress, names.dead_letter}) == 3
    assert names.table(names.progress) is names.table(names.dead_letter) is None
    for one in (topic, names.progress, names.dead_letter):
        assert re.fullmatch(r"[A-Za-z0-9._-]{1,249}", one)
    assert not names.is_unclear(topic)
    assert names.key_subject(topic) != names.value_subject(topic)


TOPIC_TEXT = st.text("ab-._7", max_size=8)


@given(PREFIX, TEMPLATE, TOPIC_TEXT | NAME)
def test_a_pattern_matches_exactly_the_topics_of_its_tables(prefix, template, text):
    names = names_of(prefix, template)
    for topic in (prefix + text, template.format(prefix=prefix, table=text)):
        table = names.table(topic)
        assert (table is not None) == bool(re.fullmatch(names.data_pattern, topic))
        if table is not None:
            assert names.data(table) == topic


SHORT = st.text("ab-._", min_size=1, max_size=4).filter(lambda text: text[0] not in ".-")
SHORT_TEXT = st.text("ab-._", max_size=3)
SHORT_TEMPLATE = st.builds(
    "{{prefix}}{}{}{{table}}{}".format, st.sampled_from("._-"), SHORT_TEXT, SHORT_TEXT
)
SHORT_NAME = st.from_regex(r"[ab_]{1,4}(\.[ab_]{1,4})?", fullmatch=True)


@settings(max_examples=1_000)
@given(SHORT, st.text("ab-._", max_size=4), SHORT_TEMPLATE, SHORT_TEMPLATE, SHORT_NAME)
def test_a_topic_that_two_streams_could_have_makes_them_overlap(
    prefix, more, template, other_template, table
):
    """Seen from the stream with the shorter prefix, whose template the other one can read."""
    names, other = names_of(prefix, template), names_of(prefix + more, other_template)
    topic = topic_of(other, table)
    if more and names.is_data(topic):
        assert names.overlapping([other.progress]) == [other.progress]
    assert topic not in (names.progress, names.dead_letter)


@pytest.mark.parametrize(
    ("prefix", "template", "other", "overlaps"),
    [
        ("orders", TEMPLATE_DEFAULT, "orders.eu", True),
        ("orders.eu.items", TEMPLATE_DEFAULT, "orders", True),
        ("orders", TEMPLATE_DEFAULT, "orders", False),
        ("orders", TEMPLATE_DEFAULT, "ordersx.eu", False),
        ("orders.eu", TEMPLATE_DEFAULT, "orders.us", False),
        ("orders.eu", TEMPLATE_DEFAULT, "order", False),
        ("orders", DASHED, "orders-x.y", True),
        ("orders", DASHED, "orders-x.y.z", False),
        ("orders", DASHED, "orders-x-y", False),
        ("orders", DASHED, "orders2", False),
        ("orders", DASHED, "orders.eu", True),
        ("orders", DASHED, "orders-", True),
        ("orders", DASHED, "orders", False),
        # What the other stream's template is decides, and its stream is asked.
        ("orders-x", DASHED, "orders", False),
        ("orders", UNDERSCORED, "orders_x", True),
        ("orders", "{prefix}-x-{table}", "orders-x", True),
        ("orders", "{prefix}-x-{table}", "orders-y", False),
        ("orders", "{prefix}-{table}.v1", "orders-x", True),
        ("orders", "{prefix}-{table}-v1.a", "orders-x-v1", True),
        ("orders", "{prefix}-{table}-v1", "orders-x-v1", False),
        ("orders", VERSIONED, "orders.eu", True),
    ],
)
def test_a_template_may_make_streams_overlap(prefix, template, other, overlaps):
    topics = [f"{other}-progress", f"{other}.items", "unrelated-progress", f"{prefix}.eu.items"]
    found = TopicNames(prefix, template).overlapping(topics)
    assert found == (topics[:1] if overlaps else [])


def test_streams_whose_template_decides_are_those_whose_prefix_this_one_continues():
    topics = ["a-progress", "a-b-progress", "a-b-c-progress", "a_b-progress", "b-progress", "a-b.t"]
    assert TopicNames("a-b-c").continued(topics) == ["a-b-progress", "a-progress"]
    assert TopicNames("a_b").continued(topics) == ["a-progress"]
    assert TopicNames("ab").continued(topics) == []
    assert TopicNames.progress_prefix("a-b-progress") == "a-b"


@pytest.mark.parametrize(
    ("template", "subject", "is_one"),
    [
        ("{prefix}.{table}", "bank.accounts-key", True),
        ("{prefix}.{table}", "bank.shop.Items-value", True),
        ("{prefix}.{table}", "bank-progress-key", True),
        ("{prefix}.{table}", "bank.accounts", False),
        ("{prefix}.{table}", "bank-progress", False),
        ("{prefix}.{table}", "bank.a.b.c-value", False),
        ("{prefix}.{table}", "bank-value", False),
        (DASHED, "bank-accounts-key", True),
        (DASHED, "bank.accounts-key", False),
        (DASHED, "bank-dead-letter-key", False),
    ],
)
def test_a_subject_is_the_streams_if_its_topic_is(template, subject, is_one):
    assert TopicNames("bank", template).is_subject(subject) is is_one


def test_a_name_beside_a_table_leads_back_to_it():
    assert [table_of(name) for name in ("a", "s.a", beside("s.a"))] == ["a", "s.a", "s.a"]
    names = TopicNames("p")
    assert names.table(names.data(beside("s.a"))) == "s.a__backfill"
    assert names.backfills == "p-backfill-requests"
    assert not names.is_data(names.backfills)
    assert not names.is_unclear(names.backfills)


@pytest.mark.parametrize(
    ("text", "middle", "tail"),
    [
        (TEMPLATE_DEFAULT, ".", ""),
        ("{prefix}_{table}", "_", ""),
        ("{prefix}.{table}.v1", ".", ".v1"),
        ("{prefix}.{database}.{table}", ".my-db.", ""),
        ("{prefix}.{table}-{database}", ".", "-my-db"),
    ],
)
def test_the_text_around_the_table(text, middle, tail):
    template = TopicTemplate.parse(text, database="my-db")
    assert template == TopicTemplate(middle, tail)
    assert template.text == text.replace("{database}", "my-db")
    assert TopicTemplate.parse(template.text) == template


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "'' must begin with {prefix}"),
        ("x.{prefix}.{table}", "must begin with {prefix}"),
        ("{prefix}.{prefix}.{table}", "must begin with {prefix}, and have it once"),
        ("{prefix}.{table}.{table}", "must have {table} once"),
        ("{prefix}.{database}.{database}.{table}", "{database} more than once"),
        ("{prefix}x-{table}", "has no separator after {prefix}"),
        ("{prefix}{database}.{table}", "has no separator after {prefix}"),
        ("{prefix}.{schema}.{table}", "'{schema}' is not one of {prefix}, {database}, {table}"),
        ("{prefix}.{table", "'{' is not one of"),
        ("{prefix}.table}", "'}' cannot be part of a topic's name"),
        ("{prefix}./{table}", "'./' cannot be part of a topic's name"),
        ("{prefix}.ä{table}", "cannot be part of a topic's name"),
        ("{prefix}.{table}\n", "cannot be part of a topic's name"),
        # Only a producer knows the database.
        ("{prefix}.{database}.{table}", "known to the producer only"),
    ],
)
def test_other_texts_are_refused(text, said):
    with pytest.raises(ConfigError) as caught:
        TopicTemplate.parse(text, database="" if "producer only" in said else "db")
    assert caught.value.message.startswith("topic_template: ")
    assert said in caught.value.message
    assert caught.value.hint


@given(st.text(max_size=40) | st.lists(
    st.sampled_from(["{prefix}", "{table}", "{database}", ".", "-", "_", "a", "{", "}", " "]),
    max_size=8,
).map("".join))  # fmt: skip
def test_any_text_is_taken_as_it_is_or_refused(text):
    try:
        template = TopicTemplate.parse(text, database="db")
    except ConfigError:
        return
    assert template.text == text.replace("{database}", "db")
    assert template.middle[0] in SEPARATORS


@pytest.mark.parametrize(
    ("wanted", "existing", "expected"),
    [
        (["p.a", "p.b"], ["p_c"], {}),
        (["p.s_t", "p.s.t"], [], {"p.s.t": "p.s_t"}),
        (["p.s_t"], ["p_s.t"], {"p.s_t": "p_s.t"}),
        (["p.s_t"], ["p_s.t", "p.s_t"], {}),
        (["p.s_t", "p.s.t", "p_s_t"], ["p.s_t"], {"p.s.t": "p.s_t", "p_s_t": "p.s_t"}),
        (["p.s-t"], ["p.s_t", "P.s-t"], {}),
    ],
)
def test_dots_and_underscores_are_one(wanted, existing, expected):
    assert topic_collisions(wanted, existing) == expected


@pytest.mark.parametrize(
    ("wanted", "existing", "expected"),
    [
        (["p.Orders", "p.Items"], ["p.s_t"], {}),
        (["p.Orders", "p.orders"], [], {"p.orders": "p.Orders"}),
        (["p.orders"], ["p.Orders"], {"p.orders": "p.Orders"}),
        (["p.orders"], ["p.Orders", "p.orders"], {}),
        (["p.s.T"], ["p.S.t", "p.S_t"], {"p.s.T": "p.S.t"}),
    ],
)
def test_upper_and_lower_case_are_one(wanted, existing, expected):
    assert topics_of_one_name(wanted, existing) == expected
