"""Parts that are broken on purpose: which topics are a stream's own, and whose names these are."""

from __future__ import annotations

import re
from typing import Any

from tests.mutants.mutant import UnitMutant
from tidegate.lineage.subscription import Subscription
from tidegate.producer.commands import environment
from tidegate.producer.core import query_failure
from tidegate.producer.errors import TopicRefused
from tidegate.schemas import topic_collisions
from tidegate.schemas.topics import TopicNames

__all__ = ["BROKEN_NAMES"]

_TOPICS = "tests/unit/schemas/test_topics.py"
_PATTERN = f"{_TOPICS}::test_a_pattern_matches_exactly_the_topics_of_its_tables"
_REFUSED = (
    "tests/unit/producer/kafka/test_topics.py"
    "::test_a_topic_that_is_refused_for_good_concerns_what_it_is_for"
)
_OVERLAP = f"{_TOPICS}::test_a_topic_that_two_streams_could_have_makes_them_overlap"


def _begins_alike(self: TopicNames, topic: str) -> bool:
    return re.match(self.data_pattern, topic) is not None


def _dotted_prefixes_only(self: TopicNames, start: str) -> bool:
    return False


def _without_the_tail(self: TopicNames, start: str) -> bool:
    rest = start.removeprefix(self._head)
    is_longer = start.startswith(self._head)
    return is_longer and re.fullmatch(r"[A-Za-z0-9_]*(\.[A-Za-z0-9_]*)?", rest) is not None


def _no_tables(self: TopicNames) -> Any:
    return iter(())


def _take_any(_self: Any, _started: Any) -> None:
    """Compare nothing."""


def _ask_nobody(*_args: Any) -> None:
    """Compare nothing."""


def _foreign(self: TopicNames, topic: str) -> bool:
    return False


_NOT_OF_TOPICS = tuple(
    one for one in query_failure._OF_ONE_STREAM_PARTITION if one is not TopicRefused
)


BROKEN_NAMES = (
    UnitMutant(
        "a topic of a later table that is refused ends the worker",
        (_REFUSED,),
        ((query_failure, "_OF_ONE_STREAM_PARTITION", _NOT_OF_TOPICS),),
    ),
    UnitMutant(
        "names of topics compared as they are written",
        ("tests/unit/schemas/test_topic_collisions.py::test_dots_and_underscores_are_one",),
        ((topic_collisions, "_in_metrics", str),),
    ),
    UnitMutant(
        "a pattern that also matches what only begins like a data topic",
        (_PATTERN,),
        ((TopicNames, "is_data", _begins_alike),),
    ),
    UnitMutant(
        "a stream that takes the topics of one whose prefix continues its own",
        (
            _OVERLAP,
            f"{_TOPICS}::test_a_template_may_make_streams_overlap",
            "tests/unit/producer/kafka/test_removal.py::test_topics_that_a_template_makes_unclear_stay",
        ),
        ((TopicNames, "_may_begin", _dotted_prefixes_only),),
    ),
    UnitMutant(
        "a text after the table that is left out when streams are compared",
        (f"{_TOPICS}::test_a_template_may_make_streams_overlap",),
        ((TopicNames, "_may_begin", _without_the_tail),),
    ),
    UnitMutant(
        "a table whose topic is the progress topic",
        (f"{_TOPICS}::test_a_table_whose_topic_could_be_another_one_is_refused_by_name",),
        ((TopicNames, "_find_not_tables", _no_tables),),
    ),
    UnitMutant(
        "a reader that goes by other names than its stream",
        (
            "tests/unit/tidegate/lineage/test_frontier.py::test_a_stream_whose_data_topics_have_other_names_is_refused_as_soon_as_it_is_known",
        ),
        ((Subscription, "require_stream", _take_any),),
    ),
    UnitMutant(
        "a data topic of this prefix taken for a foreign one",
        (
            "tests/unit/tidegate/lineage/test_subscription.py::test_a_data_topic_that_the_pattern_leaves_out_is_never_left_out_in_silence",
        ),
        ((TopicNames, "is_unclear", _foreign),),
    ),
    UnitMutant(
        "a new stream whose topics another one's template takes",
        (
            "tests/unit/producer/commands/test_environment.py::test_a_new_stream_whose_topics_another_ones_template_takes_is_refused",
        ),
        ((environment, "require_unclaimed", _ask_nobody),),
    ),
)
