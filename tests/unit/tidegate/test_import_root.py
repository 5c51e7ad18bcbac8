"""`import tidegate` offers `as_of` without importing pyspark."""

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
    code = "import sys, tidegate; print('pyspark' in sys.modules, 'as_of' in tidegate.__all__)"

    assert "False True" == run(code)


def test_as_of_is_the_consumers():
    code = "import tidegate; print(tidegate.as_of.__module__)"

    assert "tidegate.spark_consumer.sinks.delta.as_of" == run(code)


def test_from_import_works():
    assert "as_of" == run("from tidegate import as_of; print(as_of.__name__)")


def test_another_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = tidegate.nonsense
