"""What Spark needs is found missing before it starts, each in one line."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.config import ICEBERG_PACKAGES, SPARK_PACKAGES
from tidegate.spark_consumer.sinks.delta.tables import DELTA_SESSION_SETTINGS
from tidegate.spark_consumer.spark import requirements

REPOSITORY = Path(__file__).resolve().parents[4]


@pytest.fixture
def installed(monkeypatch):
    """Choose what is installed: modules, a Java, and whether spark-submit is at work."""

    def choose(*modules, java=True, submitted=False):
        def no_java():
            raise ConfigError("Spark needs Java 17 to 21")

        monkeypatch.setattr(requirements, "is_installed", modules.__contains__)
        monkeypatch.setattr(requirements, "require_java", (lambda: None) if java else no_java)
        monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
        if submitted:
            monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")

    return choose


def refused(jars=""):
    with pytest.raises(ConfigError) as caught:
        requirements.require_spark(jars=jars)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_is_complete_passes(installed, tmp_path):
    jar = tmp_path / "a.jar"
    jar.touch()
    installed("pyspark", "delta")
    requirements.require_spark(jars="")
    requirements.require_spark(jars=f"{jar},https://host/b.jar")


def test_without_pyspark_the_line_says_what_to_type(installed):
    installed("delta")
    assert 'pip install "tidegate[local]"' in refused()


def test_without_deltas_python_part_the_line_says_what_to_type(installed):
    installed("pyspark")
    assert "pip install --no-deps delta-spark==" in refused()


def test_without_java_it_is_the_line_about_java(installed):
    installed("pyspark", "delta", java=False)
    assert "Java 17 to 21" in refused()


def test_a_jar_that_does_not_exist_is_named(installed, tmp_path):
    installed("pyspark", "delta")
    assert "jars: file not found (jars=['/no/a.jar'])" in refused("/no/a.jar,https://host/b.jar")


def test_under_spark_submit_java_and_jars_are_the_submitters(installed):
    installed("pyspark", "delta", java=False, submitted=True)
    requirements.require_spark(jars="/no/a.jar")


DELTA = {
    name: DELTA_SESSION_SETTINGS[name]
    for name in ("spark.sql.extensions", "spark.sql.catalog.spark_catalog")
}


def session(*classes, settings=DELTA):
    utils = SimpleNamespace(classIsLoadable=lambda name: name in classes)
    jvm = SimpleNamespace(
        org=SimpleNamespace(
            apache=SimpleNamespace(spark=SimpleNamespace(util=SimpleNamespace(Utils=utils)))
        )
    )
    conf = SimpleNamespace(get=settings.get)
    return SimpleNamespace(sparkContext=SimpleNamespace(_jvm=jvm), conf=conf)


def refused_session(*classes, settings=DELTA):
    with pytest.raises(ConfigError) as caught:
        requirements.require_session(session(*classes, settings=settings))
    return str(caught.value)


def test_a_session_with_all_data_sources_and_settings_passes():
    requirements.require_session(session(*requirements._DATA_SOURCES))


@pytest.mark.parametrize("missing", sorted(requirements._DATA_SOURCES))
def test_a_missing_data_source_is_named_with_the_setting_that_brings_it(missing):
    present = [name for name in requirements._DATA_SOURCES if name != missing]
    text = refused_session(*present)
    assert f"a data source for {requirements._DATA_SOURCES[missing]}" in text
    assert f"spark.jars.packages={SPARK_PACKAGES}" in text
    assert "--packages" in text
    assert "spark.sql.extensions=" not in text


@pytest.mark.parametrize("missing", sorted(DELTA))
def test_each_of_deltas_settings_is_named_with_its_value(missing):
    without = {name: value for name, value in DELTA.items() if name != missing}
    text = refused_session(*requirements._DATA_SOURCES, settings=without)
    assert f"{missing}={DELTA[missing]}" in text
    assert "spark.jars.packages" not in text
    assert [name for name in without if f"{name}=" in text] == []


def test_all_that_a_plain_session_lacks_is_named_at_once():
    text = refused_session(settings={"spark.sql.extensions": "org.other.Extension"})
    for name, value in {"spark.jars.packages": SPARK_PACKAGES, **DELTA}.items():
        assert f"{name}={value}" in text


def test_other_extensions_beside_deltas_are_fine():
    extensions = f"org.other.Extension, {DELTA['spark.sql.extensions']}"
    settings = {**DELTA, "spark.sql.extensions": extensions}
    requirements.require_session(session(*requirements._DATA_SOURCES, settings=settings))


def test_packages_are_the_same_wherever_they_are_named():
    assert SPARK_PACKAGES in (REPOSITORY / "docker/README.md").read_text()


def test_packages_are_those_that_the_local_stack_fetches():
    ivy = (REPOSITORY / "local_stack" / "parts" / "ivy.xml").read_text()
    for package in (*SPARK_PACKAGES.split(","), ICEBERG_PACKAGES):
        organisation, name, revision = package.split(":")
        assert f'org="{organisation}" name="{name}" rev="{revision}"' in ivy


def test_deltas_python_part_is_that_of_the_extra():
    text = (REPOSITORY / "pyproject.toml").read_text()
    assert set(re.findall(r'"(delta-spark==[^"]+)"', text)) == {requirements._DELTA_PYTHON}
