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


def test_import_needs_no_extra():
    code = (
        "import sys, tidegate;"
        "print(sorted(n for n in sys.modules if 'spark' in n), set(tidegate.__all__)"
        " <= set(dir(tidegate)))"
    )

    assert "[] True" == run(code)


def test_as_of_is_the_consumers():
    code = "import tidegate; print(tidegate.as_of.__module__)"

    assert "tidegate.spark_consumer.sinks.delta.as_of" == run(code)


@pytest.mark.parametrize("name", sorted(tidegate._HOMES))
def test_every_name_is_where_it_is_said_to_be(name):
    found = getattr(tidegate, name)

    assert name in tidegate.__all__
    if not name.endswith("_PACKAGES"):
        assert (found.__module__, found.__name__) == (tidegate._HOMES[name], name)


def test_the_status_of_a_checkpoint_needs_no_pyspark():
    code = "import sys, tidegate; tidegate.status; print('pyspark' in sys.modules)"

    assert "False" == run(code)


def test_the_releases_of_an_output_need_neither_pyspark_nor_matplotlib():
    code = (
        "import sys, tidegate; tidegate.releases; tidegate.plot_releases;"
        "print([n for n in ('pyspark', 'py4j', 'matplotlib', 'pandas') if n in sys.modules])"
    )

    assert "[]" == run(code)


def test_from_import_works():
    assert "as_of" == run("from tidegate import as_of; print(as_of.__name__)")


def test_another_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = tidegate.nonsense
