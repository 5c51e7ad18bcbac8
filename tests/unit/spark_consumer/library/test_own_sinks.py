"""What is refused as a function or a sink, and what the error names."""

from types import SimpleNamespace

import pytest

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.library.own_sinks import named_sink, require_function


class Mine:
    name = "mine"

    def open(self, *, query_id, release_max):
        """Nothing to check."""

    def write(self, release):
        """Nothing to write."""


def test_a_sink_is_taken_as_it_is():
    mine = Mine()
    assert named_sink(mine) is mine


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (Mine, r"Mine is a class.*Mine\(…\)"),
        (print, r"it lacks open, write, name"),
        (SimpleNamespace(name="a", open=print), r"SimpleNamespace is not a sink, it lacks write\."),
        (SimpleNamespace(open=print, write=print), r"it lacks name\."),
        (SimpleNamespace(name=3, open=print, write=print), r"it lacks name\."),
        (SimpleNamespace(name="a", open=print, write=print, merge=print, versions=print),
         r"has merge\(…\) and versions\(…\), as the mirrors have"),
    ],
)  # fmt: skip
def test_what_is_no_sink_is_refused_with_what_it_lacks(given, text):
    with pytest.raises(ConfigError, match=text) as caught:
        named_sink(given)
    assert caught.value.hint


def test_a_function_can_be_called():
    require_function(print, "for_each_batch")
    with pytest.raises(ConfigError, match="for_each_batch: not a function: str"):
        require_function("print", "for_each_batch")
