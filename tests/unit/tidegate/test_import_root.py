"""`import tidegate` offers the library without importing pyspark."""

from __future__ import annotations

import subprocess
import sys

import pytest

import tidegate


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    return done.stdout.strip()


LOADED = "[n for n in ('pyspark', 'py4j', 'matplotlib', 'pandas') if n in sys.modules]"


@pytest.mark.parametrize(
    ("code", "printed"),
    [
        ("set(tidegate.__all__) <= set(dir(tidegate)), " + LOADED, "True []"),
        ("tidegate.status and " + LOADED, "[]"),
        ("tidegate.releases and tidegate.plot_releases and " + LOADED, "[]"),
        ("tidegate.as_of.__module__", "tidegate.spark_consumer.sinks.delta.as_of"),
    ],
)
def test_the_library_is_imported_without_its_extras(code, printed):
    assert run(f"import sys, tidegate; print({code})") == printed


@pytest.mark.parametrize("name", sorted(tidegate._HOMES))
def test_every_name_is_where_it_is_said_to_be(name):
    found = getattr(tidegate, name)
    assert name in tidegate.__all__
    if not name.endswith("_PACKAGES"):
        assert (found.__module__, found.__name__) == (tidegate._HOMES[name], name)


def test_another_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = tidegate.nonsense
