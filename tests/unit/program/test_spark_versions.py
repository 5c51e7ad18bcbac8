"""The table of Spark's versions, and which row is that of a version."""

from __future__ import annotations

import shutil
import sys

import pytest

from tidegate.program import spark_versions
from tidegate.program.spark_versions import (
    SPARK_LINES,
    installed_line,
    installed_version,
    is_newer,
    line_of,
    require_supported,
)
from tidegate.schemas.errors import ConfigError


@pytest.mark.parametrize(
    ("version", "minor", "newer"),
    [
        ("4.0.0", "4.0", False),
        ("4.1.1-amzn-0", "4.1", False),
        ("4.2.0.dev1", "4.2", False),
        ("4.3.0", "4.2", True),
        ("4.10.0", "4.2", True),
        ("5.0.0-preview1", "4.2", True),
    ],
)
def test_a_version_has_the_row_of_its_minor_or_of_the_nearest_before_it(version, minor, newer):
    assert line_of(version).minor == minor
    assert is_newer(version) == newer
    require_supported(version)


@pytest.mark.parametrize("version", ["3.5.9", "2.4.8", "unknown", ""])
def test_an_older_version_and_another_text_are_refused_by_name(version):
    with pytest.raises(ConfigError) as caught:
        require_supported(version)
    assert version in str(caught.value)
    assert "Use Spark 4.0, 4.1 or 4.2" in str(caught.value)
    assert caught.value.exit_code == 2


def test_the_rows_ascend_and_each_is_of_one_spark():
    minors = [tuple(map(int, line.minor.split("."))) for line in SPARK_LINES]
    assert minors == sorted(set(minors))
    for line in SPARK_LINES:
        for version in (line.pyspark, line.kafka, line.avro):
            assert line_of(version) is line
        assert all(len(one.split(":")) == 3 for one in line.packages.split(","))
        assert bool(line.iceberg) == bool(line.iceberg_packages)


def test_the_installed_version_is_read_without_importing_pyspark(tmp_path, monkeypatch):
    def install(folder, text):
        package = tmp_path / folder / "pyspark"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("raise SystemExit('imported')")
        if text is not None:
            (package / "version.py").write_text(text)
        monkeypatch.setattr(sys, "path", [str(tmp_path / folder)])

    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    for folder, text, version in (
        ("typed", "# a comment\n__version__: str = '4.2.0'\n", "4.2.0"),
        ("plain", '__version__ = "4.1.1+amzn.0"\n', "4.1.1+amzn.0"),
        ("older", '__version__: str = "3.5.9"\n', "3.5.9"),
        ("without", None, ""),
        ("other", "pass\n", ""),
    ):
        install(folder, text)
        assert installed_version() == version
    # None is refused at an import: a program that needs no Spark runs beside any.
    assert installed_line() is SPARK_LINES[0]
    archive = shutil.make_archive(str(tmp_path / "pyspark"), "zip", tmp_path / "typed")
    monkeypatch.setattr(sys, "path", [archive])
    assert installed_version() == "4.2.0"
    assert installed_line() is SPARK_LINES[-1]
    monkeypatch.setattr(sys, "path", [])
    assert installed_version() == ""
    monkeypatch.setattr(spark_versions, "installed_version", lambda: "3.5.9")
    assert installed_line() is SPARK_LINES[0]
