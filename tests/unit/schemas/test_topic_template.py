"""Templates of data topics' names: what is taken, and what is refused with which words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.schemas.errors import ConfigError
from tidegate.schemas.topic_template import SEPARATORS, TEMPLATE_DEFAULT, TopicTemplate


@pytest.mark.parametrize(
    ("text", "middle", "tail"),
    [
        (TEMPLATE_DEFAULT, ".", ""),
        ("{prefix}-{table}", "-", ""),
        ("{prefix}_{table}", "_", ""),
        ("{prefix}.public.{table}", ".public.", ""),
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
        ("{table}", "must begin with {prefix}"),
        ("x.{prefix}.{table}", "must begin with {prefix}"),
        ("{prefix}.{prefix}.{table}", "must begin with {prefix}, and have it once"),
        ("{prefix}.x", "must have {table} once"),
        ("{prefix}.{table}.{table}", "must have {table} once"),
        ("{prefix}.{database}.{database}.{table}", "{database} more than once"),
        ("{prefix}{table}", "has no separator after {prefix}"),
        ("{prefix}x-{table}", "has no separator after {prefix}"),
        ("{prefix}{database}.{table}", "has no separator after {prefix}"),
        ("{prefix}.{schema}.{table}", "'{schema}' is not one of {prefix}, {database}, {table}"),
        ("{prefix}.{Table}", "'{Table}' is not one of"),
        ("{prefix}.{table", "'{' is not one of"),
        ("{prefix}.table}", "'}' cannot be part of a topic's name"),
        ("{prefix}./{table}", "'./' cannot be part of a topic's name"),
        ("{prefix}.{table} ", "' ' cannot be part of a topic's name"),
        ("{prefix}.ä{table}", "cannot be part of a topic's name"),
        ("{prefix}.{table}\n", "cannot be part of a topic's name"),
    ],
)
def test_other_texts_are_refused(text, said):
    with pytest.raises(ConfigError) as caught:
        TopicTemplate.parse(text, database="db")
    assert caught.value.message.startswith("topic_template: ")
    assert said in caught.value.message
    assert caught.value.hint


def test_only_a_producer_knows_the_database():
    with pytest.raises(ConfigError, match=r"known to the producer only.*{prefix}\.my-database"):
        TopicTemplate.parse("{prefix}.{database}.{table}")


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
